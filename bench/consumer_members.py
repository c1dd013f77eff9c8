"""Members of a group of the new consumer protocol (KIP-848) on the wire, many in one process.

A member heartbeats, takes over the assignment that comes back, and acknowledges it with its next heartbeat at once. It
waits for no timer: `reconcile` lets those heartbeat who may have news, until everybody has what the target says.
"""

import asyncio
import uuid
from typing import Final

from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest, TopicPartitions
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32

from group_wire import AnswerError, Connection, check, int32s, milliseconds

_LEAVE_EPOCH: Final = -1
_MOST_TURNS: Final = 1000


class ConsumerMember:
    """One member: its connection, its epoch, and the partitions that it owns."""

    def __init__(self, connection: Connection, group: str, topic: str) -> None:
        self.owned: set[int] = set()
        self.epoch = 0
        self._connection = connection
        self._group = GroupId(group)
        self._topic = TopicName(topic)
        self._topic_id: uuid.UUID | None = None
        self._member_id = str(uuid.uuid4())

    async def join(self) -> None:
        """The first heartbeat."""
        self.epoch, self.owned = 0, set()
        await self._heartbeat(joins=True)

    async def heartbeat(self) -> None:
        """A heartbeat without news from the member; what comes back is taken over and acknowledged."""
        await self._heartbeat()

    async def leave(self) -> None:
        """Leaves the group."""
        self.epoch = _LEAVE_EPOCH
        await self._heartbeat()
        self._connection.close()

    async def _heartbeat(self, *, joins: bool = False, acknowledges: bool = False) -> None:
        # What has not changed is not said again.
        answer = await self._connection.ask(
            ConsumerGroupHeartbeatRequest(
                group_id=self._group,
                member_id=self._member_id,
                member_epoch=i32(self.epoch),
                rebalance_timeout=milliseconds(60_000 if joins else -1),
                subscribed_topic_names=(self._topic,) if joins else None,
                topic_partitions=self._owned_on_the_wire() if joins or acknowledges else None,
            )
        )
        check(answer.error_code, f"ConsumerGroupHeartbeat ({answer.error_message})")
        self.epoch = answer.member_epoch
        if answer.assignment is None:
            return
        for topic in answer.assignment.topic_partitions:
            self._topic_id = topic.topic_id
        assigned = {number for topic in answer.assignment.topic_partitions for number in topic.partitions}
        if assigned != self.owned:
            self.owned = assigned
            await self._heartbeat(acknowledges=True)

    def _owned_on_the_wire(self) -> tuple[TopicPartitions, ...]:
        if not self.owned:
            return ()
        return (TopicPartitions(topic_id=self._topic_id, partitions=int32s(self.owned)),)


async def reconcile(members: list[ConsumerMember], partitions: int) -> None:
    """Lets members heartbeat, turn by turn, until all are in the newest epoch and own every partition once."""
    for _ in range(_MOST_TURNS):
        newest = max(member.epoch for member in members)
        behind = [member for member in members if member.epoch < newest]
        if not behind:
            owned = sorted(partition for member in members for partition in member.owned)
            if owned == list(range(partitions)):
                return
            # Everybody is in the newest epoch: those wait who have less than their share.
            share = partitions // len(members)
            behind = [member for member in members if len(member.owned) < share] or members
        await asyncio.gather(*(member.heartbeat() for member in behind))
    raise AnswerError(f"a group of {len(members)} has not settled after {_MOST_TURNS} turns")


async def check_stable(connection: Connection, group: str) -> None:
    """Raises unless the broker says that every member has what the target gives it."""
    asked = ConsumerGroupDescribeRequest(group_ids=(GroupId(group),), include_authorized_operations=False)
    (described,) = (await connection.ask(asked)).groups
    check(described.error_code, "ConsumerGroupDescribe")
    if described.group_state != "Stable":
        raise AnswerError(
            f"group {group} has settled by its members' account; the broker calls it {described.group_state}"
        )
