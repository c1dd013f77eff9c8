"""Where `send` puts a record: bytes, partition, time, and who is asked when it cannot be done at once."""

import asyncio
import enum
from collections import Counter
from typing import Any

import pytest

from headwater.protocol.batches import parse_header
from headwater.protocol.record_decoding import decode_records


class Sending:
    """A sender over topic `t` of some partitions, whose clock stands at 777."""

    def __init__(self, core: Any, partitions: int = 12, *, batch_size: int = 1024, **settings: Any) -> None:
        memory = settings.pop("buffer_memory", 1 << 20)
        self.accumulator = core.accumulator_with(batch_size=batch_size, buffer_memory=memory)
        self.held: list[Any] = []
        self.sender = core.sending.RecordSender(
            self.accumulator, **({"hold_back": self.held.append, "clock_ms": lambda: 777} | settings)
        )
        if partitions:
            self.sender.set_partitions("t", partitions)

    def records(self) -> dict[int, list[Any]]:
        """What was sent, by partition."""
        found: dict[int, list[Any]] = {}
        while ready := self.accumulator.ready(10**9):
            for queue in ready:
                data = self.accumulator.drain(queue, 10**9).seal()
                found.setdefault(queue.partition, []).extend(decode_records(data, parse_header(data, 0, len(data))))
        return found


def test_str_and_bytes_and_nothing_are_keys_and_values(core: Any) -> None:
    sending = Sending(core, 1)
    for content in ("süß", b"\x00", bytearray(b"array"), memoryview(b"view"), "", None):
        sending.sender.send("t", content, key=content)
    expected = ["süß".encode(), b"\x00", b"array", b"view", b"", None]
    assert [(record.key, record.value) for record in sending.records()[0]] == [(each, each) for each in expected]


@pytest.mark.parametrize("content", [7, 1.5, ["a"], object()])
def test_anything_else_needs_a_serializer(core: Any, content: Any) -> None:
    with pytest.raises(TypeError, match="serializer"):
        Sending(core).sender.send("t", content)


def test_the_time_is_now_or_the_one_given(core: Any) -> None:
    sending = Sending(core, 1)
    sending.sender.send("t", "now")
    sending.sender.send("t", "then", timestamp_ms=5)
    assert [record.timestamp_ms for record in sending.records()[0]] == [777, 5]
    with pytest.raises(ValueError, match="-1 is no time"):
        sending.sender.send("t", "never", timestamp_ms=-1)


def test_without_a_clock_of_its_own_it_is_the_time_of_day(core: Any) -> None:
    import time

    sending = Sending(core, 1, clock_ms=None)
    before_ms = time.time_ns() // 1_000_000
    sending.sender.send("t", "now")
    assert before_ms <= sending.records()[0][0].timestamp_ms <= time.time_ns() // 1_000_000


class Topics(str, enum.Enum):  # noqa: UP042 - str() of a member is not its text, which is the point
    T = "t"


class Numbers(enum.IntEnum):
    TWO = 2


def test_members_of_enumerations_are_the_topics_and_numbers_that_they_are(core: Any) -> None:
    sending = Sending(core, 3)
    sending.sender.send(Topics.T, b"v", partition=Numbers.TWO, timestamp_ms=Numbers.TWO)
    assert [record.timestamp_ms for record in sending.records()[2]] == [2]
    sending.sender.forget("t")
    sending.sender.send(Topics.T, b"v", partition=Numbers.TWO)
    (record,) = sending.held
    assert (type(record.topic), record.topic, type(record.partition), record.partition) == (str, "t", int, 2)


def test_headers_go_with_the_record(core: Any) -> None:
    sending = Sending(core, 1)
    sending.sender.send("t", headers=[("a", b"1"), ("a", None), ("ü", b"")])
    assert sending.records()[0][0].headers == (("a", b"1"), ("a", None), ("ü", b""))


def test_headers_may_be_a_dict_and_text(core: Any) -> None:
    sending = Sending(core, 1)
    sending.sender.send("t", headers={"a": "ü", "b": b"1", "c": None})
    assert sending.records()[0][0].headers == (("a", "ü".encode()), ("b", b"1"), ("c", None))


@pytest.mark.parametrize("headers", [{"a": 5}, [("a", 5)], [(b"a", b"1")], ["a"], 7])
def test_headers_that_are_none_are_refused_in_words(core: Any, headers: Any) -> None:
    sending = Sending(core, 1)
    with pytest.raises(TypeError, match="pairs of a name and its content"):
        sending.sender.send("t", headers=headers)
    assert sending.records() == {}


