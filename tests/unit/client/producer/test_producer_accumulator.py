"""When batches are ready, in which order they leave, what they cost and what becomes of their handles."""

import gc
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.client.errors import ClosedError, RecordTooLargeError
from headwater.protocol.batches import crc_is_valid, parse_header
from headwater.protocol.record_decoding import decode_records

LONG_AGO_MS = 10**12


def contents(data: memoryview) -> list[tuple[bytes | None, bytes | None, Any, int]]:
    header = parse_header(data, 0, len(data))
    assert crc_is_valid(data, header)
    return [(record.key, record.value, record.headers, record.timestamp_ms) for record in decode_records(data, header)]


def fill(accumulator: Any, topic: str, partition: int, *values: bytes) -> list[Any]:
    queue = accumulator.topic(topic)
    handles = [accumulator.append(queue, partition, None, value, None, 0) for value in values]
    assert None not in handles
    return handles


def drain_all(accumulator: Any, now_ms: int = LONG_AGO_MS) -> list[Any]:
    batches = []
    while ready := accumulator.ready(now_ms):
        batches += [accumulator.drain(queue, now_ms) for queue in ready]
    return batches


def test_a_batch_is_ready_when_it_has_lingered(core: Any) -> None:
    accumulator = core.accumulator_with(linger_ms=5, clock_ms=lambda: 100)
    fill(accumulator, "t", 0, b"v")
    assert accumulator.ready(104) == []
    assert accumulator.next_ready_ms(101) == 105
    assert [(queue.topic, queue.partition) for queue in accumulator.ready(105)] == [("t", 0)]


def test_a_full_batch_does_not_linger(core: Any) -> None:
    accumulator = core.accumulator_with(linger_ms=1000, batch_size=200)
    fill(accumulator, "t", 0, b"v" * 70, b"v" * 70)
    assert accumulator.ready(0), "the second record found no room in it"


def test_next_ready_is_none_when_nothing_waits(core: Any) -> None:
    accumulator = core.accumulator_with()
    assert accumulator.next_ready_ms(0) is None
    fill(accumulator, "t", 0, b"v")
    (queue,) = accumulator.ready(LONG_AGO_MS)
    queue.muted = True
    assert accumulator.next_ready_ms(0) is None
    assert accumulator.ready(LONG_AGO_MS) == []


@pytest.mark.parametrize("hurry", ["flush", "close", "line"])
def test_nothing_lingers_during_a_flush_a_close_or_when_memory_is_short(core: Any, hurry: str) -> None:
    accumulator = core.accumulator_with(linger_ms=1000, buffer_memory=1500)
    fill(accumulator, "t", 0, b"v")
    assert accumulator.ready(0) == []
    if hurry == "flush":
        (pending,) = accumulator.flush_begin()
        assert not pending.wait(0)
    elif hurry == "close":
        accumulator.close()
    else:
        accumulator.line_up(1024)
    assert len(accumulator.ready(0)) == 1
    if hurry == "flush":
        accumulator.flush_end()
        assert accumulator.ready(0) == []


def test_a_closed_accumulator_takes_no_more_records(core: Any) -> None:
    accumulator = core.accumulator_with()
    accumulator.close()
    with pytest.raises(ClosedError, match="closed"):
        accumulator.append(accumulator.topic("t"), 0, None, b"v", None, 0)
    assert accumulator.ready(0) == [], "and the lock was let go"


def test_the_sender_is_woken_once_between_two_looks(core: Any) -> None:
    calls: list[int] = []
    accumulator = core.accumulator_with(wake=lambda: calls.append(1))
    fill(accumulator, "t", 0, b"v")
    fill(accumulator, "t", 1, b"v")
    assert len(calls) == 1
    accumulator.ready(0)
    fill(accumulator, "t", 0, b"v")
    assert len(calls) == 1, "a batch that only grows is no news"
    fill(accumulator, "t", 2, b"v")
    assert len(calls) == 2


