"""What readers of either isolation level see of a partition, and how far those of committed records may read."""

import time

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from .actions import LATEST, Topic, eventually, list_offset, list_offsets
from .conftest import Broker
from .wire import Wire

READ_COMMITTED = 1


def read(broker: Broker, topic: Topic, isolation: str, *, partition: int = 0) -> list[bytes]:
    """All that a consumer of this isolation sees before it is told that this is the end."""
    alone = {"group.id": "unused", "enable.auto.commit": False, "enable.partition.eof": True, "log_level": 0}
    prompt = {"isolation.level": isolation, "fetch.wait.max.ms": 10}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, **prompt, **alone})
    got: list[bytes] = []
    try:
        consumer.assign([TopicPartition(topic.name, partition, 0)])
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                got.append(message.value() or b"")
            elif error.code() == KafkaError._PARTITION_EOF:
                return got
            else:
                raise KafkaException(error)
    finally:
        consumer.close()
    raise AssertionError(f"no end of the partition after {got}")


def both_views(broker: Broker, topic: Topic) -> tuple[list[bytes], list[bytes]]:
    """What is seen by read_committed and by read_uncommitted."""
    return read(broker, topic, "read_committed"), read(broker, topic, "read_uncommitted")


def stable_offset(wire: Wire, topic: Topic) -> int:
    offset: int = list_offset(wire, topic, LATEST, isolation_level=READ_COMMITTED).offset
    return offset


def settle(wire: Wire, *topics: Topic, partitions: int = 1) -> None:
    """Waits until all transactions in the topics have their end markers: a commit returns before that."""
    for topic in topics:
        latest = dict.fromkeys(range(partitions), LATEST)

        def is_stable(name: str = topic.name, asked: dict[int, int] = latest) -> bool:
            stable = list_offsets(wire, name, asked, isolation_level=READ_COMMITTED)
            end = list_offsets(wire, name, asked)
            return all(stable[partition].offset == end[partition].offset for partition in asked)

        eventually(is_stable, f"the end of all transactions in {topic.name}")
