"""Consumers in groups, on confluent-kafka, for tests that look at groups from outside."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, TopicPartition

_PATIENCE_S = 60


@contextmanager
def members(
    bootstrap: str, group: str, topics: list[str], *, partitions: int, count: int = 1, **settings: Any
) -> Iterator[list[Consumer]]:
    """`count` consumers that have joined the group and share `partitions` among them; they leave at the end."""
    consumers = [
        Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "client.id": f"till-{number}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        for number in range(count)
    ]
    try:
        for consumer in consumers:
            consumer.subscribe(topics)
        _wait_until_shared(consumers, partitions)
        yield consumers
    finally:
        for consumer in consumers:
            consumer.close()


def commit(bootstrap: str, group: str, offsets: dict[tuple[str, int], int]) -> None:
    """Commits for a group without members, as a consumer that assigns its partitions itself does."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        places = [TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]
        for place in consumer.commit(offsets=places, asynchronous=False):
            assert place.error is None, place
    finally:
        consumer.close()


def _wait_until_shared(consumers: list[Consumer], partitions: int) -> None:
    """Polls, since nobody joins otherwise, until all partitions have an owner and every consumer owns some."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        owned = [len(consumer.assignment()) for consumer in consumers]
        if sum(owned) == partitions and all(owned):
            return
        assert time.monotonic() < deadline, f"{owned} of {partitions} partitions"
        for consumer in consumers:
            consumer.poll(0.05)
