"""A load for exactly-once tests: a group of workers that copies one topic to another, transaction by transaction.

Each worker is a thread with a consumer and a transactional producer of its own (confluent-kafka). Whatever goes wrong,
a worker begins a new life: its transactional id ends what it left open, and the group's offsets say where to go on.
"""

import threading
from collections.abc import Callable
from enum import Enum
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

RECORDS_PER_TRANSACTION = 10
# How the client writes down that it is in no generation; offsets sent with it would not be checked by the broker.
_NO_GENERATION = b"CGMDv2:\xff\xff\xff\xff"
# Clients that notice soon that a broker is back.
IMPATIENT = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    # librdkafka 2.16 forgets its brokers when all are down, and then waits for ever for the coordinator that it knew.
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}


class Doing(Enum):
    """What a worker is at."""

    REBALANCING = "waits for its partitions"
    READING = "waits for records"
    WRITING = "has a transaction open"


class Worker(threading.Thread):
    """Copies records from `source` to the same partition of `sink` until told to stop."""

    def __init__(self, group: "CopyingGroup", number: int) -> None:
        super().__init__(name=f"worker-{number}", daemon=True)
        self.doing = Doing.REBALANCING
        self.lives = 0
        self.copied = 0
        self._group = group
        self._transactional_id = f"{group.name}-{number}"
        self._leave = threading.Event()

    def rejoin(self) -> None:
        """Asks the worker to leave the group and to come back; a transaction that is open then stays without an end."""
        self._leave.set()

    def run(self) -> None:
        """One life after the other."""
        while not self._group.stopping.is_set():
            self.lives += 1
            self._leave.clear()
            self._now(Doing.REBALANCING)
            try:
                self._live()
            except KafkaException as failure:
                self._group.failures.append(str(failure.args[0]))

    def _now(self, doing: Doing) -> None:
        with self._group.changed:
            self.doing = doing
            self._group.changed.notify_all()

    def _live(self) -> None:
        group = self._group
        producer = Producer(
            {**group.client, "transactional.id": self._transactional_id, "transaction.timeout.ms": 10_000}
        )
        self._insist(producer.init_transactions)
        consumer = Consumer({**group.client, **group.member})
        try:
            consumer.subscribe(
                [group.source],
                on_assign=lambda *_: self._now(Doing.READING),
                on_revoke=lambda *_: self._now(Doing.REBALANCING),
            )
            while not (group.stopping.is_set() or self._leave.is_set()):
                messages = consumer.consume(RECORDS_PER_TRANSACTION, timeout=0.1)
                for error in filter(None, map(Message.error, messages)):
                    raise KafkaException(error)
                if messages:
                    self._copy(producer, consumer, messages)
        finally:
            consumer.close()

    def _copy(self, producer: Producer, consumer: Consumer, messages: list[Message]) -> None:
        membership = consumer.consumer_group_metadata()
        if bytes(membership).startswith(_NO_GENERATION):
            return
        self._now(Doing.WRITING)
        producer.begin_transaction()
        try:
            for message in messages:
                producer.produce(self._group.sink, message.value(), partition=message.partition() or 0)
            position = consumer.position(consumer.assignment())
            self._insist(lambda: producer.send_offsets_to_transaction(position, membership, 5))
            if self._leave.is_set():
                producer.flush(5)
                return
            self._insist(producer.commit_transaction)
        except KafkaException as failure:
            if failure.args[0].txn_requires_abort():
                self._insist(producer.abort_transaction)
            raise
        self.copied += len(messages)
        self._now(Doing.READING)

    def _insist(self, call: Callable[..., object]) -> None:
        """Calls until it is done; what cannot be tried again is raised, and anything once the group stops."""
        while True:
            try:
                call()
            except KafkaException as failure:
                if self._group.stopping.is_set() or not failure.args[0].retriable():
                    raise
            else:
                return


class CopyingGroup:
    """All workers, and what they are at. As a context it lets them work, and at its end finish what they are at."""

    def __init__(self, bootstrap: str, source: str, sink: str, *, partitions: int, workers: int, **member: Any) -> None:
        self.name, self.source, self.sink = f"{source}-to-{sink}", source, sink
        self.start = [TopicPartition(source, partition, 0) for partition in range(partitions)]
        self.client = {"bootstrap.servers": bootstrap, **IMPATIENT}
        self.member = {
            "group.id": self.name,
            # librdkafka 2.16 goes to the beginning of a partition that has a committed offset in two cases: it asked a
            # leader for the beginning twice while that was restarted, and the second answer comes when records were
            # read; its assignment changed while the offset was unstable. So the group is given its first offsets, and
            # who does not know where to go on begins a new life.
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 50,
            **member,
        }
        self.stopping = threading.Event()
        self.changed = threading.Condition()
        self.failures: list[str] = []
        self.workers = [Worker(self, number) for number in range(workers)]

    @property
    def copied(self) -> int:
        """How many records the workers know to be copied."""
        return sum(worker.copied for worker in self.workers)

    def some(self, doing: Doing) -> bool:
        """Whether one of the workers is at this now."""
        return any(worker.doing is doing for worker in self.workers)

    def wait_until(self, condition: Callable[[], bool], what: str, timeout_s: float = 30) -> None:
        """Returns as soon as it holds; looks whenever a worker begins something else."""
        with self.changed:
            if not self.changed.wait_for(condition, timeout_s):
                states = ", ".join(f"{worker.name} {worker.doing.value}" for worker in self.workers)
                raise AssertionError(f"{what}: not within {timeout_s} s; {states}; {self.failures[-5:]}")

    def __enter__(self) -> Self:
        starter = Consumer({**self.client, "group.id": self.name})
        starter.commit(offsets=self.start, asynchronous=False)
        starter.close()
        for worker in self.workers:
            worker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopping.set()
        if error is None:
            for worker in self.workers:
                worker.join(30)
                assert not worker.is_alive(), f"{worker.name} does not end; it {worker.doing.value}"
