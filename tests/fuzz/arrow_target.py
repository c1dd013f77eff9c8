"""Arrow's bytes as the catalog takes them: files of a load, and the schema of a table that is to grow."""

import logging

import pyarrow as pa

from headwater.catalog.arrow_input import FILES, KNOWN_FILES, MalformedArrowError, read_schema, read_table
from headwater.catalog.arrow_schemas import iceberg_schema

# It tells of each dictionary that it meets.
logging.getLogger("pyiceberg.io.pyarrow").setLevel(logging.ERROR)


def one_input(data: bytes) -> None:
    """Reads the bytes in each of the ways; a value that can be read is looked at, where a wrong offset would crash."""
    for schema in (FILES, KNOWN_FILES):
        try:
            table = read_table(data, schema)
        except MalformedArrowError:
            continue
        table.to_pylist()
    try:
        schema = read_schema(data)
    except MalformedArrowError:
        return
    try:
        iceberg_schema(schema)
    except ValueError:
        return


def seeds() -> list[bytes]:
    """Streams and schemas as our own client writes them, and as others may."""
    rows = {"path": ["a", "", "bücher/1.json"], "modified_ns": [1, 2, 3], "size": [4, 5, 6]}
    files = pa.table(rows, schema=FILES)
    known = files.append_column(KNOWN_FILES.field("load_id"), pa.array(["1", "2", "3"]))
    nested = pa.schema(
        [
            ("id", pa.int64()),
            ("at", pa.timestamp("us", "UTC")),
            ("tags", pa.map_(pa.string(), pa.list_(pa.struct([("x", pa.decimal128(10, 2))])))),
            ("kind", pa.dictionary(pa.int32(), pa.string())),
            ("uuid", pa.uuid()),
        ]
    )
    return [
        _stream(files),
        _stream(files.slice(1)),
        _stream(pa.Table.from_batches([], FILES)),
        _stream(pa.concat_tables([files, files])),
        _stream(known),
        _stream(files, compression="zstd"),
        _stream(files, compression="lz4"),
        FILES.serialize().to_pybytes(),
        nested.serialize().to_pybytes(),
    ]


def _stream(table: pa.Table, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table)
    found: bytes = sink.getvalue().to_pybytes()
    return found
