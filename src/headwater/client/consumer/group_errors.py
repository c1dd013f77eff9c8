"""How a group refuses a consumer, for the user to act on."""

from typing import Final

from headwater.client.errors import ClientError, RefusedError
from headwater.protocol.kafka_types import ErrorCode

_WHAT_TO_DO: Final = {
    ErrorCode.inconsistent_group_protocol: "no assignor suits all members of the group; "
    "give partition.assignment.strategy one that the others have too",
    ErrorCode.invalid_session_timeout: "the brokers do not allow this session.timeout.ms; "
    "see their group.min.session.timeout.ms and group.max.session.timeout.ms",
    ErrorCode.group_max_size_reached: "the group has as many members as the brokers allow",
    ErrorCode.unreleased_instance_id: "a consumer with this group.instance.id is still in the group; "
    "stop it, or give this one an id of its own",
}


def refusal(group_id: str, code: ErrorCode, message: str | None = None) -> RefusedError:
    """The error for a group that does not take a consumer in."""
    return RefusedError(f"joining group {group_id}", code, message or _WHAT_TO_DO.get(code))


class CommitFailedError(ClientError):
    """The commit was refused for good: the partitions belong to somebody else by now."""

    def __init__(self, group_id: str) -> None:
        super().__init__(
            f"group {group_id} has given this consumer's partitions to others, so its offsets cannot be committed: "
            "poll more often, raise max.poll.interval.ms, or lower max.poll.records"
        )


class RebalanceInProgressError(ClientError):
    """The group is rebalancing: poll, so that it can complete, and commit again."""

    def __init__(self, group_id: str) -> None:
        super().__init__(f"group {group_id} is rebalancing: poll, and then commit again what is still assigned")


class FencedInstanceError(ClientError):
    """Another consumer with the same `group.instance.id` has taken this one's place."""

    def __init__(self, group_id: str, instance_id: str | None) -> None:
        super().__init__(
            f"another consumer has joined group {group_id} with group.instance.id {instance_id}: "
            "give every consumer of the group an instance id of its own"
        )
