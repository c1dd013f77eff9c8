"""Records by column, for bulk: a hundred thousand of them without an object each.

The layout is Arrow's, but nothing here needs Arrow. The work is done in `column_building`; here is its
outside.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from headwater.protocol.batches import BatchHeader, octets, scan_headers
from headwater.protocol.column_building import BinaryBuilder, BinaryData, ColumnsBuilder, split_headers
from headwater.protocol.record_reading import DECOMPRESSED_LIMIT_BYTES, RecordHeaders, decode_headers

if TYPE_CHECKING:
    from typing_extensions import Buffer


class BinaryColumn:
    """Byte strings, some of them null, in Arrow's layout for `binary`: `pyarrow.py_buffer` takes the parts.

    Item `i` is `data[offsets[i]:offsets[i + 1]]`. In `validity`, bit `i` counted from the lowest is 0 for a
    null; it is None when there are no nulls.
    """

    __slots__ = ("data", "null_count", "offsets", "validity")

    def __init__(self, data: BinaryData, offsets: array[int], validity: bytearray | None, null_count: int) -> None:
        self.data = data
        self.offsets = offsets
        self.validity = validity
        self.null_count = null_count

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> bytes | None:
        if not 0 <= index < len(self):
            raise IndexError(f"no item {index} in a column of {len(self)}")
        if self.validity is not None and not self.validity[index >> 3] >> (index & 7) & 1:
            return None
        return bytes(self.data[self.offsets[index] : self.offsets[index + 1]])


class RecordColumns:
    """The records of some batches, column by column.

    `next_offset` is where to read on: behind the last batch, even if none of its records is here; None if
    there was no batch. `header_sections` is None when no record has headers; `headers` decodes those of one
    record.
    """

    __slots__ = ("header_sections", "keys", "next_offset", "offsets", "timestamps_ms", "values")

    def __init__(
        self,
        offsets: array[int],
        timestamps_ms: array[int],
        keys: BinaryColumn,
        values: BinaryColumn,
        header_sections: BinaryColumn | None,
        next_offset: int | None,
    ) -> None:
        self.offsets = offsets
        self.timestamps_ms = timestamps_ms
        self.keys = keys
        self.values = values
        self.header_sections = header_sections
        self.next_offset = next_offset

    def __len__(self) -> int:
        return len(self.offsets)

    def headers(self, index: int) -> RecordHeaders:
        """The headers of the record in this row."""
        if not 0 <= index < len(self):
            raise IndexError(f"no row {index} in columns of {len(self)}")
        return () if self.header_sections is None else decode_headers(self.header_sections[index] or b"")

    def header_lists(self) -> tuple[array[int], BinaryColumn, BinaryColumn] | None:
        """The headers of all rows: offsets into the names and the contents of every header; None if there are none."""
        if self.header_sections is None:
            return None
        ends, names, contents = split_headers(self.header_sections.data, self.header_sections.offsets)
        return ends, BinaryColumn(*names), BinaryColumn(*contents)


def decode_columns(
    buffer: Buffer,
    start: int,
    end: int,
    *,
    headers: Iterable[BatchHeader] | None = None,
    from_offset: int = 0,
    limit_bytes: int = DECOMPRESSED_LIMIT_BYTES,
) -> RecordColumns:
    """The records of the whole batches in `[start, end)`, or only of those whose `headers` are given.

    Markers of transactions are left out, and so are records before `from_offset`: a fetch is answered from
    the start of the batch that holds its offset. `limit_bytes` bounds each batch. Checksums are not looked
    at.
    """
    next_offset: int | None = None
    builder = ColumnsBuilder(end - start)
    view = octets(buffer)
    for header in scan_headers(buffer, start, end) if headers is None else headers:
        next_offset = header.next_offset
        if not header.is_control and next_offset > from_offset:
            builder.append_batch(view, header, limit_bytes, from_offset)
    return as_columns(builder, next_offset)


def as_columns(builder: ColumnsBuilder, next_offset: int | None) -> RecordColumns:
    """What the builder has taken in; it may take no more."""
    offsets, timestamps_ms, keys, values, header_sections = builder.columns()
    return RecordColumns(
        offsets,
        timestamps_ms,
        BinaryColumn(*keys),
        BinaryColumn(*values),
        BinaryColumn(*header_sections) if header_sections[0] else None,
        next_offset,
    )


def join_columns(parts: Sequence[RecordColumns]) -> RecordColumns:
    """The rows of all parts in one, by copying them."""
    offsets, timestamps_ms = array("q"), array("q")
    for part in parts:
        offsets.extend(part.offsets)
        timestamps_ms.extend(part.timestamps_ms)
    header_sections = None
    if any(part.header_sections is not None for part in parts):
        header_sections = _join([_header_sections(part) for part in parts])
    return RecordColumns(
        offsets,
        timestamps_ms,
        _join([part.keys for part in parts]),
        _join([part.values for part in parts]),
        header_sections,
        parts[-1].next_offset if parts else None,
    )


def _join(columns: Sequence[BinaryColumn]) -> BinaryColumn:
    builder = BinaryBuilder()
    for column in columns:
        builder.extend(column.data, column.offsets, column.validity, column.null_count)
    return BinaryColumn(*builder.parts())


def _header_sections(part: RecordColumns) -> BinaryColumn:
    if part.header_sections is not None:
        return part.header_sections
    return BinaryColumn(bytearray(), array("i", bytes(4 * (len(part) + 1))), None, 0)
