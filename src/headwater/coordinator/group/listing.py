"""How groups are shown: in ListGroups, and classic ones in DescribeGroups."""

from headwater.coordinator.group.classic_group import ClassicGroup
from headwater.coordinator.group.classic_states import ClassicState
from headwater.coordinator.group.group import Group
from headwater.protocol.kafka_types import ErrorCode

from kio.schema.describe_groups.v6.response import DescribedGroup, DescribedGroupMember  # isort: skip
from kio.schema.list_groups.v5.response import ListedGroup  # isort: skip
from kio.schema.types import GroupId  # isort: skip

_FIRST_WITH_NOT_FOUND = 6


def listed(group: Group) -> ListedGroup:
    """One line of a list of groups."""
    return ListedGroup(
        group_id=GroupId(group.group_id),
        protocol_type=group.protocol_type or "",
        group_state=group.state_name,
        group_type=group.kind,
    )


def described(group: ClassicGroup) -> DescribedGroup:
    """A classic group with its members; what they read can be told only while it is Stable."""
    is_stable = group.state is ClassicState.STABLE
    return DescribedGroup(
        error_code=ErrorCode.none,
        group_id=GroupId(group.group_id),
        group_state=group.state_name,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if is_stable else "",
        members=tuple(
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=(member.metadata(group.protocol) or b"") if is_stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ),
    )


def described_as_absent(group_id: str, message: str, version: int) -> DescribedGroup:
    """A group that is not there: Dead, and from v6 on an error."""
    is_error = version >= _FIRST_WITH_NOT_FOUND
    return DescribedGroup(
        error_code=ErrorCode.group_id_not_found if is_error else ErrorCode.none,
        error_message=message if is_error else None,
        group_id=GroupId(group_id),
        group_state=ClassicState.DEAD.value,
        protocol_type="",
        protocol_data="",
        members=(),
    )
