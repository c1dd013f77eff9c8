"""Bytes of an enemy: a CorruptBatchError or a right result, nothing else, and the same in both forms."""

import struct
from types import ModuleType
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

T0 = 1_700_000_000_000
LIMIT_BYTES = 1 << 20

octets = st.none() | st.binary(max_size=60)
headers = st.lists(st.tuples(st.text(max_size=5), octets), max_size=3)
rows = st.lists(st.tuples(octets, octets, headers, st.integers(T0, T0 + 999)), min_size=1, max_size=12)
mutations = st.lists(
    st.one_of(
        st.tuples(st.just("flip"), st.integers(0, 2**20), st.integers(0, 7)),
        st.tuples(st.just("set"), st.integers(0, 2**20), st.sampled_from([0, 1, 0x7F, 0x80, 0xFF])),
        st.tuples(st.just("cut"), st.integers(0, 2**20), st.integers(1, 20)),
        st.tuples(st.just("insert"), st.integers(0, 2**20), st.binary(min_size=1, max_size=12)),
        st.tuples(st.just("length"), st.just(8), st.integers(-(2**31), 2**31 - 1)),
        st.tuples(st.just("count"), st.just(57), st.integers(-(2**31), 2**31 - 1)),
        st.tuples(st.just("last delta"), st.just(23), st.integers(-(2**31), 2**31 - 1)),
    ),
    min_size=1,
    max_size=4,
)


def mutated(batch: bytearray, changes: list[tuple[str, int, Any]]) -> bytearray:
    for kind, where, what in changes:
        at = where % len(batch) if batch else 0
        if kind == "insert":
            batch[at:at] = what
        elif kind == "cut":
            del batch[at : at + what]
        elif kind in ("length", "count", "last delta"):
            if len(batch) >= where + 4:
                struct.pack_into(">i", batch, where, what)
        elif batch:
            batch[at] = batch[at] ^ 1 << what if kind == "flip" else what
    return batch


def resealed(batch: bytearray) -> bytearray:
    """With a length and a checksum that agree with the bytes: the enemy knows the format."""
    if len(batch) >= 61:
        struct.pack_into(">i", batch, 8, len(batch) - 12)
        batch[16] = 2
        struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch


def batch_of(body: bytes, count: int, *, last_delta: int | None = None, attributes: int = 0) -> bytearray:
    delta = count - 1 if last_delta is None else last_delta
    head = struct.pack(">qiibIhiqqqhii", 0, 0, 0, 2, 0, attributes, delta, T0, T0, -1, -1, -1, count)
    return resealed(bytearray(head + body))