def test_partitions_take_turns(core: Any) -> None:
    accumulator = core.accumulator_with(batch_size=100)
    for partition in range(3):
        fill(accumulator, "t", partition, b"v" * 50, b"v" * 50)
    first = [queue.partition for queue in accumulator.ready(0)]
    assert first == [0, 1, 2]
    accumulator.drain(accumulator.ready(0)[0], 0)
    accumulator.flush_begin()
    assert [queue.partition for queue in accumulator.ready(0)] == [1, 2, 0]


def test_a_batch_put_back_waits_longer_after_each_attempt(core: Any) -> None:
    accumulator = core.accumulator_with(retry_backoff_ms=100, retry_backoff_max_ms=250)
    fill(accumulator, "t", 0, b"v")
    (queue,) = accumulator.ready(5)
    now_ms = 5
    for pause_ms in (100, 200, 250, 250):
        batch = accumulator.drain(queue, now_ms)
        accumulator.put_back(batch, now_ms)
        assert accumulator.next_ready_ms(now_ms) == now_ms + pause_ms
        assert accumulator.ready(now_ms + pause_ms - 1) == []
        assert accumulator.drain(queue, now_ms + pause_ms - 1) is None
        now_ms += pause_ms
        assert accumulator.ready(now_ms) == [queue]
    assert batch.attempts == 4


def test_the_pause_before_another_attempt_is_spread_by_chance(core: Any) -> None:
    for chance, pause_ms in ((0.0, 80), (0.5, 100), (0.999999, 119)):
        accumulator = core.accumulator_with(retry_backoff_ms=100, chance=lambda chance=chance: chance)
        fill(accumulator, "t", 0, b"v")
        batch = accumulator.drain(accumulator.ready(5)[0], 5)
        accumulator.put_back(batch, 5)
        assert accumulator.next_ready_ms(5) == 5 + pause_ms


def test_batches_put_back_in_any_order_leave_in_their_own(core: Any) -> None:
    accumulator = core.accumulator_with(batch_size=100)
    fill(accumulator, "t", 0, *(bytes([65 + number]) * 50 for number in range(6)))
    queue = accumulator.ready(LONG_AGO_MS)[0]
    batches = [accumulator.drain(queue, LONG_AGO_MS) for _ in range(4)]
    for index in (2, 0, 3, 1):
        accumulator.put_back(batches[index], 0, backoff_ms=0)
    again = drain_all(accumulator)
    assert [contents(batch.seal())[0][1] for batch in again] == [bytes([65 + number]) * 50 for number in range(6)]


def test_a_batch_too_old_is_taken_out_and_the_younger_stay(core: Any) -> None:
    now = [0]
    accumulator = core.accumulator_with(batch_size=100, clock_ms=lambda: now[0])
    fill(accumulator, "t", 0, b"a" * 50)
    now[0] = 50
    fill(accumulator, "t", 0, b"b" * 50)
    assert accumulator.expired(99, 100) == []
    (old,) = accumulator.expired(100, 100)
    assert contents(old.seal())[0][1] == b"a" * 50
    assert accumulator.pending_batches == 2
    (young,) = accumulator.abandon()
    assert contents(young.seal())[0][1] == b"b" * 50
    assert accumulator.ready(LONG_AGO_MS) == []


def test_no_record_goes_into_a_batch_that_has_left(core: Any) -> None:
    accumulator = core.accumulator_with()
    (first,) = fill(accumulator, "t", 0, b"1")
    (batch,) = drain_all(accumulator)
    accumulator.put_back(batch, 0, backoff_ms=0)
    (second,) = fill(accumulator, "t", 0, b"2")
    assert [(handle.index, handle.delivery is batch.delivery) for handle in (first, second)] == [(0, True), (0, False)]


def test_a_record_larger_than_a_batch_has_one_of_its_own(core: Any) -> None:
    accumulator = core.accumulator_with(batch_size=100)
    fill(accumulator, "t", 0, b"small", b"x" * 500, b"small too")
    values = [[record[1] for record in contents(batch.seal())] for batch in drain_all(accumulator)]
    assert values == [[b"small"], [b"x" * 500], [b"small too"]]


