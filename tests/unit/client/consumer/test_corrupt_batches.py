"""What cannot be read stops a reader with an error that says where, or is skipped: all else is handed out, once."""

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fetched_logs import ABORT, COMMIT, batch, marker, resealed
from headwater.client.consumer.corrupt_batches import CorruptBatch, ReadingRules
from headwater.client.consumer.prefetch import Chunk, Prefetched, read_columns
from headwater.client.consumer.resets import EARLIEST
from headwater.client.consumer.subscription import Position, SubscriptionState
from headwater.client.errors import CorruptRecordError, RecordError
from headwater.types import TopicPartition

Form = Callable[[str], ModuleType]
PLACE = TopicPartition("orders", 3)
LIMIT_BYTES = 1 << 20


def sound(base: int, count: int = 3, **options: Any) -> bytes:
    return batch(base, [b"%d" % offset for offset in range(base, base + count)], **options)


def changed(encoded: bytes, at: int, layout: str, *numbers: int, sealed: bool = True) -> bytes:
    """With other numbers at a place, and a checksum that agrees."""
    copy = bytearray(encoded)
    struct.pack_into(layout, copy, at, *numbers)
    return resealed(copy) if sealed else bytes(copy)


def with_records(base: int, count: int, section: bytes, codec: int = 0) -> bytes:
    """An honest header over whatever is said to be the records."""
    head = bytearray(sound(base, count)[:61]) + section
    struct.pack_into(">i", head, 8, len(head) - 12)
    struct.pack_into(">h", head, 21, codec)
    return resealed(head)


UNREADABLE = {
    "checksum": lambda base: sound(base)[:-1] + b"?",
    "garbage": lambda base: with_records(base, 3, b"\xff" * 60),
    "gzip": lambda base: with_records(base, 3, b"no gzip at all, no", 1),
    "snappy": lambda base: with_records(base, 3, b"\xff\xff\xff\xff\x0fxx", 2),
    "lz4": lambda base: with_records(base, 3, b"\x04\x22\x4d\x18\x60\x40\x82\xff\xff\xff\x7f", 3),
    "zstd": lambda base: with_records(base, 3, b"\x28\xb5\x2f\xfd\xff\xff\xff\xff", 4),
    "bomb": lambda base: batch(base, [bytes(LIMIT_BYTES * 2)] * 3, compression=4),
    "no such codec": lambda base: changed(sound(base), 21, ">h", 7),
    "two billion records": lambda base: changed(sound(base), 57, ">i", 2**31 - 1),
    "less than no records": lambda base: changed(sound(base), 57, ">i", -1),
    "a negative last offset": lambda base: changed(sound(base), 23, ">i", -2),
    "a last offset far away": lambda base: changed(sound(base), 23, ">i", 2**31 - 1),
    "an old format": lambda base: changed(sound(base), 16, ">b", 1, sealed=False),
}
"""Batches of three offsets of which nothing can be read."""


@dataclass
class Skipped:
    """Takes note of what is skipped."""

    batches: list[CorruptBatch] = field(default_factory=list)

    def __call__(self, found: CorruptBatch) -> None:
        self.batches.append(found)

    @property
    def places(self) -> list[tuple[int, int]]:
        return [(each.first_offset, each.last_offset) for each in self.batches]


def fetched(form: Form, data: bytes, offset: int = 0, *, log_end: int = 9, **options: Any) -> Any:
    options = {"limit_bytes": LIMIT_BYTES, "log_end": log_end, **options}
    return form("records").FetchedBatches("orders", 3, data, 0, len(data), offset, **options)


def all_offsets(batches: Any, by_column: bool) -> list[int]:
    offsets: list[int] = []
    while not batches.exhausted:
        if by_column:
            offsets += batches.take_columns().offsets
        else:
            offsets += [record.offset for record in batches.take(2)]
    return offsets


@pytest.mark.parametrize("kind", UNREADABLE)
@pytest.mark.parametrize("by_column", [False, True])
def test_by_default_it_is_an_error_that_says_where_to_go_on(form: Form, kind: str, by_column: bool) -> None:
    bad = UNREADABLE[kind](3)
    batches = fetched(form, sound(0) + bad + sound(6))
    take = batches.take_columns if by_column else lambda: batches.take(10)
    assert len(take()) == 3
    for _ in range(2):
        with pytest.raises(
            CorruptRecordError, match=r"record 3 of partition orders-3 .*seek to offset 6 to go on"
        ) as e:
            take()
        found = e.value.batch
        assert (found.partition, found.first_offset, found.next_offset) == (PLACE, 3, 6)
        assert (found.raw, found.size_bytes, found.base_offset) == (bad, len(bad), 3)
    assert [record.offset for record in fetched(form, sound(6), 6).take(9)] == [6, 7, 8]


