"""The responses of the classic protocol. Versions are bridged elsewhere."""

from headwater.protocol.kafka_types import NO_THROTTLE, ErrorCode, i32

from kio.schema.heartbeat.v4.response import HeartbeatResponse  # isort: skip
from kio.schema.join_group.v9.response import JoinGroupResponse, JoinGroupResponseMember  # isort: skip
from kio.schema.leave_group.v5.request import MemberIdentity  # isort: skip
from kio.schema.leave_group.v5.response import LeaveGroupResponse, MemberResponse  # isort: skip
from kio.schema.sync_group.v5.response import SyncGroupResponse  # isort: skip

_NO_GENERATION = -1
_LAST_WITHOUT_LEAVERS = 2
"""The last version of LeaveGroup that speaks of one member only."""


def join_error(code: ErrorCode, member_id: str) -> JoinGroupResponse:
    """A join that failed; MEMBER_ID_REQUIRED carries the id to join with."""
    return join_success(
        generation=_NO_GENERATION, protocol_type=None, protocol=None, leader="", member_id=member_id, error_code=code
    )


def join_success(
    *,
    generation: int,
    protocol_type: str | None,
    protocol: str | None,
    leader: str,
    member_id: str,
    members: tuple[JoinGroupResponseMember, ...] = (),
    skip_assignment: bool = False,
    error_code: ErrorCode = ErrorCode.none,
) -> JoinGroupResponse:
    """A member's place in a generation; the leader also gets `members`."""
    return JoinGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=error_code,
        generation_id=i32(generation),
        protocol_type=protocol_type,
        protocol_name=protocol,
        leader=leader,
        skip_assignment=skip_assignment,
        member_id=member_id,
        members=members,
    )


def sync_error(code: ErrorCode) -> SyncGroupResponse:
    """A sync that failed."""
    return SyncGroupResponse(throttle_time=NO_THROTTLE, error_code=code, assignment=b"")


def sync_success(protocol_type: str | None, protocol: str | None, assignment: bytes) -> SyncGroupResponse:
    """A member's assignment."""
    return SyncGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        protocol_type=protocol_type,
        protocol_name=protocol,
        assignment=assignment,
    )


def heartbeat_response(code: ErrorCode) -> HeartbeatResponse:
    """A heartbeat's answer."""
    return HeartbeatResponse(throttle_time=NO_THROTTLE, error_code=code)


def leave_response(members: tuple[MemberResponse, ...], version: int) -> LeaveGroupResponse:
    """What became of each member that was to leave; old versions have one and tell its error as their own."""
    code = members[0].error_code if members and version <= _LAST_WITHOUT_LEAVERS else ErrorCode.none
    return LeaveGroupResponse(throttle_time=NO_THROTTLE, error_code=code, members=members)


def leave_error(code: ErrorCode) -> LeaveGroupResponse:
    """A request to leave that failed as a whole."""
    return LeaveGroupResponse(throttle_time=NO_THROTTLE, error_code=code, members=())


def left(member: MemberIdentity, code: ErrorCode = ErrorCode.none) -> MemberResponse:
    """What became of one member that was to leave."""
    return MemberResponse(member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=code)
