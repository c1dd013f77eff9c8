"""Records that are larger than anyone sends, and batches that are larger than columns can be: right, or refused."""

from __future__ import annotations

import mmap
from array import array

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headwater.lake.errors import LakeError
from headwater.lake.shapes import parse_json, shape_of_json
from headwater.lake.shapes.parsing import LARGEST_BATCH_BYTES

HUGE = 200_000_000
SCHEMA = pa.schema([("id", pa.int32()), ("text", pa.string())])


def test_a_record_of_hundreds_of_megabytes_harms_neither_itself_nor_its_neighbours() -> None:
    huge = b'{"id": 2, "text": "\\u00e9%s"}' % (b"x" * HUGE)
    values = pa.array([b'{"id": 1, "text": "before"}', huge, b'{"id": 3, "text": "behind"}'], pa.binary())
    assert shape_of_json(values).corrupt == 0
    batch = parse_json(values, SCHEMA)
    batch.validate(full=True)
    assert batch.column("id").to_pylist() == [1, 2, 3]
    assert pc.utf8_length(batch.column("text")).to_pylist() == [6, HUGE + 1, 6]
    assert [text.as_py()[-2:] for text in batch.column("text")] == ["re", "xx", "nd"]


def test_more_than_columns_can_hold_is_refused_before_anything_is_read() -> None:
    with pytest.raises(LakeError, match=r"2 records of together 3072 MiB are too large .* 1280 MiB: parse fewer"):
        parse_json(empty_records(2, 3 << 30), SCHEMA)


def test_what_is_cut_out_of_a_larger_array_counts_alone() -> None:
    values = empty_records(3 << 10, LARGEST_BATCH_BYTES + (1 << 20))
    with pytest.raises(LakeError, match="too large"):
        parse_json(values, SCHEMA)
    assert parse_json(values[7:8], SCHEMA).column("_corrupt_record").null_count == 0


def empty_records(count: int, size_bytes: int) -> pa.Array:
    """Records that take the room and no memory: nobody has written to it yet."""
    ends = array("q", [size_bytes * index // count for index in range(count + 1)])
    room = mmap.mmap(-1, size_bytes)
    return pa.Array.from_buffers(pa.large_binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(room)], 0)