@pytest.mark.parametrize("kind", UNREADABLE)
@pytest.mark.parametrize("by_column", [False, True])
def test_it_can_be_skipped_and_told_of(form: Form, kind: str, by_column: bool) -> None:
    skipped, bad = Skipped(), UNREADABLE[kind](3)
    batches = fetched(form, sound(0) + bad + sound(6), on_corrupt=skipped)
    assert all_offsets(batches, by_column) == [0, 1, 2, 6, 7, 8]
    assert batches.next_offset == batches.end_offset == 9
    assert skipped.places == [(3, 5)]
    assert skipped.batches[0].raw == bad
    assert f"offsets 3 to 5 of partition orders-3 ({len(bad):,} bytes)" in str(skipped.batches[0])


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("by_column", [False, True])
def test_records_before_the_first_unreadable_one_are_handed_out(form: Form, codec: int, by_column: bool) -> None:
    skipped = Skipped()
    claims_more = bytearray(batch(10, [b"x" * 20] * 3, compression=codec))
    struct.pack_into(">i", claims_more, 57, 4)
    struct.pack_into(">i", claims_more, 23, 3)
    bad = resealed(claims_more)
    batches = fetched(form, bad + sound(14), 11, log_end=17, on_corrupt=skipped)
    assert all_offsets(batches, by_column) == [11, 12, 14, 15, 16]
    assert skipped.places == [(13, 13)]
    assert skipped.batches[0].raw == bad


def test_what_is_left_behind_the_last_record_costs_no_record(form: Form) -> None:
    skipped = Skipped()
    bad = with_records(0, 3, sound(0)[61:] + b"more")
    batches = fetched(form, bad + sound(3), on_corrupt=skipped, log_end=6)
    assert all_offsets(batches, False) == [0, 1, 2, 3, 4, 5]
    assert (skipped.batches[0].first_offset, skipped.batches[0].next_offset) == (3, 3)
    alone = fetched(form, bad)
    assert len(alone.take(9)) == 3
    with pytest.raises(CorruptRecordError, match=r"4 bytes are left .*seek to offset 3"):
        alone.take(9)


def test_a_last_offset_that_lies_hides_none_of_the_next_batch(form: Form) -> None:
    """Its records can be read, and yet those of the next batch would be taken for old."""
    skipped = Skipped()
    lies = changed(sound(0), 23, ">i", 4)
    batches = fetched(form, lies + sound(3), on_corrupt=skipped, log_end=6)
    assert all_offsets(batches, False) == [3, 4, 5]
    assert skipped.places == [(0, 2)]
    with pytest.raises(CorruptRecordError, match="claims offsets up to 4, and the next batch begins at 3"):
        fetched(form, lies + sound(3), log_end=6).take(9)


def test_a_claim_beyond_the_end_of_the_log_moves_one_offset_on(form: Form) -> None:
    for claim, log_end, goes_to in ((2**31 - 1, 3, 1), (2, 3, 3), (2**31 - 1, -1, 2**31), (-5, 3, 1)):
        bad = changed(UNREADABLE["checksum"](0), 23, ">i", claim, sealed=False)
        batches = fetched(form, bad, log_end=log_end, on_corrupt=Skipped())
        assert batches.take(9) == []
        assert (batches.next_offset, batches.end_offset, batches.exhausted) == (goes_to, goes_to, True)


def test_what_is_last_in_an_answer_is_asked_for_again_to_see_what_follows(form: Form) -> None:
    skipped = Skipped()
    bad = UNREADABLE["garbage"](3)
    batches = fetched(form, sound(0) + bad, on_corrupt=skipped, log_end=100)
    assert all_offsets(batches, False) == [0, 1, 2]
    assert (batches.next_offset, skipped.places) == (3, [])
    # The base offset of the next batch is enough, also where it is not whole.
    again = fetched(form, bad + sound(40)[:20], 3, on_corrupt=skipped, log_end=100)
    assert all_offsets(again, True) == []
    assert (again.next_offset, skipped.places) == (40, [(3, 39)])


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 48, 2**20, 2**31 - 1])
def test_a_size_that_lies_ends_the_answer_and_not_the_reading(form: Form, size: int) -> None:
    skipped = Skipped()
    bad = changed(sound(3), 8, ">i", size, sealed=False)
    first = fetched(form, sound(0) + bad + sound(6), on_corrupt=skipped)
    assert (all_offsets(first, False), first.next_offset) == ([0, 1, 2], 3)
    again = fetched(form, bad + sound(6), 3, on_corrupt=skipped)
    assert (all_offsets(again, True), again.next_offset, skipped.places) == ([], 6, [(3, 5)])


def test_a_listener_that_fails_keeps_the_position(form: Form) -> None:
    def refuses(found: CorruptBatch) -> None:
        raise OSError("the disk is full")

    for bad in (UNREADABLE["checksum"](3), with_records(3, 3, sound(3)[61:-4])):
        batches = fetched(form, sound(0) + bad + sound(6), on_corrupt=refuses)
        good = len(batches.take(9))
        for _ in range(2):
            with pytest.raises(RecordError, match=r"listener of corrupt records failed .*the disk is full"):
                batches.take(9)
        assert batches.next_offset == good


