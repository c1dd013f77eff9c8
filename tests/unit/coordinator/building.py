"""Plays the runtime of a group shard: decides, appends to a list, replays, gives answers out, and turns the clock."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from headwater.config.broker import BrokerConfig
from headwater.coordinator.group.records import decode
from headwater.coordinator.group.shard import GroupShard
from headwater.coordinator.outcome import Answer, Caller, CoordinatorRecord, Outcome, Waiter
from headwater.coordinator.patterns import compiled
from headwater.protocol.kafka_types import ErrorCode, ProducerId, TopicName, i16, i32, i32Timedelta, i64

from kio.schema.heartbeat.v4.request import HeartbeatRequest  # isort: skip
from kio.schema.join_group.v9.request import JoinGroupRequest, JoinGroupRequestProtocol  # isort: skip
from kio.schema.join_group.v9.response import JoinGroupResponse  # isort: skip
from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity  # isort: skip
from kio.schema.leave_group.v5.response import LeaveGroupResponse  # isort: skip
from kio.schema.offset_commit.v9.request import (  # isort: skip
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.offset_delete.v0.request import (  # isort: skip
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kio.schema.offset_fetch.v9.request import OffsetFetchRequestGroup, OffsetFetchRequestTopics  # isort: skip
from kio.schema.offset_fetch.v9.response import OffsetFetchResponseGroup  # isort: skip
from kio.schema.sync_group.v5.request import SyncGroupRequest, SyncGroupRequestAssignment  # isort: skip
from kio.schema.txn_offset_commit.v5.request import (  # isort: skip
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kio.schema.types import GroupId, TransactionalId  # isort: skip

GROUP = "billing"
DEFAULT_SETTINGS: Mapping[str, Any] = {"group.initial.rebalance.delay.ms": 0}
SESSION_MS = 10_000
REBALANCE_MS = 60_000
START_MS = 1_700_000_000_000
ORDERS_ID = UUID(int=7)


class Topics:
    """A directory of topics that a test may change."""

    def __init__(self) -> None:
        self.partitions = {"orders": 3, "payments": 2}
        self.ids = {"orders": ORDERS_ID, "payments": UUID(int=8)}

    def partition_count(self, topic: str) -> int | None:
        return self.partitions.get(topic)

    def topic_id(self, topic: str) -> UUID | None:
        return self.ids.get(topic)

    def topic_name(self, topic_id: UUID) -> str | None:
        return next((name for name, its_id in self.ids.items() if its_id == topic_id), None)

    def topics_matching(self, pattern: str) -> tuple[str, ...]:
        return tuple(sorted(filter(compiled(pattern).matches, self.partitions)))


@dataclass(frozen=True, slots=True)
class Marker:
    """The end of a transaction, as it stands in the log."""

    producer_id: int
    committed: bool


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A record, as it stands in the log."""

    key: bytes
    value: bytes | None
    producer_id: int


@dataclass(eq=False, slots=True)
class Call:
    """A request and the answers it got: never more than one."""

    answers: list[Any] = field(default_factory=list)
    failed_append: bool = False

    @property
    def waits(self) -> bool:
        return not self.answers and not self.failed_append

    @property
    def response(self) -> Any:
        assert len(self.answers) == 1, f"{len(self.answers)} answers"
        return self.answers[0]

    @property
    def error(self) -> ErrorCode:
        code: ErrorCode = self.response.error_code
        return code