def outcome(records: ModuleType, batch: bytearray) -> Any:
    """All that can be learnt about the bytes by every function that reads them, or that they are corrupt."""

    def attempt(read: Any) -> Any:
        try:
            return read()
        except records.CorruptBatchError as error:
            return f"corrupt at {error.position}: {error.reason}"

    def contents(header: Any) -> Any:
        decoded = records.decode_records(batch, header, limit_bytes=LIMIT_BYTES)
        return [(r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in decoded]

    def problems(header: Any) -> Any:
        try:
            return records.check_records(batch, header, True, T0, T0 + 500, LIMIT_BYTES)
        except records.RefusedRecordsError as error:
            return error.problems

    def stored(header: Any) -> Any:
        return records.check_stored_records(batch, header, limit_bytes=LIMIT_BYTES)

    def columns() -> Any:
        found = records.decode_columns(batch, 0, len(batch), limit_bytes=LIMIT_BYTES)
        cells = [(found.keys[i], found.values[i], found.headers(i)) for i in range(len(found))]
        return found.offsets.tolist(), found.timestamps_ms.tolist(), cells

    def learnt() -> Any:
        seen: list[Any] = [attempt(columns)]
        for header in records.scan_headers(batch, 0, len(batch)):
            seen += [attempt(lambda h=header: contents(h)), attempt(lambda h=header: problems(h))]
            seen.append(attempt(lambda h=header: stored(h)))
            if isinstance(seen[-2], int):
                assert not isinstance(seen[-3], str), "what may be appended can be read"
            seen.append(attempt(lambda h=header: bytes(records.recompress(batch, h, 0))))
        return seen

    checked = attempt(lambda: [repr(header) for header in records.check_batches(batch, 0, len(batch))])
    return checked, attempt(learnt)


def same_in_both_forms(compiled: ModuleType, plain: ModuleType, batch: bytearray) -> Any:
    expected = outcome(plain, batch)
    assert str(outcome(compiled, batch)) == str(expected)
    return expected


@settings(deadline=None, max_examples=300)
@given(rows=rows, codec=st.integers(0, 4), changes=mutations, knows_format=st.booleans())
def test_a_changed_batch_is_read_right_or_called_corrupt(
    compiled_records: ModuleType,
    plain_records: ModuleType,
    rows: list[Any],
    codec: int,
    changes: list[Any],
    knows_format: bool,
) -> None:
    batch = mutated(compiled_records.encode_batch(rows, compression=codec), changes)
    same_in_both_forms(compiled_records, plain_records, resealed(batch) if knows_format else batch)


@settings(deadline=None, max_examples=300)
@given(
    body=st.binary(max_size=80),
    count=st.integers(0, 8) | st.integers(-(2**31), 2**31 - 1),
    last_delta=st.none() | st.integers(-2, 10),
    attributes=st.integers(0, 127),
)
def test_any_bytes_at_all_are_read_right_or_called_corrupt(
    compiled_records: ModuleType,
    plain_records: ModuleType,
    body: bytes,
    count: int,
    last_delta: int | None,
    attributes: int,
) -> None:
    delta = max(-1, min(count - 1, 2**31 - 1)) if last_delta is None else last_delta
    batch = batch_of(body, count, last_delta=delta, attributes=attributes)
    same_in_both_forms(compiled_records, plain_records, batch)


def decode(records: ModuleType, batch: bytearray) -> Any:
    decoded = records.decode_records(batch, records.parse_header(batch, 0, len(batch)))
    assert [decoded[0].value] == [records.decode_columns(batch, 0, len(batch)).values[0]]
    return decoded


def test_a_number_may_be_longer_than_it_needs_to_be(records: ModuleType) -> None:
    body = bytes.fromhex("a0 80 00 00 80 80 80 80 80 00 80 00 81 00 82 80 00 76 00")
    record = decode(records, batch_of(body, 1))[0]
    assert (record.key, record.value, record.timestamp_ms) == (None, b"v", T0)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("10 00 00 00 01 04 76 76 00 00", "bytes are left"),
        ("0e 00 00 00 01 02 76", "ends within the record"),
        ("10 00 00 00 01 02 76 00 00", "the record is longer than its fields"),
        ("0c 00 00 00 01 02 76 00", "the record is shorter than its fields"),
        ("8e 80 80 80 80 00 00 00 00 01 02 76 00", "a length of six bytes"),
        ("8e 80 80 80 10 00 00 00 01 02 76 00", "a length beyond 32 bits"),
        ("ff ff ff ff 0f 00 00 00 01 02 76 00", "a negative length"),
        ("fe ff ff ff 0f 00 00 00 01 02 76 00", "a length of 2 GiB"),
        ("0e 00 00 00 03 02 76 00", "a key of length -2"),
        ("0e 00 00 00 01 03 76 00", "a value of length -2"),
        ("0e 00 00 00 01 7e 76 00", "a value beyond the record"),
        ("0e 00 00 02 01 02 76 00", "an offset behind the last"),
        ("0e 00 00 01 01 02 76 00", "an offset before the first"),
        ("0e 00 00 00 01 02 76 01", "a negative number of headers"),
        ("0e 00 00 00 01 02 76 7e", "headers that are not there"),
        ("16 00 00 00 01 02 76 fe ff ff ff 0f", "two billion headers"),
        ("12 00 00 00 01 02 76 02 01 00", "a header without a name"),
        ("12 00 00 00 01 02 76 02 00 03", "a header's value of length -2"),
        ("20 00 ff ff ff ff ff ff ff ff ff 01 00 01 02 76 00", "a time before all times"),
        ("22 00 80 80 80 80 80 80 80 80 80 80 00 00 01 02 76 00", "a time of eleven bytes"),
        ("20 00 80 80 80 80 80 80 80 80 80 02 00 01 02 76 00", "a time beyond 64 bits"),
    ],
)
def test_records_that_lie_are_corrupt(records: ModuleType, body: str, why: str) -> None:
    batch = batch_of(bytes.fromhex(body), 1)
    (header,) = records.check_batches(batch, 0, len(batch))
    with pytest.raises(records.CorruptBatchError):
        records.decode_records(batch, header)
    with pytest.raises(records.CorruptBatchError):
        records.decode_columns(batch, 0, len(batch))


def test_the_record_that_the_lies_are_made_from_is_sound(records: ModuleType) -> None:
    assert decode(records, batch_of(bytes.fromhex("0e 00 00 00 01 02 76 00"), 1))[0].value == b"v"


def test_a_count_that_the_bytes_cannot_hold_makes_no_room(records: ModuleType) -> None:
    batch = batch_of(bytes.fromhex("0e 00 00 00 01 02 76 00"), 2**31 - 1)
    with pytest.raises(records.CorruptBatchError, match="2147483647 records in 8 bytes"):
        records.decode_columns(batch, 0, len(batch))


def test_validation_wants_one_offset_after_the_other(records: ModuleType) -> None:
    record = "0e 00 00 {} 01 02 76 00"
    for deltas, message in ((("00", "00"), "record 1 has offset delta 0"), (("02", "00"), "record 0 has")):
        batch = batch_of(bytes.fromhex("".join(record.format(delta) for delta in deltas)), 2)
        (header,) = records.check_batches(batch, 0, len(batch))
        with pytest.raises(records.CorruptBatchError, match=message):
            records.check_records(batch, header)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_bomb_is_corrupt_before_it_goes_off(records: ModuleType, codec: int) -> None:
    batch = records.encode_batch([(None, bytes(4_000_000), (), T0)], compression=codec)
    (header,) = records.check_batches(batch, 0, len(batch))
    assert len(records.decode_records(batch, header)) == 1
    with pytest.raises(records.CorruptBatchError, match="limit"):
        records.decode_records(batch, header, limit_bytes=1_000_000)
    with pytest.raises(records.CorruptBatchError, match="limit"):
        records.decode_columns(batch, 0, len(batch), limit_bytes=1_000_000)