def test_a_record_larger_than_a_request_is_an_error_and_harms_no_other(core: Any) -> None:
    accumulator = core.accumulator_with(max_request_size=1000)
    fill(accumulator, "t", 0, b"small")
    with pytest.raises(RecordTooLargeError, match=r"max\.request\.size is 1000"):
        accumulator.append(accumulator.topic("t"), 0, None, b"x" * 1000, None, 0)
    fill(accumulator, "t", 0, b"small too")
    assert sum(batch.record_count for batch in drain_all(accumulator)) == 2


def test_a_record_larger_than_all_memory_is_an_error_at_once(core: Any) -> None:
    accumulator = core.accumulator_with(buffer_memory=1000, batch_size=100)
    with pytest.raises(RecordTooLargeError, match=r"buffer\.memory is 1000"):
        accumulator.append(accumulator.topic("t"), 0, None, b"x" * 1000, None, 0)


def test_memory_is_counted_by_the_buffers_and_comes_back(core: Any) -> None:
    accumulator = core.accumulator_with(batch_size=64 << 10, buffer_memory=100 << 10)
    fill(accumulator, "t", 0, b"v")
    assert accumulator.used_bytes == 16 << 10
    fill(accumulator, "t", 0, b"v" * (16 << 10))
    assert accumulator.used_bytes == 32 << 10, "the buffer grew with the batch"
    fill(accumulator, "t", 1, b"v")
    fill(accumulator, "t", 2, b"v" * 1000)
    assert accumulator.used_bytes == 64 << 10
    batches = drain_all(accumulator)
    accumulator.done(batches[0], 7)
    assert accumulator.used_bytes == 32 << 10
    accumulator.failed(batches[1], ValueError("no"))
    accumulator.failed(batches[2], ValueError("no"))
    assert accumulator.used_bytes == accumulator.pending_batches == accumulator.pending_records == 0


def test_a_full_accumulator_takes_nothing_until_something_is_settled(core: Any) -> None:
    accumulator = core.accumulator_with(batch_size=1000, buffer_memory=2000)
    queue = accumulator.topic("t")
    fill(accumulator, "t", 0, b"v")
    fill(accumulator, "t", 1, b"v")
    assert accumulator.append(queue, 2, None, b"v", None, 0) is None
    fill(accumulator, "t", 1, b"what fits into a batch that is there needs no memory")
    with accumulator.line_up(1000) as ticket:
        assert not ticket.wait(0)
        accumulator.done(drain_all(accumulator)[0], 0)
        assert ticket.wait(0)
        assert accumulator.append(queue, 2, None, b"v", None, 0) is None, "it is kept for who stood in line"
        assert accumulator.append(queue, 2, None, b"v", None, 0, ticket=ticket) is not None
    assert accumulator.used_bytes == 2000


def test_memory_goes_to_those_who_wait_in_their_order(core: Any) -> None:
    accumulator = core.accumulator_with(batch_size=1000, buffer_memory=2000)
    fill(accumulator, "t", 0, b"v")
    fill(accumulator, "t", 1, b"v")
    large, small = accumulator.line_up(1500), accumulator.line_up(100)
    batches = drain_all(accumulator)
    accumulator.done(batches[0], 0)
    assert (large.granted, small.granted) == (False, False), "the small one does not overtake the large one"
    accumulator.done(batches[1], 0)
    assert (large.granted, small.granted) == (True, True)
    for ticket in (large, small):
        ticket.__exit__()
    assert accumulator.used_bytes == 0


def test_who_leaves_the_line_holds_nobody_up(core: Any) -> None:
    accumulator = core.accumulator_with(batch_size=1000, buffer_memory=1000)
    fill(accumulator, "t", 0, b"v")
    with accumulator.line_up(1000) as first:
        second = accumulator.line_up(500)
        assert not first.wait(0.001)
    accumulator.done(drain_all(accumulator)[0], 0)
    assert second.granted
    assert not first.granted


