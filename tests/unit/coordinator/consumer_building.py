"""Consumers of both protocols for tests of consumer groups, and a driver that sends what they send.

`ConsumerDriver.beat` sends one ConsumerGroupHeartbeat as it is. `Consumer` and `ClassicConsumer` are clients: they do
what the Java client does with what they are told, and know which partitions they would be reading.
"""

import itertools
from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID

from headwater.coordinator.group.assignor_range import assign_ranges
from headwater.coordinator.group.consumer_group import ConsumerGroup
from headwater.coordinator.group.consumer_partitions import Partition, Partitions, by_topic, from_rows, topic_key
from headwater.coordinator.group.consumer_protocol import (
    Assignment,
    NamedPartitions,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from headwater.coordinator.group.shard import GroupShard
from headwater.coordinator.outcome import Caller, CoordinatorRecord
from headwater.protocol.kafka_types import ErrorCode, TopicName, i32, i32Timedelta

from kio.schema.consumer_group_describe.v1.response import DescribedGroup  # isort: skip
from kio.schema.consumer_group_heartbeat.v1.request import (  # isort: skip
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from kio.schema.types import GroupId  # isort: skip

from .assignor_building import Subscriber, assign
from .building import GROUP, REBALANCE_MS, SESSION_MS, Call, Driver, LogRecord, Marker, Topics

BEAT_MS = 5_000
CONSUMER_SESSION_MS = 45_000


class ConsumerDriver(Driver):
    """A shard whose consumer groups are tested; `topics` may be changed with `create`, `grow` and `delete`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._topic_ids = map(UUID, (f"{number:032x}" for number in itertools.count(100)))

    def beat(
        self,
        member_id: str,
        epoch: int,
        *,
        group: str = GROUP,
        version: int = 1,
        instance: str | None = None,
        rack: str | None = None,
        topics: Iterable[str] | None = None,
        regex: str | None = None,
        owned: Iterable[Partition] | None = None,
        rebalance_ms: int = -1,
        assignor: str | None = None,
        host: str = "/127.0.0.1",
    ) -> Call:
        """One ConsumerGroupHeartbeat, as it is sent."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=GroupId(group),
            member_id=member_id,
            member_epoch=i32(epoch),
            instance_id=instance,
            rack_id=rack,
            rebalance_timeout=i32Timedelta.parse(timedelta(milliseconds=rebalance_ms)),
            subscribed_topic_names=None if topics is None else tuple(map(TopicName, topics)),
            subscribed_topic_regex=regex,
            server_assignor=assignor,
            topic_partitions=None if owned is None else _rows(owned),
        )
        call = Call()
        caller = Caller(version=version, client_id="c", host=host)
        self.carry_out(self.shard.consumer_heartbeat(request, caller, self.now_ms), call)
        return call

    def enter_as_consumer(self, member_id: str, *topics: str, **options: Any) -> Call:
        """The first heartbeat of a member that subscribes to these topics, or with a pattern."""
        names = topics or (None if "regex" in options else ("orders",))
        return self.beat(member_id, 0, topics=names, owned=(), **{"rebalance_ms": REBALANCE_MS, **options})

    def describe_consumer_group(self, group: str = GROUP) -> DescribedGroup:
        return self.shard.consumer_describe(group, self.now_ms)

    def consumer_group(self, group: str = GROUP) -> ConsumerGroup:
        found = self.shard._groups.get(group)
        assert isinstance(found, ConsumerGroup), f"{group} is {found}"
        return found

    def create(self, topic: str, partitions: int) -> None:
        """A topic comes, with an id that none had before."""
        self.topics.partitions[topic] = partitions
        self.topics.ids[topic] = next(self._topic_ids)
        self.topics_changed()

    def grow(self, topic: str, partitions: int) -> None:
        self.topics.partitions[topic] = partitions
        self.topics_changed()

    def delete(self, topic: str) -> None:
        del self.topics.partitions[topic], self.topics.ids[topic]
        self.topics_changed()

    def topics_changed(self) -> None:
        self.carry_out_all(self.shard.topics_changed(self.now_ms))

    def new_shard(self) -> GroupShard:
        """A shard that has replayed nothing."""
        return self._new_shard()

    def replay_into(self, shard: GroupShard, entries: Iterable[LogRecord | Marker]) -> None:
        for entry in entries:
            assert isinstance(entry, LogRecord), "consumer groups write no transactions"
            shard.replay(CoordinatorRecord(entry.key, entry.value))

    def replayed_after_compaction(self, *, keep_tombstones: bool) -> GroupShard:
        """Another shard, made from what a compacted log has: the last record of each key."""
        last = {entry.key: entry for entry in self.log if isinstance(entry, LogRecord)}
        shard = self.new_shard()
        kept = (entry for entry in self.log if isinstance(entry, LogRecord) and last[entry.key] is entry)
        self.replay_into(shard, (entry for entry in kept if keep_tombstones or entry.value is not None))
        return shard

    def all_partitions(self, *topics: str) -> Partitions:
        """Every partition of topics that exist."""
        return frozenset(
            Partition(topic_key(self.topics.ids[topic]), number)
            for topic in topics
            if topic in self.topics.partitions
            for number in range(self.topics.partitions[topic])
        )


def state_of(group: ConsumerGroup) -> dict[str, Any]:
    """All that a group knows, for comparing two."""
    return {name: value for name, value in vars(group).items() if name != "_topics"}


def assigned(call: Call) -> Partitions | None:
    """What a response gives the member; None when it tells nothing new."""
    assignment = call.response.assignment
    return None if assignment is None else from_rows(assignment.topic_partitions)


def numbers(partitions: Iterable[Partition] | None) -> list[int]:
    """The numbers of partitions of one topic."""
    assert partitions is not None
    return sorted(partition.number for partition in partitions)


def _rows(partitions: Iterable[Partition]) -> tuple[TopicPartitions, ...]:
    return tuple(
        TopicPartitions(topic_id=topic_id, partitions=tuple(map(i32, listed)))
        for topic_id, listed in by_topic(partitions).items()
    )


class Consumer:
    """A client of the consumer protocol.

    It reads what it was given until it is told otherwise. With `is_slow`, partitions that it must give back are read on
    until `finish_revoking`.
    """

    def __init__(
        self,
        driver: ConsumerDriver,
        name: str,
        *topics: str,
        group: str = GROUP,
        instance: str | None = None,
        regex: str | None = None,
        assignor: str | None = None,
        is_slow: bool = False,
    ) -> None:
        self.driver = driver
        self.member_id = name
        self.group = group
        self.instance = instance
        self.topics: tuple[str, ...] | None = topics or None
        self.regex = regex
        self.assignor = assignor
        self.is_slow = is_slow
        self.epoch = 0
        self.reads: Partitions = frozenset()
        self.is_stopped = False
        self._wanted: Partitions = frozenset()
        self._tell_all = True
        self._tell_owned = True

    @property
    def is_revoking(self) -> bool:
        return not self.reads <= self._wanted

    def beat(self, *, response_is_lost: bool = False) -> Call | None:
        """Sends the next heartbeat and does what the response says."""
        if self.is_stopped:
            return None
        everything: dict[str, Any] = {}
        if self._tell_all or self.epoch == 0:
            everything = {"topics": self.topics, "regex": self.regex, "rebalance_ms": REBALANCE_MS}
            everything["assignor"] = self.assignor
        owned = self.reads if self._tell_all or self._tell_owned or self.epoch == 0 else None
        call = self.driver.beat(
            self.member_id, self.epoch, group=self.group, instance=self.instance, owned=owned, **everything
        )
        if response_is_lost or call.failed_append:
            self._tell_all = True
            return call
        self._tell_all = self._tell_owned = False
        self._heed(call)
        return call

    def step(self) -> None:
        """What it does next."""
        self.beat()

    def lose_connection(self) -> None:
        """The broker died: nothing is known of the last request."""
        self._tell_all = True

    def _heed(self, call: Call) -> None:
        if call.error in (ErrorCode.unreleased_instance_id, ErrorCode.fenced_instance_id):
            self._lose_all()
            self.is_stopped = True
        elif call.error is not ErrorCode.none:
            self._lose_all()
        else:
            self.epoch = call.response.member_epoch
            given = assigned(call)
            if given is not None:
                self._wanted = given
                if not self.is_slow:
                    self.finish_revoking()
                elif not self.is_revoking:
                    self.reads = given
                self._tell_owned = True

    def finish_revoking(self) -> None:
        """Stops reading what it must give back, and begins to read what it was given."""
        if self.reads != self._wanted:
            self.reads = self._wanted
            self._tell_owned = True

    def subscribe(self, *topics: str) -> None:
        self.topics = topics
        self._tell_all = True

    def leave(self) -> Call:
        return self._go(-1)

    def go_away(self) -> Call:
        """A static member stops for a while."""
        return self._go(-2)

    def _go(self, epoch: int) -> Call:
        call = self.driver.beat(self.member_id, epoch, group=self.group, instance=self.instance)
        self._lose_all()
        return call

    def _lose_all(self) -> None:
        self.epoch = 0
        self.reads = self._wanted = frozenset()


class ClassicConsumer:
    """A client of the classic protocol, eager or cooperative; as the leader it assigns ranges."""

    def __init__(
        self,
        driver: ConsumerDriver,
        *topics: str,
        cooperative: bool = False,
        group: str = GROUP,
        instance: str | None = None,
        session_ms: int = SESSION_MS,
    ) -> None:
        self.driver = driver
        self.topics = topics
        self.cooperative = cooperative
        self.group = group
        self.instance = instance
        self.session_ms = session_ms
        self.member_id = ""
        self.generation = -1
        self.reads: Partitions = frozenset()
        self.is_stopped = False
        self.is_settled = False
        """Whether it joined and synced, and has heard of no rebalance since."""
        self._join: Call | None = None
        self._sync: Call | None = None
        self._topics_led: list[object] | None = None
        """As a leader: what the topics were when it assigned them. When they change, it joins again."""

    @property
    def is_waiting(self) -> bool:
        return any(call is not None and call.waits for call in (self._join, self._sync))

    def lose_connection(self) -> None:
        """The broker died: nobody answers what waits, and it joins again."""
        if self._join is not None or self._sync is not None:
            self._join = self._sync = None
            self.is_settled = False

    def step(self) -> None:
        """Does what is next: reads the answer that it waited for, or sends a heartbeat, or joins."""
        if self.is_stopped or self.is_waiting:
            return
        if self._join is not None:
            self._joined()
        elif self._sync is not None:
            self._synced()
        elif self.is_settled and self._topics_led in (None, self._topics_now()):
            self._heed(self.driver.heartbeat(self.member_id, self.generation, group=self.group, instance=self.instance))
        else:
            self._send_join()

    def settle(self) -> None:
        """Acts until it waits, or until there is nothing to do."""
        for _ in range(10):
            self.step()

    def leave(self) -> None:
        self.driver.leave((self.member_id, self.instance), group=self.group)
        self._forget_member()
        self._join = self._sync = None
        self.is_stopped = True

    def _topics_now(self) -> list[object]:
        topics = self.driver.topics
        return [*topics.partitions.items(), *topics.ids.items()]

    def _send_join(self) -> None:
        name = "cooperative-sticky" if self.cooperative else "range"
        if not self.cooperative:
            self.reads = frozenset()
        owned = _named(self.reads, self.driver.topics)
        subscription = Subscription(topics=self.topics, owned=owned, generation=self.generation)
        self._join = self.driver.join(
            self.member_id,
            group=self.group,
            instance=self.instance,
            session_ms=self.session_ms,
            protocols={name: write_subscription(subscription, 3 if self.cooperative else 0)},
        )

    def _joined(self) -> None:
        call, self._join = self._join, None
        assert call is not None
        if call.failed_append:
            return
        if call.error is ErrorCode.member_id_required:
            self.member_id = call.response.member_id
        elif call.error is ErrorCode.none:
            self.member_id, self.generation = call.response.member_id, call.response.generation_id
            is_leader = call.response.leader == self.member_id
            assignments = self._assignments(call) if is_leader else None
            self._topics_led = self._topics_now() if is_leader else None
            self._sync = self.driver.sync(call.response, assignments, group=self.group, instance=self.instance)
        else:
            self._heed(call.error)

    def _synced(self) -> None:
        call, self._sync = self._sync, None
        assert call is not None
        if call.failed_append:
            return
        if call.error is not ErrorCode.none:
            self._heed(call.error)
            return
        given = _identified(read_assignment(call.response.assignment).partitions, self.driver.topics)
        # A cooperative member that lost something joins again at once, so that somebody else may have it.
        self.is_settled = self.reads <= given or not self.cooperative
        self.reads = given

    def _heed(self, error: ErrorCode) -> None:
        if error is ErrorCode.none:
            return
        self.is_settled = False
        if error is ErrorCode.unknown_member_id:
            self._forget_member()
        elif error is ErrorCode.illegal_generation:
            self.generation, self.reads = -1, frozenset()
        elif error is ErrorCode.fenced_instance_id:
            self._forget_member()
            self.is_stopped = True

    def _forget_member(self) -> None:
        self.member_id, self.generation, self.reads, self.is_settled = "", -1, frozenset(), False

    def _assignments(self, call: Call) -> dict[str, bytes]:
        topics = self.driver.topics
        subscriptions = {member.member_id: read_subscription(member.metadata) for member in call.response.members}
        subscribers = [
            Subscriber(
                member_id=member_id,
                topics=frozenset(topic_key(topics.ids[topic]) for topic in subscription.topics if topic in topics.ids),
            )
            for member_id, subscription in subscriptions.items()
        ]
        counts = {topic_key(topics.ids[topic]): count for topic, count in topics.partitions.items()}
        targets = assign(assign_ranges, subscribers, counts)
        owned = {
            member_id: _identified(subscription.owned, topics) for member_id, subscription in subscriptions.items()
        }
        assignments = {}
        for member_id, target in targets.items():
            others = frozenset[Partition]().union(*(held for other, held in owned.items() if other != member_id))
            rows = _named(target - others, topics)
            assignments[member_id] = write_assignment(Assignment(partitions=rows), 0)
        return assignments


def _named(partitions: Iterable[Partition], topics: Topics) -> tuple[NamedPartitions, ...]:
    return tuple(
        NamedPartitions(name, tuple(listed))
        for topic_id, listed in by_topic(partitions).items()
        if (name := topics.topic_name(topic_id)) is not None
    )


def _identified(rows: Iterable[NamedPartitions], topics: Topics) -> Partitions:
    return frozenset(
        Partition(topic_key(topics.ids[row.topic]), number)
        for row in rows
        if row.topic in topics.ids
        for number in row.partitions
    )