def test_a_key_goes_where_java_sends_it(core: Any) -> None:
    sending = Sending(core, 12)
    # Printed by Apache Kafka 4.1's own BuiltInPartitioner.partitionForKey.
    for key, partition in ((b"", 9), (b"foobar", 6), ("21", 0), ("user-1234567", 7), ("한글", 1)):
        assert sending.sender.send("t", b"v", key=key).delivery.partition == partition


def test_a_given_partition_is_taken_whatever_the_key(core: Any) -> None:
    sending = Sending(core, 12)
    assert sending.sender.send("t", b"v", key="foobar", partition=3).delivery.partition == 3
    with pytest.raises(ValueError, match="-1 is no partition"):
        sending.sender.send("t", b"v", partition=-1)


def test_records_without_a_key_stay_until_a_batch_is_full(core: Any) -> None:
    turns = iter([0.0, 0.5, 0.9] * 100)
    sending = Sending(core, 3, batch_size=1000, chance=lambda: next(turns), adaptive=False)
    partitions = [sending.sender.send("t", b"v" * 90).delivery.partition for _ in range(27)]
    assert partitions == [0] * 9 + [1] * 9 + [2] * 9
    sizes = [batch.record_count for queue in sending.accumulator.topic("t").partitions for batch in queue.batches]
    assert sizes == [9, 9, 9], "no batch was left half full"
    assert len(sending.accumulator.ready(0)) == 2, "and the full ones do not linger"


def test_records_without_a_key_are_spread_evenly_by_bytes(core: Any) -> None:
    import random

    sending = Sending(core, 4, batch_size=1000, buffer_memory=1 << 30, chance=random.Random(7).random)
    shares: Counter[int] = Counter()
    for number in range(20_000):
        shares[sending.sender.send("t", b"v" * (number % 100)).delivery.partition] += number % 100
        if number % 50 == 0:
            for queue in sending.accumulator.ready(0):
                sending.accumulator.done(sending.accumulator.drain(queue, 0), 0)
    total = sum(shares.values())
    assert all(0.2 * total < share < 0.3 * total for share in shares.values())


def test_a_longer_queue_is_chosen_less_often(core: Any) -> None:
    sending = Sending(core, 2, batch_size=100)
    for _ in range(3):
        sending.sender.send("t", b"x" * 90, partition=0)
    chosen: Counter[int] = Counter()
    for tenth in range(10):
        sender = core.sending.RecordSender(sending.accumulator, hold_back=print, chance=lambda tenth=tenth: tenth / 10)
        sender.set_partitions("t", 2)
        chosen[sender.partition_without_key("t")] += 1
    assert chosen == {0: 2, 1: 8}, "queues of 3 and 0 have weights of 1 and 4"


def test_partitions_without_a_leader_get_no_records_that_could_go_elsewhere(core: Any) -> None:
    for settings in ({}, {"partitioner": "round_robin"}):
        sending = Sending(core, 0, batch_size=100, **settings)
        sending.sender.set_partitions("t", 4, available=[1, 3])
        assert {sending.sender.send("t", b"v" * 90).delivery.partition for _ in range(30)} <= {1, 3}


def test_round_robin_takes_turns_and_ignores_keys(core: Any) -> None:
    sending = Sending(core, 3, partitioner="round_robin")
    partitions = [sending.sender.send("t", b"v", key="same").delivery.partition for _ in range(9)]
    assert Counter(partitions) == {0: 3, 1: 3, 2: 3}
    assert partitions[:3] == partitions[3:6] == partitions[6:]


def test_keys_are_ignored_when_that_is_asked_for(core: Any) -> None:
    sending = Sending(core, 12, ignore_keys=True, chance=lambda: 0.0)
    assert {sending.sender.send("t", b"v", key=str(number)).delivery.partition for number in range(8)} == {0}


def test_an_own_partitioner_chooses(core: Any) -> None:
    asked: list[Any] = []

    def by_length(*question: Any) -> int:
        asked.append(question)
        return len(question[2])

    sending = Sending(core, 3, partitioner=by_length)
    assert sending.sender.send("t", "ab", key="k").delivery.partition == 2
    assert asked == [("t", b"k", b"ab", 3)]
    assert sending.sender.send("t", "abcdef", partition=1).delivery.partition == 1
    with pytest.raises(ValueError, match="chose partition 6 of topic t, which has 3 partitions"):
        sending.sender.send("t", "abcdef")


def test_an_unknown_partitioner_is_an_error(core: Any) -> None:
    with pytest.raises(ValueError, match="no partitioner is called 'random'"):
        Sending(core, partitioner="random")