def test_an_abort_marker_that_cannot_be_read_hides_no_later_transaction(form: Form) -> None:
    transactional = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    lost = bytearray(marker(1, 7, ABORT))
    lost[-1] ^= 1
    log = batch(0, [b"aborted"], **transactional) + bytes(lost)
    rest = batch(2, [b"committed"], **transactional) + marker(3, 7, COMMIT)
    skipped = Skipped()
    batches = fetched(form, log + rest, aborted=[(7, 0)], on_corrupt=skipped, log_end=4)
    assert all_offsets(batches, False) == []
    assert (batches.next_offset, batches.exhausted, skipped.places) == (2, True, [(1, 1)])
    # The broker names no transaction that was over before what is asked for.
    assert all_offsets(fetched(form, rest, 2, aborted=[], on_corrupt=skipped, log_end=4), False) == [2]


def test_a_marker_with_millions_of_records_is_corrupt_before_they_are_decoded(form: Form) -> None:
    control = batch(1, [bytes(2)] * 500, control=True, producer_id=7, producer_epoch=0, transactional=True)
    first = batch(0, [b"x"], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    batches = fetched(form, first + control, aborted=[(7, 0)], log_end=501)
    with pytest.raises(CorruptRecordError, match="500 records where a marker has one"):
        batches.take(9)


def test_one_take_does_not_open_bomb_after_bomb(form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    module = form("records")
    log = b"".join(batch(offset, [bytes(50_000)], compression=4) for offset in range(10))
    monkeypatch.setattr(module, "COLUMNS_BYTES", 100_000)
    batches = fetched(form, log, log_end=10)
    assert len(batches.take(500)) == 2
    assert batches.opened_bytes < 150_000


# Through the whole of what waits in a consumer: a broker that answers with what it has.


class Broker:
    """A partition whose batches are harmed on the way; where they truly begin and end, it knows."""

    def __init__(self, batches: list[tuple[int, int, bytes]], answer_bytes: int) -> None:
        self.batches = batches
        self.end = batches[-1][1] if batches else 0
        self.answer_bytes = answer_bytes

    def fetch(self, offset: int) -> bytes:
        """From the batch that holds the offset on, cut somewhere; the first is always whole."""
        found = [data for _, end, data in self.batches if end > offset]
        if not found:
            return b""
        return b"".join(found)[: max(self.answer_bytes, len(found[0]))]


@settings(deadline=None, max_examples=300)
@given(
    harm=st.lists(st.sampled_from([*UNREADABLE, None, None, None, "bytes"]), min_size=1, max_size=8),
    changes=st.lists(st.tuples(st.integers(17, 2**12), st.integers(0, 255)), min_size=1, max_size=3),
    answer_bytes=st.integers(1, 1000),
    ahead=st.integers(1, 3),
    by_column=st.booleans(),
)
def test_every_batch_that_can_be_read_is_handed_out_once_and_all_others_are_told_of(
    harm: list[str | None], changes: list[tuple[int, int]], answer_bytes: int, ahead: int, by_column: bool
) -> None:
    log: list[tuple[int, int, bytes]] = []
    for number, kind in enumerate(harm):
        base = 3 * number
        data = sound(base) if kind in (None, "bytes") else UNREADABLE[str(kind)](base)
        if kind == "bytes":
            harmed = bytearray(data)
            for at, octet in changes:
                harmed[17 + at % (len(data) - 17)] ^= octet or 1
            data = bytes(harmed)
        log.append((base, base + 3, data))
    broker = Broker(log, answer_bytes)
    skipped = Skipped()
    rules = ReadingRules(limit_bytes=LIMIT_BYTES, skip=skipped)
    subscription = SubscriptionState(EARLIEST)
    prefetched = Prefetched(subscription)
    subscription.assign([PLACE])
    subscription.seek(PLACE, Position(0))
    found: list[int] = []
    fetches = 0

    def position() -> int:
        known = subscription.assigned[PLACE].position
        assert known is not None
        return known.offset

    while position() < broker.end:
        prefetched.drop_stale()
        for _ in range(ahead):
            offset = prefetched.fetch_from(PLACE, position())
            data = broker.fetch(offset)
            if not data or not prefetched.ends_surely(PLACE):
                break
            chunk = Chunk.of(PLACE, offset, memoryview(data), rules=rules, log_end=broker.end)
            assert chunk is not None
            prefetched.add(PLACE, chunk)
            fetches += 1
        if by_column:
            parts = prefetched.hand_out_columns(read_columns(prefetched.claim_columns()))
            found += [offset for _, _, columns in parts for offset in columns.offsets]
        else:
            found += [record.offset for record in prefetched.take(4)]
        assert fetches < 20 * len(harm) * ahead
    readable = [
        offset for (base, end, _), kind in zip(log, harm, strict=True) if kind is None for offset in range(base, end)
    ]
    assert found == sorted(set(found))
    assert set(readable) <= set(found)
    told = {offset for each in skipped.batches for offset in range(each.first_offset, each.next_offset)}
    assert told == set(range(broker.end)) - set(found)