@pytest.mark.parametrize("compression", range(5), ids=["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_sealed_batch_is_what_was_appended(core: Any, compression: int) -> None:
    accumulator = core.accumulator_with(compression=compression, batch_size=10_000)
    queue = accumulator.topic("t")
    records = [
        (
            b"k" * (number % 3) or None,
            None if number % 7 == 0 else b"v" * number,
            (("h", b"x"), ("i", None)),
            1000 - number,
        )
        for number in range(100)
    ]
    for record in records:
        accumulator.append(queue, 0, *record)
    (batch,) = drain_all(accumulator)
    data = batch.seal(7, 1, 42, transactional=True)
    header = parse_header(data, 0, len(data))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 42)
    assert (header.attributes, header.records_count, batch.record_count) == (compression | 0x10, 100, 100)
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (1000, 1000)
    assert contents(data) == records
    assert batch.size_bytes == len(data)

    again = batch.seal(8, 2, 5)
    header = parse_header(again, 0, len(again))
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.attributes) == (
        8,
        2,
        5,
        compression,
    )
    assert contents(again) == records


@pytest.mark.parametrize("compression", [0, 4], ids=["none", "zstd"])
def test_a_batch_too_large_for_the_broker_goes_on_in_halves(core: Any, compression: int) -> None:
    accumulator = core.accumulator_with(compression=compression, batch_size=10_000)
    outcomes: list[tuple[Any, Any]] = []
    queue = accumulator.topic("t")
    handles = [
        accumulator.append(
            queue, 0, None, bytes([number]) * 20, [("h", b"x")], number, lambda *got: outcomes.append(got)
        )
        for number in range(9)
    ]
    (batch,) = drain_all(accumulator)
    batch.seal(7, 1, 2**31 - 3)
    first, second = accumulator.split(batch)
    assert (first.record_count, second.record_count) == (4, 5)
    assert (first.base_sequence, second.base_sequence) == (2**31 - 3, 1), "sequences go on from 2**31 - 1 to 0"
    assert accumulator.used_bytes == first.capacity_bytes + second.capacity_bytes
    assert not handles[0].done()
    assert drain_all(accumulator, 0)[0] is first, "the first half is ready at once, and the second after it"
    sealed = [contents(part.seal(7, 1, part.base_sequence)) for part in (first, second)]
    assert sealed[0] + sealed[1] == [(None, bytes([number]) * 20, (("h", b"x"),), number) for number in range(9)]

    accumulator.done(second, 100)
    accumulator.failed(first, ValueError("refused"), {1: KeyError("mine")})
    assert [handle.result().offset for handle in handles[4:]] == [100, 101, 102, 103, 104]
    assert [repr(handle.exception()) for handle in handles[:3]] == [
        "ValueError('refused')",
        "KeyError('mine')",
        "ValueError('refused')",
    ]
    assert [metadata and metadata.offset for _, metadata in outcomes] == [100, 101, 102, 103, 104] + [None] * 4
    assert accumulator.used_bytes == accumulator.pending_batches == 0


def test_one_record_cannot_be_halved(core: Any) -> None:
    accumulator = core.accumulator_with()
    fill(accumulator, "t", 0, b"v")
    (batch,) = drain_all(accumulator)
    assert accumulator.split(batch) == []
    accumulator.failed(batch, ValueError("too large"))


def test_a_batch_is_settled_once(core: Any) -> None:
    accumulator = core.accumulator_with()
    fill(accumulator, "t", 0, b"v")
    (batch,) = drain_all(accumulator)
    accumulator.done(batch, 0)
    with pytest.raises(KeyError):
        accumulator.failed(batch, ValueError("late"))