class Driver:
    """A shard with a log that is a list and a clock that a test turns."""

    def __init__(self, **settings: Any) -> None:
        self.config = BrokerConfig.from_values(
            {**DEFAULT_SETTINGS, **{name.replace("_", "."): value for name, value in settings.items()}}
        )
        self.topics = Topics()
        self.log: list[LogRecord | Marker] = []
        self.now_ms = START_MS
        self.fail_appends = False
        self._ids = itertools.count(1)
        self.shard = self._new_shard()
        self.carry_out_all(self.shard.loaded(self.now_ms))

    def _new_shard(self) -> GroupShard:
        return GroupShard(config=lambda: self.config, topics=self.topics, new_id=lambda: f"id{next(self._ids)}")

    def replayed(self) -> GroupShard:
        """Another shard, made from the log alone."""
        shard = self._new_shard()
        for entry in self.log:
            if isinstance(entry, Marker):
                shard.replay_end_marker(entry.producer_id, entry.committed)
            else:
                shard.replay(CoordinatorRecord(entry.key, entry.value), producer_id=entry.producer_id)
        return shard

    def restart(self) -> None:
        """The broker dies and comes back: only the log is left, and nobody who waited is answered."""
        self.shard = self.replayed()
        self.carry_out_all(self.shard.loaded(self.now_ms))

    def configure(self, **settings: Any) -> None:
        self.config = self.config.merge({name.replace("_", "."): value for name, value in settings.items()})

    def written(self) -> list[tuple[Any, Any]]:
        """The keys and values in the log."""
        decoded = (decode(entry.key, entry.value) for entry in self.log if isinstance(entry, LogRecord))
        return [(record[1], record[2]) for record in decoded if record is not None]

    def carry_out(self, outcome: Outcome, call: Call | None = None) -> None:
        answers = list(outcome.answers)
        if call is not None and outcome.response is not None:
            answers.append(Answer(Waiter(call), outcome.response))
        if outcome.records and self.fail_appends:
            for waiter, _ in answers:
                assert isinstance(waiter, Call)
                waiter.failed_append = True
            if outcome.on_failure is not None:
                self.carry_out(outcome.on_failure())
            return
        producer_id = -1 if outcome.producer is None else outcome.producer.producer_id
        for record in outcome.records:
            self.log.append(LogRecord(record.key, record.value, producer_id))
            assert record.meaning in (None, decode(record.key, record.value)), "replay and a restart would differ"
            self.shard.replay(record, producer_id=producer_id)
        for waiter, response in answers:
            assert isinstance(waiter, Call)
            assert not waiter.answers, "answered twice"
            assert not waiter.failed_append, "answered after an error"
            waiter.answers.append(response)

    def carry_out_all(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            self.carry_out(outcome)

    def pass_time(self, ms: int) -> None:
        """Turns the clock, and stops at each deadline on the way."""
        until_ms = self.now_ms + ms
        while (next_ms := self.shard.next_deadline_ms()) is not None and next_ms <= until_ms:
            self.now_ms = max(self.now_ms, next_ms)
            self.carry_out_all(self.shard.on_time(self.now_ms))
        self.now_ms = until_ms

    def join(
        self,
        member_id: str = "",
        *,
        group: str = GROUP,
        instance: str | None = None,
        version: int = 9,
        protocols: Mapping[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        client: str = "c",
    ) -> Call:
        """One JoinGroup, as it is sent."""
        request = JoinGroupRequest(
            group_id=GroupId(group),
            session_timeout=_ms(session_ms),
            rebalance_timeout=_ms(rebalance_ms),
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=tuple(
                JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in (protocols or {"range": subscription("orders")}).items()
            ),
        )
        call = Call()
        caller = Caller(version=version, client_id=client, host="/127.0.0.1")
        self.carry_out(self.shard.join(request, caller, Waiter(call), self.now_ms), call)
        return call

    def enter(self, **options: Any) -> Call:
        """A dynamic member's way in: asks for an id, then joins with it."""
        given = self.join(**options)
        assert given.error is ErrorCode.member_id_required
        return self.join(given.response.member_id, **options)

    def sync(
        self,
        joined: JoinGroupResponse,
        assignments: Mapping[str, bytes] | None = None,
        *,
        group: str = GROUP,
        instance: str | None = None,
        generation: int | None = None,
        protocol_type: str | None = "consumer",
        protocol: str | None = None,
    ) -> Call:
        """One SyncGroup of a member that has joined; with assignments, as the leader sends it."""
        request = SyncGroupRequest(
            group_id=GroupId(group),
            generation_id=i32(joined.generation_id if generation is None else generation),
            member_id=joined.member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol or joined.protocol_name,
            assignments=tuple(
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in (assignments or {}).items()
            ),
        )
        call = Call()
        caller = Caller(version=5, client_id="c", host="/127.0.0.1")
        self.carry_out(self.shard.sync(request, caller, Waiter(call), self.now_ms), call)
        return call

    def stable_group(self, size: int = 1, **options: Any) -> list[JoinGroupResponse]:
        """A group with dynamic members, the leader first; each is assigned its member id as bytes."""
        calls = [self.enter(**options)]
        self.pass_time(self.config.group_initial_rebalance_delay_ms)
        for _ in range(size - 1):
            calls.append(self.enter(**options))
            calls[:-1] = [self.join(call.response.member_id, **options) for call in calls[:-1]]
        members: list[JoinGroupResponse] = [call.response for call in calls]
        group = options.get("group", GROUP)
        self.sync_all(members, group=group)
        return members

    def sync_all(self, members: Sequence[JoinGroupResponse], group: str = GROUP) -> list[Call]:
        """All members ask for their assignment, the leader last."""
        everybody = {member.member_id: member.member_id.encode() for member in members}
        return [
            self.sync(member, everybody if member.member_id == member.leader else None, group=group)
            for member in sorted(members, key=lambda member: member.member_id == member.leader)
        ]

    def heartbeat(
        self, member_id: str, generation: int, *, group: str = GROUP, instance: str | None = None
    ) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=GroupId(group), generation_id=i32(generation), member_id=member_id, group_instance_id=instance
        )
        call = Call()
        caller = Caller(version=4, client_id="c", host="/127.0.0.1")
        self.carry_out(self.shard.heartbeat(request, caller, self.now_ms), call)
        return call.error

    def leave(self, *members: str | tuple[str, str | None], group: str = GROUP, version: int = 5) -> LeaveGroupResponse:
        """LeaveGroup of members, given as ids or as pairs of member id and instance id."""
        pairs = [(member, None) if isinstance(member, str) else member for member in members]
        request = LeaveGroupRequest(
            group_id=GroupId(group),
            members=tuple(
                MemberIdentity(member_id=member_id, group_instance_id=instance) for member_id, instance in pairs
            ),
        )
        call = Call()
        caller = Caller(version=version, client_id="c", host="/127.0.0.1")
        self.carry_out(self.shard.leave(request, caller, self.now_ms), call)
        response: LeaveGroupResponse = call.response
        return response

    def state(self, group: str = GROUP) -> str:
        """What DescribeGroups says of the group's state."""
        return self.shard.describe(group, 6).group_state

    def commit(
        self,
        offsets: Mapping[tuple[str, int], int | tuple[int, str | None]],
        *,
        group: str = GROUP,
        member_id: str = "",
        generation: int = -1,
        instance: str | None = None,
        version: int = 9,
        retention_ms: int | None = None,
        leader_epoch: int = -1,
    ) -> list[ErrorCode]:
        """OffsetCommit of offsets (with metadata, if pairs) by topic and partition; the codes in the same order."""
        request = OffsetCommitRequest(
            group_id=GroupId(group),
            generation_id_or_member_epoch=i32(generation),
            member_id=member_id,
            group_instance_id=instance,
            topics=tuple(
                OffsetCommitRequestTopic(
                    name=TopicName(topic),
                    partitions=(
                        OffsetCommitRequestPartition(
                            partition_index=i32(partition),
                            committed_offset=i64(offset[0] if isinstance(offset, tuple) else offset),
                            committed_leader_epoch=i32(leader_epoch),
                            committed_metadata=offset[1] if isinstance(offset, tuple) else "",
                        ),
                    ),
                )
                for (topic, partition), offset in offsets.items()
            ),
        )
        call = Call()
        caller = Caller(version=version, client_id="c", host="/127.0.0.1")
        self.carry_out(self.shard.commit_offsets(request, caller, self.now_ms, retention_ms), call)
        return [partition.error_code for topic in call.response.topics for partition in topic.partitions]

    def commit_in_transaction(
        self,
        producer_id: int,
        offsets: Mapping[tuple[str, int], int],
        *,
        group: str = GROUP,
        member_id: str = "",
        generation: int = -1,
        instance: str | None = None,
        version: int = 5,
    ) -> list[ErrorCode]:
        """TxnOffsetCommit; the codes in the order of the offsets."""
        request = TxnOffsetCommitRequest(
            transactional_id=TransactionalId(f"txn-{producer_id}"),
            group_id=GroupId(group),
            producer_id=ProducerId(producer_id),
            producer_epoch=i16(0),
            generation_id=i32(generation),
            member_id=member_id,
            group_instance_id=instance,
            topics=tuple(
                TxnOffsetCommitRequestTopic(
                    name=TopicName(topic),
                    partitions=(
                        TxnOffsetCommitRequestPartition(
                            partition_index=i32(partition), committed_offset=i64(offset), committed_metadata=None
                        ),
                    ),
                )
                for (topic, partition), offset in offsets.items()
            ),
        )
        call = Call()
        caller = Caller(version=version, client_id="c", host="/127.0.0.1")
        self.carry_out(self.shard.commit_transaction_offsets(request, caller, self.now_ms), call)
        return [partition.error_code for topic in call.response.topics for partition in topic.partitions]

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """The marker of a transaction arrives in the partition."""
        self.log.append(Marker(producer_id, committed))
        self.shard.replay_end_marker(producer_id, committed)

    def fetch(
        self,
        *partitions: tuple[str, int],
        group: str = GROUP,
        require_stable: bool = False,
    ) -> OffsetFetchResponseGroup:
        """OffsetFetch of these partitions, or of all."""
        request = OffsetFetchRequestGroup(
            group_id=GroupId(group),
            topics=tuple(
                OffsetFetchRequestTopics(name=TopicName(topic), partition_indexes=(i32(partition),))
                for topic, partition in partitions
            )
            or None,
        )
        return self.shard.fetch_offsets(request, require_stable, self.now_ms)

    def committed(self, group: str = GROUP) -> dict[tuple[str, int], int]:
        """All offsets of a group."""
        return {
            (topic.name, partition.partition_index): partition.committed_offset
            for topic in self.fetch(group=group).topics
            for partition in topic.partitions
        }

    def delete_offsets(self, *partitions: tuple[str, int], group: str = GROUP) -> Call:
        request = OffsetDeleteRequest(
            group_id=GroupId(group),
            topics=tuple(
                OffsetDeleteRequestTopic(
                    name=TopicName(topic), partitions=(OffsetDeleteRequestPartition(partition_index=i32(partition)),)
                )
                for topic, partition in partitions
            ),
        )
        call = Call()
        self.carry_out(self.shard.delete_offsets(request, self.now_ms), call)
        return call

    def delete_group(self, group: str = GROUP) -> ErrorCode:
        call = Call()
        self.carry_out(self.shard.delete_group(group, self.now_ms), call)
        code: ErrorCode = call.response
        return code

    def expire_offsets(self) -> None:
        self.carry_out_all(self.shard.expire_offsets(self.now_ms))


def subscription(*topics: str) -> bytes:
    """What a consumer that reads these topics sends with its join (version 0)."""
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


def _ms(value: int) -> i32Timedelta:
    return i32Timedelta.parse(timedelta(milliseconds=value))
