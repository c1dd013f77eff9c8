"""What a coordinator decides, and the words it shares with whoever runs it.

A shard's method decides: it returns an `Outcome` and changes nothing that a restart must know. The runtime appends the
records, then replays them into the shard, then gives the answers out. What a restart may forget (who waits, when a
session ends) may change while deciding.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NewType, Protocol
from uuid import UUID

from headwater.types import TopicPartition

Waiter = NewType("Waiter", object)
"""Stands for a request that is answered later; only the runtime knows what it is."""


@dataclass(slots=True)
class CoordinatorRecord:
    """One record of an internal topic; without a value it is a tombstone."""

    key: bytes
    value: bytes | None
    meaning: Any = field(default=None, compare=False)
    """What `decode` would read from these bytes, kept by whoever just wrote them: replay need not read them again."""


class ProducerIdentity(NamedTuple):
    """Whose transaction a batch belongs to."""

    producer_id: int
    producer_epoch: int


class Answer(NamedTuple):
    """The response to a request that waited."""

    waiter: Waiter
    response: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks: the version of the API, and what the connection tells."""

    version: int
    client_id: str
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Markers:
    """End markers that a transaction needs in its partitions once its decision is durable."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    partitions: frozenset[TopicPartition]


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a request, or the time, comes to.

    >>> Outcome(response=ErrorCode.none)
    """

    response: Any = None
    """For the caller, once `records` are committed; None when the caller waits or there is none."""
    records: list[CoordinatorRecord] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    """For those who waited, released together with the response."""
    producer: ProducerIdentity | None = None
    """Set for records that are part of a producer's transaction: their batch is transactional."""
    markers: list[Markers] = field(default_factory=list)
    on_failure: Callable[[], "Outcome"] | None = None
    """Puts volatile state right when the records could not be written; everyone in this outcome hears the error."""


class TopicDirectory(Protocol):
    """What a group needs to know of the cluster's topics."""

    def partition_count(self, topic: str) -> int | None:
        """How many partitions a topic has, None when there is no such topic."""

    def topic_id(self, topic: str) -> UUID | None:
        """A topic's id."""

    def topic_name(self, topic_id: UUID) -> str | None:
        """A topic's name."""

    def topics_matching(self, pattern: str) -> tuple[str, ...] | None:
        """The names of all topics that match, in order; None while that is not known yet.

        Whoever runs the shards finds it out, as it may take long, and lets the groups look at their topics again.
        `PatternError` when the text is no pattern.
        """