def test_many_threads_append_while_one_drains(core: Any) -> None:
    """Nothing is lost, doubled or reordered within a thread's records, and memory stays below its bound."""
    accumulator = core.accumulator_with(batch_size=2000, buffer_memory=40_000, linger_ms=0)
    per_thread, threads = 2000, 4
    problems: list[BaseException] = []
    drained: dict[int, list[Any]] = {0: [], 1: []}

    def append(name: int) -> None:
        queue = accumulator.topic("t")
        try:
            for number in range(per_thread):
                value = b"%d %d" % (name, number)
                handle = accumulator.append(queue, number % 2, None, value, None, number)
                while handle is None:
                    with accumulator.line_up(2000) as ticket:
                        assert ticket.wait(20)
                        handle = accumulator.append(queue, number % 2, None, value, None, number, ticket=ticket)
        except BaseException as error:
            problems.append(error)

    workers = [threading.Thread(target=append, args=(name,)) for name in range(threads)]
    for worker in workers:
        worker.start()
    count = 0
    while count < per_thread * threads and not problems:
        for queue in accumulator.ready(LONG_AGO_MS):
            batch = accumulator.drain(queue, LONG_AGO_MS)
            drained[batch.partition] += [record[1] for record in contents(batch.seal())]
            count += batch.record_count
            assert accumulator.used_bytes <= 40_000
            accumulator.done(batch, 0)
    for worker in workers:
        worker.join(20)
    assert problems == []
    assert accumulator.used_bytes == accumulator.pending_batches == 0
    for partition, values in drained.items():
        for name in range(threads):
            numbers = [int(value.split()[1]) for value in values if value.split()[0] == b"%d" % name]
            assert numbers == list(range(partition, per_thread, 2))


class SendsWhenItGoes:
    """An object in a circle, so that only the garbage collector ends it, whose finalizer sends."""

    def __init__(self, accumulator: Any, outcomes: list[object]) -> None:
        self.accumulator, self.outcomes, self.circle = accumulator, outcomes, self

    def __del__(self) -> None:
        try:
            queue = self.accumulator.topic("t")
            self.outcomes.append(self.accumulator.append(queue, 0, None, b"last words", None, 0))
        except RuntimeError as error:
            self.outcomes.append(error)


def test_a_finalizer_may_send_in_the_midst_of_a_send(core: Any) -> None:
    """It runs wherever the garbage collector is called; here, as often as can be."""
    accumulator = core.accumulator_with(batch_size=150, buffer_memory=1 << 24)
    outcomes: list[object] = []
    sent = 2000

    def send() -> None:
        thresholds = gc.get_threshold()
        gc.set_threshold(1)
        try:
            for number in range(sent):
                SendsWhenItGoes(accumulator, outcomes)
                fill(accumulator, "t", 0, b"%d" % number)
                accumulator.ready(0)
        finally:
            gc.set_threshold(*thresholds)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "it waits for itself"
    gc.collect()
    assert len(outcomes) == sent
    refused = sum(isinstance(outcome, RuntimeError) for outcome in outcomes)
    assert refused == 0 or core.accumulator.__file__.endswith(".py")
    records = [record[1] for batch in drain_all(accumulator) for record in contents(batch.seal())]
    assert [value for value in records if value != b"last words"] == [b"%d" % number for number in range(sent)]
    assert records.count(b"last words") == sent - refused


RECORDS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=40),
        st.none() | st.binary(max_size=200),
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3).map(tuple),
        st.integers(0, 2**62),
    ),
    min_size=1,
    max_size=30,
)


@settings(deadline=None)
@given(records=RECORDS, batch_size=st.integers(1, 2000))
def test_whatever_is_appended_comes_out_in_order_and_within_the_batch_size(
    both_cores: list[Any], records: list[Any], batch_size: int
) -> None:
    for core in both_cores:
        accumulator = core.accumulator_with(batch_size=batch_size)
        queue = accumulator.topic("t")
        for record in records:
            accumulator.append(queue, 0, *record)
        batches = drain_all(accumulator)
        sealed = [batch.seal() for batch in batches]
        assert [record for data in sealed for record in contents(data)] == records
        assert all(
            len(data) <= batch_size or batch.record_count == 1 for data, batch in zip(sealed, batches, strict=True)
        )
