"""The five ways in which applications lose or double records, each shown, and each cured by a setting.

1. The acknowledgement gets lost and the producer sends again: a duplicate. Cure: `enable.idempotence`.
2. A shutdown cuts a batch and the successor sends it from its beginning: duplicates. Cure: a transaction, read with
   `isolation.level=read_committed`.
3. A request fails while `retries` is 0: a loss. Cure: `retries` above 0.
4. A crash after the work and before the commit: work done twice. Cure: output and offsets in one transaction.
5. Auto commit of records that are in hand but not worked on, then a crash: a loss. Cure: offsets are stored when the
   work is done (`enable.auto.offset.store=false`).

A crash is a process that kills itself with SIGKILL exactly where the case has it. The network's faults are
`FlakyProxy`'s. Every case runs against Apache Kafka too: losses and duplicates are the settings', not the broker's.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, NoReturn

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from conformance.actions import create_topic, eventually, unique_name
from conformance.wire import Wire
from headwater.testing import FlakyProxy, LocalBroker
from peers.apache import QUICK_START, ApacheKafka
from peers.presence import require_apache

VALUES = [b"%d" % number for number in range(10)]
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "500"}
# A member that was killed is missed after its session: until then its successor gets no partitions.
SESSION = {"session.timeout.ms": 1500, "heartbeat.interval.ms": 300}

Settings = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A broker that is reached over a network that can be made to fail."""

    network: FlakyProxy

    @property
    def bootstrap(self) -> str:
        return self.network.address

    def topic(self) -> str:
        with Wire(self.bootstrap) as wire:
            return create_topic(wire).name


@pytest.fixture(scope="module", params=["headwater", "apache"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with FlakyProxy() as network:
        settings = {**SETTINGS, "advertised.listeners": f"PLAINTEXT://{network.address}"}
        if request.param == "headwater":
            broker: LocalBroker | ApacheKafka = LocalBroker(config=settings)
        else:
            require_apache()
            broker = ApacheKafka(tmp_path_factory.mktemp("apache"), settings, jvm_options=QUICK_START)
        with broker:
            network.forward_to(broker.port)
            yield Place(network=network)


# What applications do.


def new_producer(bootstrap: str, settings: Settings) -> Producer:
    quick = {"linger.ms": 0, "retry.backoff.ms": 50, "reconnect.backoff.ms": 20, "log_level": 0}
    return Producer({"bootstrap.servers": bootstrap, **quick, **settings})


def send(producer: Producer, topic: str, values: list[bytes]) -> list[bytes]:
    """Sends one after the other, waiting for each. Returns those that the producer gave up."""
    given_up: list[bytes] = []

    def report(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            given_up.append(message.value() or b"")

    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=report)
        assert producer.flush(20) == 0
    return given_up


def new_member(bootstrap: str, topic: str, settings: Settings) -> Consumer:
    """A consumer in the group that is named like its topic."""
    first = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, **SESSION, **first, **settings})
    consumer.subscribe([topic])
    return consumer


def take(consumer: Consumer, count: int) -> list[Message]:
    taken: list[Message] = []
    while len(taken) < count:
        taken += consumer.consume(count - len(taken), timeout=1)
    assert [message.error() for message in taken] == [None] * count
    return taken


