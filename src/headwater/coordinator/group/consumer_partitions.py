"""Sets of partitions by topic id, as consumer groups hold them; records and messages have them topic by topic.

Inside a group a topic's id is a number: an assignment hashes and compares thousands of them, which numbers do several
times faster than UUIDs.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, NewType, Protocol
from uuid import UUID

TopicKey = NewType("TopicKey", int)
"""A topic's id as a number."""


class Partition(NamedTuple):
    """A partition of the topic that has this id."""

    topic: TopicKey
    number: int


_partition: Callable[[tuple[TopicKey, int]], Partition] = functools.partial(tuple.__new__, Partition)
"""Makes a partition without the detour through Python that a named tuple takes: there are thousands."""
Partitions = frozenset[Partition]
NONE: Partitions = frozenset()


class _TopicRow(Protocol):
    """What records and messages agree on: kio's and our own rows are both read."""

    @property
    def topic_id(self) -> UUID | None: ...
    @property
    def partitions(self) -> Sequence[int]: ...


def topic_key(topic_id: UUID) -> TopicKey:
    """What a group calls the topic with this id."""
    return TopicKey(topic_id.int)


@functools.lru_cache(maxsize=10_000)
def topic_id(topic: TopicKey) -> UUID:
    """The id of a topic that a group calls so."""
    return UUID(int=topic)


def from_rows(rows: Iterable[_TopicRow]) -> Partitions:
    """The partitions of all rows; a row without a topic id names nothing."""
    partitions: list[Partition] = []
    for row in rows:
        if row.topic_id is not None:
            topic = topic_key(row.topic_id)
            partitions += [_partition((topic, number)) for number in row.partitions]
    return frozenset(partitions)


@functools.lru_cache(maxsize=1_000)
def all_of(topic: TopicKey, count: int) -> tuple[Partition, ...]:
    """Every partition of a topic that has so many."""
    return tuple([_partition((topic, number)) for number in range(count)])


def by_key(partitions: Iterable[Partition]) -> dict[TopicKey, list[int]]:
    """The numbers of each topic's partitions, rising."""
    topics: dict[TopicKey, list[int]] = {}
    for topic, number in partitions:
        if topic in topics:
            topics[topic].append(number)
        else:
            topics[topic] = [number]
    for numbers in topics.values():
        numbers.sort()
    return topics


def by_topic(partitions: Iterable[Partition]) -> dict[UUID, list[int]]:
    """The same by the topics' ids."""
    return {topic_id(topic): numbers for topic, numbers in by_key(partitions).items()}
