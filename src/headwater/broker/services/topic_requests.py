"""The rules that requests about topics share: names, replicas, sizes, one change at a time.

Only looks; what is found good is done by `topics`.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from headwater.broker.services.turns import Pace, Work
from headwater.cluster.image import topic_name_problem
from headwater.protocol.errors import ApiError, ErrorCode
from headwater.protocol.kafka_types import i32

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

T = TypeVar("T")
_AT_ONCE: Final = 100

MAX_PARTITIONS_PER_REQUEST: Final = 10_000
UNKNOWN_TOPIC: Final = "This server does not host this topic-partition."
UNKNOWN_TOPIC_ID: Final = "This server does not host this topic ID."

_METADATA_LOG: Final = "__cluster_metadata"


async def named_twice(names: Iterable[str], pace: Pace) -> dict[str, None]:
    """The names that occur more than once, in order of appearance."""
    seen: set[str] = set()
    twice: dict[str, None] = {}
    for number, name in enumerate(names):
        if name in seen:
            twice[name] = None
        seen.add(name)
        if not number % _AT_ONCE:
            await pace.pause()
    return twice


def once_by_topic(topics: Iterable[tuple[T, Iterable[i32]]]) -> Work[dict[T, dict[i32, None]]]:
    """Steps to the partitions of each topic that a request names, each once, in order of appearance."""
    found: dict[T, dict[i32, None]] = {}
    for topic, indexes in topics:
        yield None
        known = found.setdefault(topic, {})
        for number, index in enumerate(indexes):
            known[index] = None
            if not number % _AT_ONCE:
                yield None
    return found


def check_topic_name(name: str) -> None:
    """Refuses a name that no topic can have."""
    problem = topic_name_problem(name)
    if problem is not None:
        raise ApiError(ErrorCode.invalid_topic_exception, f"Topic name is invalid: {problem}")


def check_new_topic(broker: "Broker", name: str) -> None:
    """Refuses a name that cannot be given to a new topic: invalid, taken, or too like one that is there."""
    if name == _METADATA_LOG:
        raise ApiError(ErrorCode.invalid_request, f"Creation of internal topic {name} is prohibited.")
    check_topic_name(name)
    if name in broker.topics.by_name:
        raise ApiError(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")
    other = broker.topics.colliding(name)
    if other is not None:
        raise ApiError(ErrorCode.invalid_topic_exception, f"Topic '{name}' collides with existing topic: {other}")


def check_replication_factor(factor: int) -> None:
    """Refuses what one broker cannot give."""
    if factor < 1:
        raise ApiError(
            ErrorCode.invalid_replication_factor,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if factor > 1:
        raise ApiError(
            ErrorCode.invalid_replication_factor,
            f"Unable to replicate the partition {factor} time(s): The target replication factor of {factor}"
            " cannot be reached because only 1 broker(s) are registered.",
        )


def check_replicas(broker: "Broker", broker_ids: Sequence[int]) -> None:
    """Refuses a partition's list of replicas unless it is this broker, once."""
    words = "The manual partition assignment includes"
    if not broker_ids:
        raise ApiError(ErrorCode.invalid_replica_assignment, f"{words} an empty replica list.")
    for broker_id in broker_ids:
        if broker_id != broker.node_id:
            raise ApiError(
                ErrorCode.invalid_replica_assignment,
                f"{words} broker {broker_id}, but no such broker is registered.",
            )
    if len(broker_ids) > 1:
        raise ApiError(ErrorCode.invalid_replica_assignment, f"{words} the broker {broker.node_id} more than once.")


def check_partition_count(partitions: int) -> None:
    """Refuses more partitions than one request may make: a typing error must not fill the disk."""
    if partitions > MAX_PARTITIONS_PER_REQUEST:
        raise ApiError(
            ErrorCode.policy_violation,
            f"Excessively large number of partitions per request: {partitions};"
            f" {MAX_PARTITIONS_PER_REQUEST} are allowed.",
        )
