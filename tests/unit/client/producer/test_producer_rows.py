"""Rows of columns become the records that they would be one by one, on the partitions that they would go to."""

from array import array
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.client.errors import RecordTooLargeError
from headwater.protocol.batches import parse_header
from headwater.protocol.record_decoding import decode_records

Cells = Sequence[bytes | None]
CELLS = st.none() | st.binary(max_size=300)


def column(core: Any, cells: Cells, *, first: int = 0, wide: bool = False, bits: bool = True) -> Any:
    """The cells as Arrow would lay them out, behind `first` rows of something else."""
    everything = [b"else"] * first + list(cells)
    offsets = array("q" if wide else "i", [0])
    validity = bytearray((len(everything) + 7) // 8)
    for index, cell in enumerate(everything):
        offsets.append(offsets[-1] + len(cell or b""))
        if cell is not None:
            validity[index >> 3] |= 1 << (index & 7)
    data = b"".join(cell or b"" for cell in everything)
    has_nulls = bits or None in cells
    return core.record_writing.BinaryRows(
        data, offsets, validity if has_nulls else None, count=len(cells), first=first, wide=wide
    )


def sent_records(accumulator: Any) -> tuple[list[tuple[Any, ...]], list[int]]:
    """All records, and the bytes of the batches that they came in."""
    records: list[tuple[Any, ...]] = []
    sizes: list[int] = []
    while ready := accumulator.ready(10**9):
        for queue in ready:
            batch = accumulator.drain(queue, 10**9)
            data = batch.seal()
            sizes.append(len(data))
            records += [
                (each.key, each.value, each.timestamp_ms)
                for each in decode_records(data, parse_header(data, 0, len(data)))
            ]
            accumulator.done(batch, 0)
    return records, sizes


@settings(deadline=None)
@given(
    rows=st.lists(st.tuples(CELLS, CELLS, st.integers(0, 2**62)), min_size=1, max_size=60),
    first=st.integers(0, 9),
    wide=st.booleans(),
    batch_size=st.integers(1, 3000),
    left_out=st.sampled_from(["keys", "times", "nothing"]),
)
def test_rows_are_the_records_that_they_would_be_one_by_one(
    both_cores: list[Any], rows: list[Any], first: int, wide: bool, batch_size: int, left_out: str
) -> None:
    keys, values, times = (list(cells) for cells in zip(*rows, strict=True))
    for core in both_cores:
        columns = core.record_writing.RecordRows(
            None if left_out == "keys" else column(core, keys, first=first, wide=wide),
            column(core, values, wide=wide, bits=False),
            timestamp_ms=55,
            timestamps_ms=None if left_out == "times" else array("q", times),
        )
        accumulator = core.accumulator_with(batch_size=batch_size)
        queue = accumulator.topic("t")
        appended, end = accumulator.append_rows(queue, 0, columns, None, 0, len(rows))
        assert (end, sum(part.row_count for part in appended)) == (len(rows), len(rows))
        records, sizes = sent_records(accumulator)
        assert records == [
            (None if left_out == "keys" else key, value, 55 if left_out == "times" else time_ms)
            for key, value, time_ms in rows
        ]
        one_by_one = core.accumulator_with(batch_size=batch_size)
        for key, value, time_ms in records:
            one_by_one.append(one_by_one.topic("t"), 0, key, value, None, time_ms)
        assert sent_records(one_by_one) == (records, sizes)


def test_handles_tell_where_the_rows_of_each_batch_went(core: Any) -> None:
    rows = core.record_writing.RecordRows(
        None, column(core, [b"v" * 50] * 30), timestamp_ms=0, timestamps_ms=array("q", range(30))
    )
    accumulator = core.accumulator_with(batch_size=1000)
    queue = accumulator.topic("t")
    accumulator.append(queue, 0, None, b"there before", None, 0)
    appended, _ = accumulator.append_rows(queue, 0, rows, None, 0, 30)
    offset = 100
    while ready := accumulator.ready(10**9):
        batch = accumulator.drain(ready[0], 10**9)
        accumulator.done(batch, offset)
        offset += batch.record_count
    assert [part.row_count for part in appended] == [16, 14]
    assert [part.handle.result() for part in appended] == [("t", 0, 101, 0), ("t", 0, 117, 16)]
    assert all(part.handle.delivery.wait(0) for part in appended)


def test_rows_stop_where_memory_ends_and_go_on_with_a_ticket(core: Any) -> None:
    cells = [b"%d" % number * 20 for number in range(100)]
    rows = core.record_writing.RecordRows(None, column(core, cells), timestamp_ms=0)
    accumulator = core.accumulator_with(batch_size=500, buffer_memory=1200)
    queue = accumulator.topic("t")
    at = 0
    records: list[Any] = []
    ticket = None
    while at < len(cells):
        appended, at = accumulator.append_rows(queue, 0, rows, None, at, len(cells), ticket)
        assert accumulator.used_bytes <= 1200
        assert appended or ticket is None, "who was given memory gets on"
        if ticket is not None:
            ticket.__exit__()
        ticket = accumulator.line_up(accumulator.room_needed_for(rows, None, at)) if at < len(cells) else None
        records += sent_records(accumulator)[0]
        assert ticket is None or ticket.granted
    assert [value for _, value, _ in records] == cells
    assert accumulator.used_bytes == 0


def test_a_row_that_is_too_large_is_an_error_and_those_before_it_are_sent(core: Any) -> None:
    cells = [b"small"] * 5 + [b"x" * 5000] + [b"small"] * 5
    rows = core.record_writing.RecordRows(None, column(core, cells), timestamp_ms=0)
    accumulator = core.accumulator_with(max_request_size=2000)
    queue = accumulator.topic("t")
    appended, at = accumulator.append_rows(queue, 0, rows, None, 0, len(cells))
    assert (at, [part.row_count for part in appended]) == (5, [5])
    with pytest.raises(RecordTooLargeError, match=r"max\.request\.size is 2000"):
        accumulator.append_rows(queue, 0, rows, None, at, len(cells))
    assert accumulator.append_rows(queue, 0, rows, None, at + 1, len(cells))[1] == len(cells)
    assert len(sent_records(accumulator)[0]) == 10


def test_a_row_larger_than_a_batch_has_one_of_its_own(core: Any) -> None:
    cells = [b"small", b"x" * 5000, b"small"]
    rows = core.record_writing.RecordRows(None, column(core, cells), timestamp_ms=0)
    accumulator = core.accumulator_with(batch_size=500)
    appended, _ = accumulator.append_rows(accumulator.topic("t"), 0, rows, None, 0, 3)
    assert [part.row_count for part in appended] == [1, 1, 1]
    assert [value for _, value, _ in sent_records(accumulator)[0]] == cells


@settings(deadline=None)
@given(keys=st.lists(CELLS, max_size=60), wide=st.booleans(), first=st.integers(0, 9), partitions=st.integers(1, 20))
def test_keys_in_a_column_go_where_they_go_one_by_one(
    both_cores: list[Any], keys: Cells, wide: bool, first: int, partitions: int
) -> None:
    for core in both_cores:
        part = core.partitioners
        chosen = part.partitions_for_keys(column(core, keys, first=first, wide=wide), partitions, partitions - 1)
        expected = [partitions - 1 if key is None else part.partition_for_key(key, partitions) for key in keys]
        assert chosen.tolist() == expected
        grouped = part.rows_by_partition(chosen, partitions)
        assert [picks.tolist() for picks in grouped] == [
            [row for row, partition in enumerate(expected) if partition == number] for number in range(partitions)
        ]


def test_picked_rows_are_sent_in_their_order(core: Any) -> None:
    cells = [b"%d" % number for number in range(10)]
    rows = core.record_writing.RecordRows(column(core, cells), column(core, cells), timestamp_ms=0)
    accumulator = core.accumulator_with()
    picks = memoryview(array("q", [7, 1, 4, 1]))
    accumulator.append_rows(accumulator.topic("t"), 0, rows, picks, 0, 4)
    assert [value for _, value, _ in sent_records(accumulator)[0]] == [b"7", b"1", b"4", b"1"]


def test_columns_that_do_not_hold_what_they_say_are_errors(core: Any) -> None:
    writing = core.record_writing
    with pytest.raises(ValueError, match="too few for 3 rows"):
        writing.BinaryRows(b"abc", array("i", [0, 1, 2]), None, count=3)
    with pytest.raises(ValueError, match="too few for 2 rows from row 1"):
        writing.BinaryRows(b"abc", array("q", [0, 1, 2]), None, count=2, first=1, wide=True)
    with pytest.raises(ValueError, match="validity"):
        writing.BinaryRows(b"", array("i", [0] * 10), b"\xff", count=9)
    for offsets in ([0, 2, 1], [0, 2, 4], [-1, 0, 1]):
        with pytest.raises(ValueError, match="of a column begins at"):
            writing.BinaryRows(b"abc", array("i", offsets), None, count=2)
    two = writing.BinaryRows(b"ab", array("i", [0, 1, 2]), None, count=2)
    with pytest.raises(ValueError, match="2 keys do not fit 1 values"):
        writing.RecordRows(two, column(core, [b"v"]), timestamp_ms=0)
    with pytest.raises(ValueError, match="timestamps"):
        writing.RecordRows(two, None, timestamp_ms=0, timestamps_ms=array("q", [1]))
    with pytest.raises(ValueError, match="keys, values or both"):
        writing.RecordRows(None, None, timestamp_ms=0)


def test_rows_that_are_not_there_are_errors(core: Any) -> None:
    rows = core.record_writing.RecordRows(None, column(core, [b"v"]), timestamp_ms=0)
    accumulator = core.accumulator_with()
    queue = accumulator.topic("t")
    for start, stop in ((0, 2), (-1, 1), (1, 0)):
        with pytest.raises(IndexError):
            accumulator.append_rows(queue, 0, rows, None, start, stop)
    for pick in (1, -1):
        with pytest.raises(IndexError, match="there is no row"):
            accumulator.append_rows(queue, 0, rows, memoryview(array("q", [pick])), 0, 1)
    with pytest.raises(ValueError, match="64-bit"):
        accumulator.append_rows(queue, 0, rows, memoryview(array("i", [0])), 0, 1)
    with pytest.raises(ValueError, match="32-bit"):
        core.partitioners.rows_by_partition(array("q", [0]), 1)
    with pytest.raises(ValueError, match="row 1 was given partition 3 of 3"):
        core.partitioners.rows_by_partition(array("i", [2, 3]), 3)
    assert accumulator.used_bytes == 0


def test_a_row_with_an_impossible_time_is_an_error(core: Any) -> None:
    for time_ms in (-1, 2**62 + 1):
        rows = core.record_writing.RecordRows(
            None, column(core, [b"v"]), timestamp_ms=0, timestamps_ms=array("q", [time_ms])
        )
        accumulator = core.accumulator_with()
        with pytest.raises(ValueError, match="row 0 has the timestamp"):
            accumulator.append_rows(accumulator.topic("t"), 0, rows, None, 0, 1)


def test_no_rows_are_nothing(core: Any) -> None:
    rows = core.record_writing.RecordRows(None, column(core, []), timestamp_ms=0)
    accumulator = core.accumulator_with()
    assert accumulator.append_rows(accumulator.topic("t"), 0, rows, None, 0, 0) == ([], 0)
