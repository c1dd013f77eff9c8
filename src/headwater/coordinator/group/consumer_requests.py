"""ConsumerGroupHeartbeat: which requests make sense, what they change, and how they are answered."""

import functools
from collections.abc import Collection
from datetime import timedelta
from typing import Final, cast

from headwater.coordinator.group.consumer_member import AWAY_EPOCH, JOINING_EPOCH, LEAVING_EPOCH, ConsumerMember
from headwater.coordinator.group.consumer_partitions import Partitions, by_topic, from_rows
from headwater.coordinator.group.records import ConsumerMemberValue
from headwater.coordinator.outcome import Caller
from headwater.protocol.errors import ApiError
from headwater.protocol.kafka_types import NO_THROTTLE, ErrorCode, i32, i32Timedelta

from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest  # isort: skip
from kio.schema.consumer_group_heartbeat.v1.response import (  # isort: skip
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

_MILLISECOND: Final = timedelta(milliseconds=1)
_MOST_NAMES: Final = 10_000
_MOST_PARTITIONS: Final = 50_000
"""Of a member, as all that is decided about it is decided in one turn of the event loop."""
_MEMBERS_CHOOSE_IDS: Final = 1
"""Since this version of the API members make up their own ids."""


def check_request(request: ConsumerGroupHeartbeatRequest, version: int, assignors: Collection[str]) -> None:
    """ApiError for a request that makes no sense, whatever the group is like."""
    epoch = request.member_epoch
    _refuse_if(epoch < AWAY_EPOCH, f"{epoch} is no member epoch")
    _refuse_if(
        (version >= _MEMBERS_CHOOSE_IDS or epoch != JOINING_EPOCH) and not request.member_id.strip(),
        "the member id is empty",
    )
    _refuse_if(not request.group_id.strip(), "the group id is empty")
    _refuse_if(request.instance_id is not None and not request.instance_id.strip(), "the instance id is empty")
    _refuse_if(request.rack_id is not None and not request.rack_id.strip(), "the rack id is empty")
    if epoch == JOINING_EPOCH:
        _refuse_if(rebalance_timeout_ms(request) == -1, "a member that joins must name its rebalance timeout")
        _refuse_if(request.topic_partitions != (), "a member that joins must own no partitions, and say so")
        _refuse_if(
            request.subscribed_topic_names is None and request.subscribed_topic_regex is None,
            "a member that joins must subscribe, to topics or with a pattern",
        )
    _refuse_if(epoch == AWAY_EPOCH and request.instance_id is None, "only a member with an instance id can be away")
    names, owned = request.subscribed_topic_names or (), request.topic_partitions or ()
    _refuse_if(len(names) > _MOST_NAMES, f"{len(names)} subscribed topics; {_MOST_NAMES} are allowed")
    _refuse_if(len(owned) > _MOST_NAMES, f"partitions of {len(owned)} topics; {_MOST_NAMES} are allowed")
    _refuse_if(
        sum([len(row.partitions) for row in owned]) > _MOST_PARTITIONS,
        f"more than {_MOST_PARTITIONS} partitions",
    )
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise ApiError(
            ErrorCode.unsupported_assignor,
            f"there is no assignor {request.server_assignor!r}; there are {', '.join(assignors)}",
        )


def _refuse_if(wrong: bool, words: str) -> None:
    if wrong:
        raise ApiError(ErrorCode.invalid_request, words)


def is_leaving(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the member goes, for good or for a while."""
    return request.member_epoch in (LEAVING_EPOCH, AWAY_EPOCH)


def is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the member says all of itself: then it may have missed responses, and is told all of its assignment."""
    subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    said_all = rebalance_timeout_ms(request) != -1 and subscribes and request.topic_partitions is not None
    return request.member_epoch == JOINING_EPOCH or said_all


def rebalance_timeout_ms(request: ConsumerGroupHeartbeatRequest) -> int:
    """How long the member may take to give partitions back; -1 when it does not say."""
    return request.rebalance_timeout // _MILLISECOND


def owned_partitions(request: ConsumerGroupHeartbeatRequest) -> Partitions | None:
    """What the member says to own, None when it does not say."""
    return None if request.topic_partitions is None else from_rows(request.topic_partitions)


def told_by(request: ConsumerGroupHeartbeatRequest, caller: Caller, before: ConsumerMemberValue) -> ConsumerMemberValue:
    """What is known of the member after this request; what it leaves out is as before."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = rebalance_timeout_ms(request)
    says_nothing = (
        names is None
        and regex is None
        and timeout_ms == -1
        and request.instance_id is None
        and request.rack_id is None
        and request.server_assignor is None
    )
    is_known = caller.client_id == before.client_id and caller.host == before.client_host and before.classic is None
    if says_nothing and is_known:
        return before
    return ConsumerMemberValue(
        instance_id=before.instance_id if request.instance_id is None else request.instance_id,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=caller.client_id,
        client_host=caller.host,
        subscribed_topics=before.subscribed_topics if names is None else tuple(sorted(set[str](names))),
        subscribed_regex=before.subscribed_regex if regex is None else regex or None,
        rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=before.server_assignor if request.server_assignor is None else request.server_assignor,
        classic=None,
    )


def missed_response(member: ConsumerMember, epoch: int, owned: Partitions | None) -> bool:
    """Whether the member may be in `epoch` still because the response that told it the next one was lost.

    Then it owns nothing that it should not.
    """
    return epoch == member.previous_epoch < member.epoch and owned is not None and owned <= member.assigned


def check_epoch(member: ConsumerMember, epoch: int, owned: Partitions | None) -> None:
    """ApiError when the member is not where it says to be."""
    if epoch != member.epoch and not missed_response(member, epoch, owned):
        raise ApiError(
            ErrorCode.fenced_member_epoch,
            f"member {member.member_id} is in epoch {member.epoch}, not {epoch}; "
            "it must give up its partitions and join again",
        )


def heartbeat_error(error: ApiError) -> ConsumerGroupHeartbeatResponse:
    """The response to a heartbeat that failed."""
    return ConsumerGroupHeartbeatResponse(
        throttle_time=NO_THROTTLE,
        error_code=error.code,
        error_message=error.message,
        member_epoch=i32(0),
        heartbeat_interval=NO_THROTTLE,
    )


def heartbeat_response(
    member_id: str, epoch: int, *, heartbeat_interval_ms: int = 0, assigned: Partitions | None = None
) -> ConsumerGroupHeartbeatResponse:
    """The response to a heartbeat; `assigned` is told only where it may be news."""
    return ConsumerGroupHeartbeatResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        member_id=member_id,
        member_epoch=cast(i32, epoch),
        heartbeat_interval=_interval(heartbeat_interval_ms),
        assignment=None if assigned is None else _assignment(assigned),
    )


@functools.lru_cache(maxsize=100)
def _interval(milliseconds: int) -> i32Timedelta:
    return i32Timedelta.parse(milliseconds * _MILLISECOND)


@functools.lru_cache(maxsize=1_000)
def _assignment(partitions: Partitions) -> Assignment:
    # Numbers of partitions are in range: they were checked when they came into a topic or a log.
    return Assignment(
        topic_partitions=tuple(
            [
                TopicPartitions(topic_id=topic_id, partitions=cast(tuple[i32, ...], tuple(numbers)))
                for topic_id, numbers in by_topic(partitions).items()
            ]
        )
    )