def test_what_has_no_place_yet_is_held_back_and_placed_later(core: Any) -> None:
    sending = Sending(core, 0)
    sending.sender.send("t", "early", key="foobar", headers=[("h", b"x")], timestamp_ms=9)
    (record,) = sending.held
    assert (record.topic, record.key, record.value, record.partition, record.timestamp_ms) == (
        "t",
        b"foobar",
        b"early",
        None,
        9,
    )
    assert sending.sender.place(record) is None
    assert not sending.sender.knows("t")
    sending.sender.set_partitions("t", 12)
    assert sending.sender.knows("t")
    assert sending.sender.place(record).delivery.partition == 6
    assert sending.records()[6][0].headers == (("h", b"x"),)


def test_a_partition_that_is_not_there_is_held_back_until_it_is(core: Any) -> None:
    sending = Sending(core, 3)
    sending.sender.send("t", "later", partition=3)
    assert len(sending.held) == 1
    assert not sending.sender.knows("t", 3)
    sending.sender.set_partitions("t", 4)
    assert sending.sender.place(sending.held[0]).delivery.partition == 3


def test_a_topic_that_is_forgotten_is_held_back_again(core: Any) -> None:
    sending = Sending(core, 3)
    sending.sender.forget("t")
    sending.sender.send("t", "later")
    assert len(sending.held) == 1


def test_without_memory_a_record_is_held_back_until_there_is_some(core: Any) -> None:
    sending = Sending(core, 3, batch_size=1000, buffer_memory=1000)
    sending.sender.send("t", "a", partition=0)
    sending.sender.send("t", "b", partition=1)
    (record,) = sending.held
    with sending.sender.line_up(record) as ticket:
        assert not ticket.wait(0)
        sending.accumulator.done(sending.accumulator.drain(sending.accumulator.ready(10**9)[0], 10**9), 0)
        assert ticket.wait(0)
        assert sending.sender.place(record, ticket).delivery.partition == 1
    assert sending.accumulator.used_bytes == 1000


def test_who_waits_for_memory_on_an_event_loop_is_told_there(core: Any) -> None:
    sending = Sending(core, 3, batch_size=1000, buffer_memory=1000)
    sending.sender.send("t", "a", partition=0)
    sending.sender.send("t", "b", partition=1)

    async def scenario() -> None:
        with sending.sender.line_up(sending.held[0]) as ticket:
            turn = ticket.future(asyncio.get_running_loop())
            batch = sending.accumulator.drain(sending.accumulator.ready(10**9)[0], 10**9)
            await asyncio.get_running_loop().run_in_executor(None, sending.accumulator.done, batch, 0)
            await asyncio.wait_for(turn, 20)
            assert sending.sender.place(sending.held[0], ticket) is not None
        with sending.sender.line_up(sending.held[0]) as impatient:
            turn = impatient.future(asyncio.get_running_loop())
            turn.cancel()
        assert sending.accumulator.used_bytes == 1000

    asyncio.run(scenario())


def test_what_is_held_back_may_be_awaited(core: Any) -> None:
    async def hold_back(record: Any) -> Any:
        return record.value.decode()

    sending = Sending(core, 0, hold_back=hold_back)
    assert asyncio.run(sending.sender.send("t", "later")) == "later"


def test_prepare_sees_every_record_first(core: Any) -> None:
    def prepare(topic: str, value: Any, key: Any, partition: Any, timestamp_ms: Any, headers: Any) -> tuple[Any, ...]:
        return str(value), key, 2, 40, [("topic", topic.encode())]

    sending = Sending(core, 3, prepare=prepare)
    sending.sender.send("t", 12)
    (record,) = sending.records()[2]
    assert (record.value, record.timestamp_ms, record.headers) == (b"12", 40, (("topic", b"t"),))


def test_while_it_is_refused_nothing_is_sent(core: Any) -> None:
    sending = Sending(core)
    sending.sender.refusal = RuntimeError("fenced")
    with pytest.raises(RuntimeError, match="fenced"):
        sending.sender.send("t", b"v")
    sending.sender.refusal = None
    sending.sender.send("t", b"v")
    assert sum(map(len, sending.records().values())) == 1


def test_on_delivery_is_called_with_the_outcome(core: Any) -> None:
    sending = Sending(core, 1)
    outcomes: list[Any] = []
    handle = sending.sender.send("t", b"v", on_delivery=lambda error, metadata: outcomes.append((error, metadata)))
    sending.accumulator.done(sending.accumulator.drain(sending.accumulator.ready(10**9)[0], 10**9), 3)
    assert outcomes == [(None, handle.result())]
