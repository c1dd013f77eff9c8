"""The requests of a member of the classic protocol. Decides nothing."""

from collections.abc import Mapping, Sequence

from headwater.client.client import duration
from headwater.client.consumer.group_protocol import (
    PROTOCOL_TYPE,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from headwater.client.consumer.membership import GroupMetadata
from headwater.client.consumer.settings import ConsumerSettings
from headwater.protocol.kafka_types import i32
from headwater.types import TopicPartition

from kio.schema.heartbeat.v4.request import HeartbeatRequest  # isort: skip
from kio.schema.join_group.v9.request import JoinGroupRequest, JoinGroupRequestProtocol  # isort: skip
from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity  # isort: skip
from kio.schema.sync_group.v5.request import SyncGroupRequest, SyncGroupRequestAssignment  # isort: skip
from kio.schema.types import GroupId  # isort: skip

_LONGEST_REASON = 255


def join(
    member: GroupMetadata, settings: ConsumerSettings, offers: Sequence[tuple[str, Subscription]], *, reason: str
) -> JoinGroupRequest:
    """Asks to be a member of the next generation, with a subscription for each assignor that may be chosen."""
    return JoinGroupRequest(
        group_id=GroupId(member.group_id),
        session_timeout=duration(settings.session_timeout_ms / 1000),
        rebalance_timeout=duration(settings.max_poll_interval_ms / 1000),
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=tuple(
            JoinGroupRequestProtocol(name=name, metadata=encode_subscription(subscription))
            for name, subscription in offers
        ),
        reason=reason[:_LONGEST_REASON],
    )


def sync(
    member: GroupMetadata, assignor: str | None, assignments: Mapping[str, Sequence[TopicPartition]]
) -> SyncGroupRequest:
    """Asks for our part; the leader brings everybody's."""
    return SyncGroupRequest(
        group_id=GroupId(member.group_id),
        generation_id=i32(member.generation_id),
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=assignor,
        assignments=tuple(
            SyncGroupRequestAssignment(member_id=name, assignment=encode_assignment(partitions))
            for name, partitions in assignments.items()
        ),
    )


def heartbeat(member: GroupMetadata) -> HeartbeatRequest:
    """Says that we are there."""
    return HeartbeatRequest(
        group_id=GroupId(member.group_id),
        generation_id=i32(member.generation_id),
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
    )


def leave(member: GroupMetadata, reason: str) -> LeaveGroupRequest:
    """Says that we go."""
    identity = MemberIdentity(member_id=member.member_id, group_instance_id=None, reason=reason[:_LONGEST_REASON])
    return LeaveGroupRequest(group_id=GroupId(member.group_id), members=(identity,))