def values_in(place: Place, topic: str, isolation_level: str) -> list[bytes | None]:
    """All values of the topic, as a consumer with this isolation level sees them."""
    consumer = Consumer(
        {
            "bootstrap.servers": place.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": isolation_level,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    values: list[bytes | None] = []
    while True:
        (message,) = eventually(lambda: consumer.consume(1, timeout=1), "a record or the end")
        if message.error() is not None:
            consumer.close()
            return values
        values.append(message.value())


def crash() -> NoReturn:
    """The end of a process without a last word."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


def run_until_it_crashes(application: Callable[..., NoReturn], *arguments: object) -> list[bytes]:
    """Runs it in a process of its own, which must kill itself. Returns what it reported to have worked on."""
    processes = multiprocessing.get_context("spawn")
    ours, theirs = processes.Pipe(duplex=False)
    process = processes.Process(target=application, args=(*arguments, theirs), daemon=True)
    process.start()
    theirs.close()
    done: list[bytes] = []
    try:
        while True:
            done.append(ours.recv())
    except EOFError:
        process.join(30)
    finally:
        ours.close()
    assert process.exitcode == -signal.SIGKILL
    process.close()
    return done


# 1. The acknowledgement gets lost.


def send_while_an_acknowledgement_gets_lost(place: Place, settings: Settings) -> list[bytes | None]:
    topic, lost_before = place.topic(), place.network.lost
    producer = new_producer(place.bootstrap, settings)
    assert send(producer, topic, [b"a"]) == []
    place.network.lose_answers("produce")
    assert send(producer, topic, [b"b", b"c"]) == []
    assert place.network.lost == lost_before + 1
    return values_in(place, topic, "read_uncommitted")


def test_a_lost_acknowledgement_doubles_a_record(place: Place) -> None:
    stored = send_while_an_acknowledgement_gets_lost(place, {"enable.idempotence": False})
    assert stored == [b"a", b"b", b"b", b"c"]


def test_idempotence_cures_it(place: Place) -> None:
    stored = send_while_an_acknowledgement_gets_lost(place, {"enable.idempotence": True})
    assert stored == [b"a", b"b", b"c"]


# 2. A shutdown cuts a batch.


def send_half_and_crash(bootstrap: str, topic: str, settings: Settings, _: Connection) -> NoReturn:
    producer = new_producer(bootstrap, settings)
    if "transactional.id" in settings:
        producer.init_transactions(20)
        producer.begin_transaction()
    send(producer, topic, VALUES[:5])
    crash()


@pytest.mark.parametrize("idempotence", [False, True], ids=["plain", "idempotent"])
def test_a_batch_that_was_cut_and_sent_again_is_stored_twice_in_part(place: Place, idempotence: bool) -> None:
    """Idempotence is no cure: the new process is a new producer to the broker."""
    topic, settings = place.topic(), {"enable.idempotence": idempotence}
    run_until_it_crashes(send_half_and_crash, place.bootstrap, topic, settings)
    assert send(new_producer(place.bootstrap, settings), topic, VALUES) == []
    assert values_in(place, topic, "read_uncommitted") == VALUES[:5] + VALUES


def test_a_transaction_cures_it(place: Place) -> None:
    """The successor with the same transactional id ends what its predecessor left open."""
    topic, settings = place.topic(), {"transactional.id": unique_name("sender")}
    run_until_it_crashes(send_half_and_crash, place.bootstrap, topic, settings)
    producer = new_producer(place.bootstrap, settings)
    producer.init_transactions(20)
    producer.begin_transaction()
    assert send(producer, topic, VALUES) == []
    producer.commit_transaction(20)
    assert values_in(place, topic, "read_committed") == VALUES
    assert values_in(place, topic, "read_uncommitted") == VALUES[:5] + VALUES, "what was cut is there, and hidden"


# 3. No second try.


def send_while_a_request_gets_lost(place: Place, settings: Settings) -> tuple[list[bytes], list[bytes | None]]:
    topic, lost_before = place.topic(), place.network.lost
    producer = new_producer(place.bootstrap, {"enable.idempotence": False, **settings})
    assert send(producer, topic, [b"a"]) == []
    place.network.lose_requests("produce")
    given_up = send(producer, topic, [b"b", b"c"])
    assert place.network.lost == lost_before + 1
    return given_up, values_in(place, topic, "read_uncommitted")


def test_without_retries_a_record_gets_lost(place: Place) -> None:
    given_up, stored = send_while_a_request_gets_lost(place, {"retries": 0})
    assert (given_up, stored) == ([b"b"], [b"a", b"c"])


def test_retries_cure_it(place: Place) -> None:
    given_up, stored = send_while_a_request_gets_lost(place, {"retries": 5})
    assert (given_up, stored) == ([], [b"a", b"b", b"c"])


# 4. A crash before the commit.


def copy_and_crash_before_the_commit(bootstrap: str, source: str, sink: str, _: Connection) -> NoReturn:
    consumer, producer = new_member(bootstrap, source, {}), new_producer(bootstrap, {})
    for message in take(consumer, 5):
        send(producer, sink, [message.value() or b""])
    crash()


def test_a_crash_before_the_commit_does_work_twice(place: Place) -> None:
    source, sink = place.topic(), place.topic()
    send(new_producer(place.bootstrap, {}), source, VALUES)
    run_until_it_crashes(copy_and_crash_before_the_commit, place.bootstrap, source, sink)

    consumer, producer = new_member(place.bootstrap, source, {}), new_producer(place.bootstrap, {})
    for message in take(consumer, 10):
        send(producer, sink, [message.value() or b""])
    consumer.commit(asynchronous=False)
    consumer.close()
    assert values_in(place, sink, "read_committed") == VALUES[:5] + VALUES


def copy_in_a_transaction(bootstrap: str, source: str, sink: str, count: int, *, and_crash: bool) -> None:
    """The output and the position in the input are committed in one, or not at all."""
    producer = new_producer(bootstrap, {"transactional.id": sink})
    producer.init_transactions(20)
    consumer = new_member(bootstrap, source, {"isolation.level": "read_committed"})
    producer.begin_transaction()
    for message in take(consumer, count):
        send(producer, sink, [message.value() or b""])
    position = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), 20)
    if and_crash:
        crash()
    producer.commit_transaction(20)
    consumer.close()


def copy_in_a_transaction_and_crash(bootstrap: str, source: str, sink: str, count: int, _: Connection) -> NoReturn:
    copy_in_a_transaction(bootstrap, source, sink, count, and_crash=True)
    raise AssertionError("it was to crash")


def test_output_and_offsets_in_one_transaction_cure_it(place: Place) -> None:
    source, sink = place.topic(), place.topic()
    send(new_producer(place.bootstrap, {}), source, VALUES)
    copy_in_a_transaction(place.bootstrap, source, sink, 2, and_crash=False)
    run_until_it_crashes(copy_in_a_transaction_and_crash, place.bootstrap, source, sink, 5)
    copy_in_a_transaction(place.bootstrap, source, sink, 8, and_crash=False)
    assert values_in(place, sink, "read_committed") == VALUES


# 5. A commit of what is not yet worked on.


def work_on_two_and_crash(
    bootstrap: str, topic: str, settings: Settings, committed_before: int, done: Connection
) -> NoReturn:
    """Has ten records in hand and is through with two of them when the timer has committed and the process dies."""
    consumer = new_member(bootstrap, topic, settings)
    in_hand = take(consumer, 10)
    for message in in_hand[:2]:
        done.send(message.value())
        if not settings["enable.auto.offset.store"]:
            consumer.store_offsets(message)
    partition = TopicPartition(topic, 0)
    eventually(lambda: consumer.committed([partition], 10)[0].offset == committed_before, "the commit")
    crash()


def work_with_auto_commit(place: Place, settings: Settings, *, committed: int, left: int) -> list[bytes | None]:
    """Everything that was worked on, by the one that crashed and by its successor."""
    topic = place.topic()
    send(new_producer(place.bootstrap, {}), topic, VALUES)
    settings = {"enable.auto.commit": True, "auto.commit.interval.ms": 100, **settings}
    done: list[bytes | None] = [
        *run_until_it_crashes(work_on_two_and_crash, place.bootstrap, topic, settings, committed)
    ]
    send(new_producer(place.bootstrap, {}), topic, [b"new"])
    consumer = new_member(place.bootstrap, topic, {})
    done += [message.value() for message in take(consumer, left + 1)]
    consumer.close()
    return done


def test_auto_commit_of_what_was_only_fetched_loses_records(place: Place) -> None:
    done = work_with_auto_commit(place, {"enable.auto.offset.store": True}, committed=10, left=0)
    assert done == [*VALUES[:2], b"new"], "eight records were committed and never worked on"


def test_storing_offsets_when_the_work_is_done_cures_it(place: Place) -> None:
    done = work_with_auto_commit(place, {"enable.auto.offset.store": False}, committed=2, left=8)
    assert done == [*VALUES, b"new"]
