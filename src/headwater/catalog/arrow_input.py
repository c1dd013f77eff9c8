"""Arrow's bytes from the wire, read so that no claim in them is believed before it is checked.

Arrow takes what it reads for what it once wrote: an offset of two billion in a column of strings is followed, and ends
the process. So a stream has exactly the columns that are expected; its batches are plain (no dictionaries, nothing
compressed, which could unpack to a thousand times its size, no foreign byte order, whose conversion follows offsets);
and each batch is validated in full before a value of it is looked at. pyarrow does not tell a batch's compression or
a schema's byte order, so these two are read from the message's flatbuffer.
"""

import struct
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

FILES: Final = pa.schema([("path", pa.string()), ("modified_ns", pa.int64()), ("size", pa.int64())])
"""The files of a load, as its job tells them."""
KNOWN_FILES: Final = FILES.append(pa.field("load_id", pa.string()))
"""The files that a table has, as the catalog tells them."""

_SCHEMA: Final = "schema"
_BATCH: Final = "record batch"
_HEADER_FIELD: Final = 2
_COMPRESSION_FIELD: Final = 3
_ENDIANNESS_FIELD: Final = 0
_MOST_SCHEMA_BYTES: Final = 4 << 20
_WHAT_ARROW_RAISES: Final = (pa.ArrowException, OSError, EOFError, ValueError, struct.error, UnicodeDecodeError)


class MalformedArrowError(ValueError):
    """Bytes that are not the Arrow data they should be."""


def read_table(data: bytes, schema: pa.Schema) -> pa.Table:
    """The table of an Arrow stream with exactly these columns; MalformedArrowError for anything else."""
    try:
        return pa.Table.from_batches(list(_batches(data, schema)), schema)
    except MalformedArrowError:
        raise
    except _WHAT_ARROW_RAISES as error:
        raise MalformedArrowError(f"the Arrow stream cannot be read: {error!s:.200}") from None


def read_schema(data: bytes) -> pa.Schema:
    """The schema of an Arrow message; MalformedArrowError for anything else."""
    if len(data) > _MOST_SCHEMA_BYTES:
        raise MalformedArrowError(f"an Arrow schema has at most {_MOST_SCHEMA_BYTES} bytes, not {len(data)}")
    try:
        return pa.ipc.read_schema(pa.py_buffer(data))
    except _WHAT_ARROW_RAISES as error:
        raise MalformedArrowError(f"the Arrow schema cannot be read: {error!s:.200}") from None


def _batches(data: bytes, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    reader = pa.ipc.MessageReader.open_stream(pa.py_buffer(data))
    first = _next(reader)
    if first is None or first.type != _SCHEMA:
        raise MalformedArrowError("an Arrow stream begins with its schema")
    found = pa.ipc.read_schema(first)
    if not found.equals(schema):
        raise MalformedArrowError(f"the Arrow stream has the columns {_words(found)}, and should have {_words(schema)}")
    if _header_number(first, _ENDIANNESS_FIELD, "<h") != 0:
        raise MalformedArrowError("the Arrow stream has the byte order of another machine: write it little-endian")
    while (message := _next(reader)) is not None:
        if message.type != _BATCH:
            raise MalformedArrowError(f"the Arrow stream has a message of type {message.type}: write plain columns")
        if _header_number(message, _COMPRESSION_FIELD, "<I") != 0:
            raise MalformedArrowError("the Arrow stream is compressed: write it without")
        # The wire's own schema is not used any more: only its columns have been compared.
        batch = pa.ipc.read_record_batch(message, schema)
        batch.validate(full=True)
        yield batch


def _next(reader: pa.ipc.MessageReader) -> pa.ipc.Message | None:
    try:
        return reader.read_next_message()
    except StopIteration:
        return None


def _words(schema: pa.Schema) -> str:
    return f"{', '.join(f'{field.name} {field.type}' for field in schema)!r:.200}"


def _header_number(message: pa.ipc.Message, field: int, kind: str) -> int:
    """A scalar, or an offset to a table, in the header of a message; 0 when it is absent."""
    # Message: version, header_type, header, bodyLength, as flatc lays out tables: a signed offset to the row of the
    # fields' places, which begins with two sizes.
    view = memoryview(message.metadata)
    (root,) = struct.unpack_from("<I", view, 0)
    at = _field_at(view, root, _HEADER_FIELD)
    if at == 0:
        raise MalformedArrowError("the Arrow stream has a message without a header")
    (forward,) = struct.unpack_from("<I", view, at)
    place = _field_at(view, at + forward, field)
    return int(struct.unpack_from(kind, view, place)[0]) if place else 0


def _field_at(view: memoryview, table: int, field: int) -> int:
    """Where a field of a flatbuffer's table stands; 0 when it is absent."""
    (backward,) = struct.unpack_from("<i", view, table)
    row = table - backward
    if row < 0:
        raise MalformedArrowError("the Arrow stream has a message whose parts lie outside it")
    (size,) = struct.unpack_from("<H", view, row)
    entry = 4 + 2 * field
    if entry + 2 > size:
        return 0
    (place,) = struct.unpack_from("<H", view, row + entry)
    return table + place if place else 0
