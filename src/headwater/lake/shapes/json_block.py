"""Records as one block of memory, for the compiled lanes, which do not go from object to object."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonBlock:
    """Bytes of records: record n is from offset n to n + 1."""

    values: pa.LargeBinaryArray
    data: memoryview
    offsets: array[int]
    rows: array[int]
    """The records that are UTF-8 and not null: only these are of interest to a quick lane."""
    broken: list[int]
    """Those that are not UTF-8."""

    def records(self, rows: list[int]) -> list[bytes | None]:
        """These records, as the plain lanes take them."""
        found: list[bytes | None] = self.values.take(pa.array(rows, pa.int64())).to_pylist()
        return found


def block_of(values: pa.Array) -> JsonBlock:
    """The block of an array of bytes or strings."""
    large = values.cast(pa.large_binary())
    _, ends, data = large.buffers()
    offsets = array("q")
    if len(large):
        offsets.frombytes(memoryview(ends)[large.offset * 8 : (large.offset + len(large) + 1) * 8])
    else:
        offsets.append(0)
    rows, broken = _rows(large)
    return JsonBlock(values=large, data=memoryview(data or b"").cast("B"), offsets=offsets, rows=rows, broken=broken)


def _rows(large: pa.LargeBinaryArray) -> tuple[array[int], list[int]]:
    if large.null_count:
        rows = array("q", pc.indices_nonzero(large.is_valid()).to_pylist())
    else:
        rows = array("q", range(len(large)))
    try:
        # The cast looks at every byte, which is quick as long as it is all right.
        large.cast(pa.large_string())
    except pa.ArrowInvalid:
        broken = [row for row in rows if not _is_utf8(large[row].as_py())]
        gone = set(broken)
        return array("q", [row for row in rows if row not in gone]), broken
    return rows, []


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
