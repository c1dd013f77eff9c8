"""Records go into batches and come out again, one by one or as columns, in either form the same."""

import struct
from types import ModuleType
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

T0 = 1_700_000_000_000
CODECS = range(5)

octets = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=10), octets), max_size=4)
times_ms = st.integers(T0 - 10_000, T0 + 10_000) | st.integers(-1, 2**61)
rows = st.lists(st.tuples(octets, octets, headers, times_ms), max_size=30)


def only_header(records: ModuleType, batch: bytearray) -> Any:
    (header,) = records.check_batches(batch, 0, len(batch), strict=False)
    return header


def as_tuples(decoded: list[Any]) -> list[tuple[Any, ...]]:
    return [(r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in decoded]


def columns_as_tuples(columns: Any) -> list[tuple[Any, ...]]:
    return [
        (columns.offsets[i], columns.timestamps_ms[i], columns.keys[i], columns.values[i], columns.headers(i))
        for i in range(len(columns))
    ]


@settings(deadline=None)
@given(rows=rows, codec=st.sampled_from(CODECS), base_offset=st.integers(0, 2**62))
def test_what_goes_in_comes_out(records: ModuleType, rows: list[Any], codec: int, base_offset: int) -> None:
    batch = records.encode_batch(rows, base_offset=base_offset, compression=codec)
    header = only_header(records, batch)
    expected = [(base_offset + i, row[3], row[0], row[1], tuple(row[2])) for i, row in enumerate(rows)]
    assert as_tuples(records.decode_records(batch, header)) == expected
    assert columns_as_tuples(records.decode_columns(batch, 0, len(batch))) == expected
    assert header.records_count == len(rows)
    assert header.base_timestamp_ms == (rows[0][3] if rows else -1)
    assert header.max_timestamp_ms == max((row[3] for row in rows), default=-1)


@settings(deadline=None)
@given(rows=rows)
def test_both_forms_write_the_same_bytes(
    compiled_records: ModuleType, plain_records: ModuleType, rows: list[Any]
) -> None:
    options = {
        "base_offset": 7,
        "producer_id": 9,
        "producer_epoch": 3,
        "base_sequence": 11,
        "leader_epoch": 2,
    }
    assert compiled_records.encode_batch(rows, **options) == plain_records.encode_batch(rows, **options)


def test_the_bytes_of_a_batch_are_those_of_the_format(records: ModuleType) -> None:
    rows = [(b"k", b"hello", [("h", b"x"), ("n", None)], T0), (None, None, (), T0 - 1)]
    batch = records.encode_batch(
        rows,
        base_offset=5,
        producer_id=1,
        producer_epoch=2,
        base_sequence=3,
        leader_epoch=4,
        transactional=True,
        control=True,
    )
    first = bytes([0, 0, 0, 2]) + b"k" + bytes([10]) + b"hello" + bytes([4, 2]) + b"h" + bytes([2]) + b"x\x02n\x01"
    second = bytes([0, 1, 2, 1, 1, 0])
    body = bytes([len(first) * 2]) + first + bytes([len(second) * 2]) + second
    covered = struct.pack(">hiqqqhii", 0x30, 1, T0, T0, 1, 2, 3, 2) + body
    assert bytes(batch) == struct.pack(">qiibI", 5, len(covered) + 9, 4, 2, crc32c(covered)) + covered


def test_numbers_of_many_bytes_come_out(records: ModuleType) -> None:
    rows = [(b"", bytes(300_000), (), 0)] + [(b"k", b"v", (), (-1) ** i * 2**i) for i in range(62)] * 2
    batch = records.encode_batch(rows)
    decoded = records.decode_records(batch, only_header(records, batch))
    assert [(r.key, r.value, r.timestamp_ms) for r in decoded] == [(r[0], r[1], r[3]) for r in rows]


def test_the_append_time_can_be_written_at_once(records: ModuleType) -> None:
    batch = records.encode_batch([(None, b"v", (), T0), (None, b"v", (), T0 + 9)], log_append_time_ms=T0 + 5)
    header = only_header(records, batch)
    assert header.is_log_append_time
    assert [r.timestamp_ms for r in records.decode_records(batch, header)] == [T0 + 5] * 2
    assert list(records.decode_columns(batch, 0, len(batch)).timestamps_ms) == [T0 + 5] * 2


def test_other_buffers_are_written_like_bytes(records: ModuleType) -> None:
    plain = records.encode_batch([(b"key", b"value", [("h", b"x")], T0)])
    other = (bytearray(b"key"), memoryview(b"value"), [("h", bytearray(b"x"))], T0)
    assert records.encode_batch([other]) == plain


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ((5, None, (), T0), TypeError),
        (("text", None, (), T0), TypeError),
        ((None, 3.5, (), T0), TypeError),
        ((None, None, [("h", 7)], T0), TypeError),
        ((None, None, (), 2**62 + 1), ValueError),
        ((None, None, (), -(2**62) - 1), ValueError),
        ((None, None), ValueError),
    ],
)
def test_what_is_no_record_is_refused(records: ModuleType, row: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        records.encode_batch([(b"k", b"v", (), T0), row])


def test_header_names_that_are_no_utf_8_are_shown_as_well_as_possible(records: ModuleType) -> None:
    batch = records.encode_batch([(None, None, [("name", b"x")], T0)])
    at = batch.index(b"name")
    batch[at : at + 4] = b"n\xff\xfee"
    header = records.parse_header(batch, 0, len(batch))
    assert records.decode_records(batch, header)[0].headers == (("n��e", b"x"),)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("target", CODECS)
def test_recompression_changes_nothing_else(records: ModuleType, codec: int, target: int) -> None:
    rows = [(b"k%d" % i, b"some value " * 9, [("h", None)], T0 + i % 3) for i in range(50)]
    options = {
        "producer_id": 9,
        "producer_epoch": 3,
        "base_sequence": 11,
        "leader_epoch": 2,
        "transactional": True,
    }
    batch = b"..." + records.encode_batch(rows, base_offset=40, compression=codec, **options)
    (before,) = records.check_batches(batch, 3, len(batch))
    other = records.recompress(batch, before, target)
    (after,) = records.check_batches(other, 0, len(other))
    assert after.compression == target
    assert records.decode_records(other, after) == records.decode_records(batch, before)
    for name in ("base_offset", "leader_epoch", "last_offset_delta", "base_timestamp_ms", "max_timestamp_ms"):
        assert getattr(after, name) == getattr(before, name)
    for name in ("producer_id", "producer_epoch", "base_sequence", "records_count", "is_transactional"):
        assert getattr(after, name) == getattr(before, name)


def test_columns_are_laid_out_for_arrow(records: ModuleType) -> None:
    rows = [(b"a" * i if i % 3 else None, b"v%d" % i, (), T0 + i) for i in range(20)]
    batch = records.encode_batch(rows, base_offset=100)
    columns = records.decode_columns(batch, 0, len(batch))
    assert (columns.offsets.typecode, columns.timestamps_ms.typecode, columns.keys.offsets.typecode) == tuple("qqi")
    assert columns.keys.offsets.tolist() == [sum(i for i in range(n) if i % 3) for n in range(21)]
    assert columns.keys.data == b"a" * sum(i for i in range(20) if i % 3)
    assert columns.keys.null_count == 7
    assert [columns.keys.validity[i // 8] >> i % 8 & 1 for i in range(20)] == [bool(i % 3) for i in range(20)]
    assert len(columns.keys.validity) == 3
    assert columns.values.validity is None
    assert columns.values.null_count == 0
    assert columns.header_sections is None
    assert columns.next_offset == 120
    for index in (-1, 20):
        with pytest.raises(IndexError):
            columns.keys[index]
        with pytest.raises(IndexError):
            columns.headers(index)


def test_columns_span_batches_and_leave_out_markers_and_what_comes_before(records: ModuleType) -> None:
    def batch(base_offset: int, **options: Any) -> bytearray:
        rows = [(None, b"%d" % (base_offset + i), [("h", b"x")] * i, T0) for i in range(5)]
        encoded: bytearray = records.encode_batch(rows, base_offset=base_offset, **options)
        return encoded

    row = batch(0) + batch(5, compression=4) + batch(10, control=True) + batch(15, compression=1)
    torn = row + batch(20)[:-1]
    columns = records.decode_columns(torn, 0, len(torn), from_offset=7)
    assert columns.offsets.tolist() == [7, 8, 9, 15, 16, 17, 18, 19]
    assert [columns.values[i] for i in range(8)] == [b"%d" % offset for offset in columns.offsets]
    assert [len(columns.headers(i)) for i in range(8)] == [2, 3, 4, 0, 1, 2, 3, 4]
    assert columns.next_offset == 20
    chosen = records.scan_headers(torn, 0, len(torn))[:1]
    assert records.decode_columns(torn, 0, len(torn), headers=chosen).offsets.tolist() == [0, 1, 2, 3, 4]
    beyond = records.decode_columns(row, 0, len(row), from_offset=100)
    assert (len(beyond), beyond.next_offset) == (0, 20)
    assert records.decode_columns(b"", 0, 0).next_offset is None


@pytest.mark.parametrize("codec", CODECS)
def test_rules_of_a_topic_are_held_against_each_record(records: ModuleType, codec: int) -> None:
    rows = [(b"k", b"v", (), T0), (None, b"v", (), T0 + 50), (b"k", b"v", (), -1), (b"k", None, (), T0 - 50)]
    batch = records.encode_batch(rows, compression=codec)
    header = only_header(records, batch)

    def problems(**rules: Any) -> list[tuple[int, str]]:
        with pytest.raises(records.RefusedRecordsError) as refused:
            records.check_records(batch, header, **rules)
        found = refused.value.problems
        assert found.total == len(found.first)
        assert found.has_timestamp == any(problem.reason == "timestamp" for problem in found.first)
        return [(problem.batch_index, problem.reason) for problem in found.first]

    assert records.check_records(batch, header) == T0 + 50, "the largest time"
    assert problems(require_keys=True) == [(1, "null key")]
    assert problems(min_timestamp_ms=T0 - 49) == [(3, "timestamp")]
    assert records.check_records(batch, header, False, T0 - 50, T0 + 50) == T0 + 50
    assert problems(require_keys=True, max_timestamp_ms=T0 - 1) == [(0, "timestamp"), (1, "null key")]
    with pytest.raises(records.RefusedRecordsError) as refused:
        records.check_records(batch, header, max_timestamp_ms=T0 + 49)
    (problem,) = refused.value.problems.first
    assert problem.message == f"timestamp {T0 + 50} is out of the range that the topic takes, [-, {T0 + 49}]"


@pytest.mark.parametrize("codec", CODECS)
def test_of_many_problems_the_first_are_told_and_all_are_counted(records: ModuleType, codec: int) -> None:
    rows = [(None, b"", (), T0)] * 5_000 + [(b"k", b"", (), T0 + 1)]
    batch = records.encode_batch(rows, compression=codec)
    with pytest.raises(records.RefusedRecordsError) as refused:
        records.check_records(batch, only_header(records, batch), require_keys=True, max_timestamp_ms=T0)
    problems = refused.value.problems
    assert (len(problems.first), problems.total, problems.has_timestamp) == (100, 5_001, True)
    assert {problem.reason for problem in problems.first} == {"null key"}


@pytest.mark.parametrize("codec", CODECS)
def test_usual_and_unusual_records_are_walked_alike(records: ModuleType, codec: int) -> None:
    rows: list[Any] = []
    for number in range(400):
        key = (None, b"", b"key", b"k" * 63, b"k" * 64, b"k" * 200)[number % 6]
        value = (None, b"", b"value", bytes(63), bytes(64), bytes(9_000), b"v" * 100)[number % 7]
        headers = [("h", b"x")] if number % 11 == 0 else ()
        rows.append((key, value, headers, T0 + number * 37 % 100_000 - 50_000 * (number % 3)))
    batch = records.encode_batch(rows, compression=codec)
    header = only_header(records, batch)
    assert records.check_records(batch, header) == header.max_timestamp_ms == max(row[3] for row in rows)
    records.check_stored_records(batch, header)


def test_the_largest_time_is_put_into_the_batch_and_its_checksum_is_right(records: ModuleType) -> None:
    batch = records.encode_batch([(None, b"v", (), T0)], log_append_time_ms=2**63 - 1)
    header = only_header(records, batch)
    records.patch_max_timestamp(batch, header, T0)
    (again,) = records.check_batches(batch, 0, len(batch))
    assert repr(again) == repr(header)
    assert (again.max_timestamp_ms, again.is_log_append_time) == (T0, False)
