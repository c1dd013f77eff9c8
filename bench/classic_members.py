"""Members of a classic group on the wire, many in one process: eager ones and cooperative ones.

A member does what a client does (join, assign if it leads, sync, heartbeat, rejoin), but waits for no timer of its own:
it sends a heartbeat as soon as there may be news, so that what is timed is the broker's share of a rebalance.
"""

import asyncio
import struct
from typing import Final, Literal

from kio.schema.consumer_protocol_assignment.v3.data import ConsumerProtocolAssignment
from kio.schema.consumer_protocol_assignment.v3.data import TopicPartition as AssignedPartitions
from kio.schema.consumer_protocol_subscription.v3.data import ConsumerProtocolSubscription
from kio.schema.consumer_protocol_subscription.v3.data import TopicPartition as OwnedPartitions
from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.join_group.v9.request import JoinGroupRequest, JoinGroupRequestProtocol
from kio.schema.join_group.v9.response import JoinGroupResponse
from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity
from kio.schema.sync_group.v5.request import SyncGroupRequest, SyncGroupRequestAssignment
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32

from group_wire import AnswerError, Connection, check, decode, encode, int32s, milliseconds

Protocol = Literal["range", "cooperative-sticky"]
_PROTOCOL_VERSION: Final = struct.pack(">h", 3)
# Short enough to add little to a rebalance, long enough not to be a load of its own.
_HEARTBEAT_PAUSE_S: Final = 0.005
_SESSION_MS: Final = 45_000
_REJOIN: Final = frozenset({ErrorCode.rebalance_in_progress, ErrorCode.illegal_generation})


class ClassicMember:
    """One member: its connection, its place in the group, and the partitions that it owns."""

    def __init__(self, connection: Connection, group: str, topic: str, partitions: int, protocol: Protocol) -> None:
        self.owned: set[int] = set()
        self.generation = -1
        self.member_id = ""
        self.settled = False
        self.must_rejoin = False
        self.join_sent = asyncio.Event()
        self._connection = connection
        self._group = GroupId(group)
        self._topic = TopicName(topic)
        self._partitions = partitions
        self._protocol = protocol

    async def join(self) -> None:
        """Joins, or joins again, until it has an assignment. `join_sent` tells when the coordinator may know of it."""
        self.join_sent.clear()
        self.settled = False
        while True:
            joined = await self._ask_to_join()
            self.generation = joined.generation_id
            answer = await self._connection.ask(self._sync_request(joined))
            if answer.error_code not in _REJOIN:
                break
        check(answer.error_code, "SyncGroup")
        self._take(_partitions_of(decode(ConsumerProtocolAssignment, answer.assignment, 2)))

    async def notice_and_rejoin(self) -> None:
        """Heartbeats until the coordinator tells of a rebalance, then takes part in it."""
        while not await self.heartbeat():
            await asyncio.sleep(_HEARTBEAT_PAUSE_S)
        await self.join()

    async def heartbeat(self) -> bool:
        """Whether a rebalance is on."""
        answer = await self._connection.ask(
            HeartbeatRequest(group_id=self._group, generation_id=i32(self.generation), member_id=self.member_id)
        )
        if answer.error_code in _REJOIN:
            return True
        check(answer.error_code, "Heartbeat")
        return False

    async def leave(self) -> None:
        """Leaves the group."""
        identity = MemberIdentity(member_id=self.member_id)
        answer = await self._connection.ask(LeaveGroupRequest(group_id=self._group, members=(identity,)))
        check(answer.error_code, "LeaveGroup")
        check(answer.members[0].error_code, "LeaveGroup")
        self._connection.close()

    async def _ask_to_join(self) -> JoinGroupResponse:
        while True:
            asked = self._connection.ask(
                JoinGroupRequest(
                    group_id=self._group,
                    session_timeout=milliseconds(_SESSION_MS),
                    rebalance_timeout=milliseconds(_SESSION_MS),
                    member_id=self.member_id,
                    protocol_type="consumer",
                    protocols=(JoinGroupRequestProtocol(name=self._protocol, metadata=self._subscription()),),
                )
            )
            task = asyncio.ensure_future(asked)
            if self.member_id:
                # The request is on its way once the task has had its first turn.
                await asyncio.sleep(0)
                self.join_sent.set()
            answer: JoinGroupResponse = await task
            if answer.error_code is ErrorCode.member_id_required:
                self.member_id = answer.member_id
                continue
            check(answer.error_code, "JoinGroup")
            return answer

    def _subscription(self) -> bytes:
        eager = self._protocol == "range"
        owned = () if eager else (OwnedPartitions(topic=self._topic, partitions=int32s(self.owned)),)
        subscription = ConsumerProtocolSubscription(
            topics=(self._topic,), owned_partitions=owned, generation_id=i32(-1 if eager else self.generation)
        )
        return _PROTOCOL_VERSION + encode(subscription)

    def _sync_request(self, joined: JoinGroupResponse) -> SyncGroupRequest:
        assignments: dict[str, set[int]] = {}
        if joined.leader == self.member_id:
            owned = {
                member.member_id: _owned_partitions(decode(ConsumerProtocolSubscription, member.metadata, 2))
                for member in joined.members
            }
            assignments = assign(owned, self._partitions)
        return SyncGroupRequest(
            group_id=self._group,
            generation_id=joined.generation_id,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name=self._protocol,
            assignments=tuple(
                SyncGroupRequestAssignment(member_id=member_id, assignment=self._assignment(given))
                for member_id, given in assignments.items()
            ),
        )

    def _assignment(self, partitions: set[int]) -> bytes:
        assigned = (AssignedPartitions(topic=self._topic, partitions=int32s(partitions)),)
        return _PROTOCOL_VERSION + encode(ConsumerProtocolAssignment(assigned_partitions=assigned))

    def _take(self, assigned: set[int]) -> None:
        # A cooperative member gives up what it lost and joins once more, so that somebody else may have it.
        self.must_rejoin = self._protocol == "cooperative-sticky" and bool(self.owned - assigned)
        self.owned = assigned
        self.settled = True


def _partitions_of(assignment: ConsumerProtocolAssignment) -> set[int]:
    return {partition for topic in assignment.assigned_partitions for partition in topic.partitions}


def _owned_partitions(subscription: ConsumerProtocolSubscription) -> set[int]:
    return {partition for topic in subscription.owned_partitions for partition in topic.partitions}


def assign(owned: dict[str, set[int]], partitions: int) -> dict[str, set[int]]:
    """Equal shares; what a member owns and may keep stays with it, and what it must give up goes to nobody yet.

    Eager members own nothing when they join, so that all is given out at once.
    """
    share, more = divmod(partitions, len(owned))
    by_size = sorted(owned, key=lambda member: (-len(owned[member]), member))
    quota = {member: share + (number < more) for number, member in enumerate(by_size)}
    given = {member: set(sorted(owned[member])[: quota[member]]) for member in by_size}
    free = sorted(set(range(partitions)) - set().union(*owned.values()), reverse=True)
    for member in by_size:
        while free and len(given[member]) < quota[member]:
            given[member].add(free.pop())
    return given


def check_shares(members: list[ClassicMember], partitions: int) -> None:
    """Raises unless all members are in one generation and own every partition once."""
    generations = {member.generation if member.settled else -1 for member in members}
    owned = sorted(partition for member in members for partition in member.owned)
    if len(generations) != 1 or owned != list(range(partitions)):
        raise AnswerError(f"{len(members)} members in generations {generations} own {len(owned)} of {partitions}")
