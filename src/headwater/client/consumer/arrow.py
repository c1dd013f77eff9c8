"""Columns of several partitions as one `pyarrow.Table`, whose buffers are those of the columns.

The only module of the consumer that needs pyarrow, an extra of its own: `pip install headwater[arrow]`. No I/O.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from headwater.protocol.record_columns import BinaryColumn, RecordColumns, join_columns

try:
    import pyarrow as pa
except ImportError as error:
    raise ImportError("Arrow tables need pyarrow, which is not installed: pip install headwater[arrow]") from error

if TYPE_CHECKING:
    from typing_extensions import Buffer

Part: TypeAlias = tuple[str, int, RecordColumns]
"""Topic, partition and their records."""

# To wrap the buffers of a part costs about as much as to copy so many bytes of it.
_SMALL_PART_BYTES: Final = 1 << 16
_LARGEST_JOINED_BYTES: Final = 1 << 20

_HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.dictionary(pa.int32(), pa.string())),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(_HEADER)),
    ]
)
_IN_COLUMNS: Final = ("offset", "timestamp", "key", "value", "headers")


def schema() -> pa.Schema:
    """What every table of records has for columns, also one without rows."""
    return _SCHEMA


def to_table(parts: Sequence[Part]) -> pa.Table:
    """The records of all parts, in their order, as one table.

    A part is a chunk of its own and is not copied; many small ones become one.
    """
    topics = list(dict.fromkeys(topic for topic, _, _ in parts))
    index_of = {topic: index for index, topic in enumerate(topics)}
    dictionary = pa.array(topics, pa.string())
    chunks = [_chunk(run, index_of, dictionary) for run in _runs(parts)]
    return pa.Table.from_batches(chunks, _SCHEMA)


def _runs(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """The parts with rows, one by one or as many small ones in a row as make a chunk of a good size."""
    run: list[Part] = []
    run_bytes = 0
    for part in parts:
        if not len(part[2]):
            continue
        size = _size_bytes(part[2])
        if run and (size > _SMALL_PART_BYTES or run_bytes + size > _LARGEST_JOINED_BYTES):
            yield run
            run, run_bytes = [], 0
        run.append(part)
        run_bytes += size
        if size > _SMALL_PART_BYTES:
            yield run
            run, run_bytes = [], 0
    if run:
        yield run


def _size_bytes(columns: RecordColumns) -> int:
    headers = 0 if columns.header_sections is None else len(columns.header_sections.data)
    return 16 * len(columns) + len(columns.keys.data) + len(columns.values.data) + headers


def _chunk(run: Sequence[Part], index_of: dict[str, int], dictionary: pa.Array) -> pa.RecordBatch:
    columns = run[0][2] if len(run) == 1 else join_columns([part for _, _, part in run])
    topics = _repeated([(index_of[topic], len(part)) for topic, _, part in run])
    arrays = [
        pa.DictionaryArray.from_arrays(topics, dictionary, safe=False),
        _repeated([(partition, len(part)) for _, partition, part in run]),
        *(array_of(columns, name) for name in _IN_COLUMNS),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def array_of(columns: RecordColumns, name: str) -> pa.Array:
    """One column of a table of records: `offset`, `timestamp`, `key`, `value` or `headers`."""
    match name:
        case "offset":
            return _numbers(pa.int64(), columns.offsets, len(columns))
        case "timestamp":
            return _numbers(pa.timestamp("ms", "UTC"), columns.timestamps_ms, len(columns))
        case "key":
            return _strings(pa.binary(), columns.keys)
        case "value":
            return _strings(pa.binary(), columns.values)
        case "headers":
            return _headers(columns)
        case _:
            raise KeyError(f"records have no column {name!r} of their own, only {', '.join(_IN_COLUMNS)}")


def _repeated(numbers: Sequence[tuple[int, int]]) -> pa.Array:
    """Each number as often as the one behind it says."""
    data = b"".join([number.to_bytes(4, sys.byteorder) * count for number, count in numbers])
    return _numbers(pa.int32(), data, len(data) // 4)


def _numbers(kind: pa.DataType, data: Buffer, count: int) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)], 0)


def _strings(kind: pa.DataType, column: BinaryColumn) -> pa.Array:
    buffers = [_buffer(column.validity), pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind, len(column), buffers, column.null_count)


def _headers(columns: RecordColumns) -> pa.Array:
    lists = columns.header_lists()
    if lists is None:
        ends: Buffer = bytes(4 * (len(columns) + 1))
        entries = pa.array([], _HEADER)
    else:
        ends, names, contents = lists
        fields = [_strings(pa.string(), names), _strings(pa.binary(), contents)]
        entries = pa.Array.from_buffers(_HEADER, len(names), [None], 0, children=fields)
    return pa.Array.from_buffers(pa.list_(_HEADER), len(columns), [None, pa.py_buffer(ends)], 0, children=[entries])


def _buffer(content: bytearray | None) -> pa.Buffer | None:
    return None if content is None else pa.py_buffer(content)
