"""What a consumer reads and how far it is: the subscription, the assignment, the position of every partition.

Sans-IO: no clock, no network, no tasks. Whoever looks something up (a committed offset, the start of a log, whether a
position is still valid) tells the result here, together with what the question was: an answer to a question that
nobody asks any more, since a seek or a rebalance came between, changes nothing.

A partition is in one of four stages:

    STARTING    assigned, and not known where to begin    -> a committed offset, a reset or a seek
    RESETTING   the policy says where; to be looked up    -> reset_done or a seek
    VALIDATING  the log may have been cut under us        -> validated, a seek or a reset
    FETCHING    the position is good                      -> a new leader epoch, a seek or a reset

Only in FETCHING, and not paused, is a partition fetched from and are its records handed out. `position` moves with the
records that are handed out, and in no other way than by the moves above.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from headwater.client.consumer.errors import SubscriptionError
from headwater.client.consumer.resets import Reset
from headwater.types import TopicPartition

NO_EPOCH: Final = -1


class Position(NamedTuple):
    """The offset of the next record, and the leader epoch of the one before it (-1: unknown)."""

    offset: int
    leader_epoch: int = NO_EPOCH


class Stage(Enum):
    """Where a partition stands between being assigned and being read."""

    STARTING = "starting"
    RESETTING = "resetting"
    VALIDATING = "validating"
    FETCHING = "fetching"


class Truncation(NamedTuple):
    """A log that ends, as far as its leader shares our past, before the position: records that we read are gone.

    `diverged` is the first position that is not shared, None when the leader does not know.
    """

    partition: TopicPartition
    position: Position
    diverged: Position | None


class PartitionState:
    """One assigned partition. Changed by `SubscriptionState` alone; everybody may look."""

    __slots__ = (
        "committable",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "paused",
        "position",
        "preferred_replica",
        "preferred_until_s",
        "reset",
        "seen_leader_epoch",
        "stage",
    )

    def __init__(self) -> None:
        self.stage = Stage.STARTING
        self.position: Position | None = None
        self.committable: Position | None = None
        """The position without what the poll that is being worked on handed out."""
        self.reset: Reset | None = None
        self.paused = False
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None
        self.preferred_replica: int | None = None
        self.preferred_until_s = 0.0
        self.seen_leader_epoch = NO_EPOCH
        """The epoch of the leader under which the position was last known to be good."""

    @property
    def fetchable(self) -> bool:
        """Whether records of it may be asked for and handed out."""
        return self.stage is Stage.FETCHING and not self.paused

    def lag(self, *, read_committed: bool) -> int | None:
        """How many offsets lie between the position and the end of what may be read; None while either is unknown."""
        end = self.last_stable_offset if read_committed else self.high_watermark
        if self.position is None or end is None or end < 0:
            return None
        return max(end - self.position.offset, 0)


class SubscriptionState:
    """The subscription of one consumer: by topics or by pattern (a group assigns), or by partitions (the user does).

    `default_reset` says where to begin where no position is known; None: nowhere, that is an error. `on_change` is
    called after every change that may let something be fetched or looked up.
    """

    def __init__(self, default_reset: Reset | None, on_change: Callable[[], None] = lambda: None) -> None:
        self.default_reset = default_reset
        self.pattern: re.Pattern[str] | None = None
        self.assigned: dict[TopicPartition, PartitionState] = {}
        self.assigned_by_user = False
        self.on_change = on_change
        self._topics: frozenset[str] = frozenset()
        self._matching: frozenset[str] = frozenset()
        self._just_handed_out: dict[TopicPartition, PartitionState] = {}

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """The topics that were named, or that match the pattern as far as is known."""
        return self._matching if self.pattern is not None else self._topics

    @property
    def subscribed(self) -> bool:
        """Whether a subscription by topics or by pattern is in force."""
        return self.pattern is not None or bool(self._topics)

    def subscribe(self, topics: Iterable[str]) -> None:
        """Subscribes to exactly these topics; an assignment stays until the group makes a new one."""
        self._refuse_mixing("subscribe to topics", by_user=False)
        if self.pattern is not None:
            raise SubscriptionError("already subscribed to a pattern: unsubscribe before subscribing to topics")
        self._topics = frozenset(topics)

    def subscribe_pattern(self, pattern: re.Pattern[str]) -> None:
        """Subscribes to the topics whose whole name matches, those of today and those to come."""
        self._refuse_mixing("subscribe to a pattern", by_user=False)
        if self._topics:
            raise SubscriptionError("already subscribed to topics: unsubscribe before subscribing to a pattern")
        self.pattern = pattern
        self._matching = frozenset()

    def match(self, existing_topics: Iterable[str]) -> bool:
        """Applies the pattern to the topics there are; tells whether the subscription is another one now."""
        if self.pattern is None:
            return False
        matching = frozenset(topic for topic in existing_topics if self.pattern.fullmatch(topic))
        changed, self._matching = matching != self._matching, matching
        return changed

    def unsubscribe(self) -> None:
        """Ends every subscription and assignment."""
        self._topics = self._matching = frozenset()
        self.pattern = None
        self.assigned_by_user = False
        self._keep_only(())

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """The user names the partitions to read; those that stay keep their position."""
        self._refuse_mixing("assign partitions", by_user=True)
        wanted = dict.fromkeys(partitions)
        self.assigned_by_user = bool(wanted)
        self._take_over(wanted)

    def assign_from_group(self, partitions: Iterable[TopicPartition]) -> None:
        """The group has assigned exactly these partitions; those that stay keep their position."""
        if self.assigned_by_user:
            raise SubscriptionError("a group cannot assign partitions while the user does")
        self._take_over(dict.fromkeys(partitions))

    def revoke(self, partitions: Iterable[TopicPartition]) -> None:
        """The group has taken these partitions away."""
        gone = set(partitions)
        self._keep_only([partition for partition in self.assigned if partition not in gone])

    def state_of(self, partition: TopicPartition) -> PartitionState:
        """The state of an assigned partition; `SubscriptionError` for any other."""
        state = self.assigned.get(partition)
        if state is None:
            raise SubscriptionError(f"partition {partition} is not assigned to this consumer: assign it first")
        return state

    # Moves of the position.

    def seek(self, partition: TopicPartition, position: Position) -> None:
        """Goes on reading at `position`; validated first when it names the epoch that it was found in."""
        self._move(self.state_of(partition), position)

    def request_reset(self, partition: TopicPartition, reset: Reset) -> None:
        """Lets the position be looked up."""
        state = self.state_of(partition)
        state.stage = Stage.RESETTING
        state.position = state.committable = None
        state.reset = reset
        state.preferred_replica = None
        self.on_change()

    def reset_done(self, partition: TopicPartition, reset: Reset, offset: int) -> bool:
        """The look-up for `reset` found `offset`; False when that is no longer the question."""
        state = self.assigned.get(partition)
        if state is None or state.stage is not Stage.RESETTING or state.reset != reset:
            return False
        self._move(state, Position(offset))
        state.stage = Stage.FETCHING
        return True

    def start_at(self, partition: TopicPartition, committed: Position | None) -> bool:
        """A look-up of the committed offset brought `committed`, or None: then the reset policy decides.

        False when the partition no longer waits for it, or when there is no policy either.
        """
        state = self.assigned.get(partition)
        if state is None or state.stage is not Stage.STARTING:
            return False
        if committed is not None:
            self._move(state, committed)
        elif self.default_reset is not None:
            self.request_reset(partition, self.default_reset)
        else:
            return False
        return True

    def out_of_range(self, partition: TopicPartition, offset: int) -> bool:
        """A leader says that `offset` is outside of its log; False when there is no policy for that."""
        state = self.assigned.get(partition)
        if state is None or state.position is None or state.position.offset != offset:
            return True
        if self.default_reset is None:
            return False
        self.request_reset(partition, self.default_reset)
        return True

    # Leaders and validation.

    def leader_seen(self, partition: TopicPartition, leader_epoch: int) -> None:
        """The metadata name a leader of this epoch: under a new one, a position with a past must be validated."""
        state = self.assigned.get(partition)
        if state is None or leader_epoch <= state.seen_leader_epoch:
            return
        state.seen_leader_epoch = leader_epoch
        state.preferred_replica = None
        if state.stage is Stage.FETCHING and state.position is not None and state.position.leader_epoch != NO_EPOCH:
            state.stage = Stage.VALIDATING
            self.on_change()

    def validated(self, partition: TopicPartition, asked: Position, found: Position | None) -> Truncation | None:
        """The leader says where the epoch of `asked` ends in its log (None: it knows no such epoch).

        Gives the truncation when the position lies behind that end. With a reset policy it is already dealt with:
        reading goes on at the first position that is not shared, or where the policy says. Without one the
        position stays, and so does the stage, until the user seeks.
        """
        state = self.assigned.get(partition)
        if state is None or state.stage is not Stage.VALIDATING or state.position != asked:
            return None
        if found is not None and found.offset >= asked.offset:
            self._good(state)
            return None
        if self.default_reset is not None:
            if found is None:
                self.request_reset(partition, self.default_reset)
            else:
                self._move(state, found)
                self._good(state)
        return Truncation(partition, asked, found)

    def validation_impossible(self, partition: TopicPartition, asked: Position) -> None:
        """The broker cannot tell (it is too old): the position counts as good, as it always did."""
        state = self.assigned.get(partition)
        if state is not None and state.stage is Stage.VALIDATING and state.position == asked:
            self._good(state)

    # Reading.

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Nothing of these is handed out until `resume`; what was fetched is kept."""
        for state in [self.state_of(partition) for partition in partitions]:
            state.paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Ends `pause`."""
        for state in [self.state_of(partition) for partition in partitions]:
            state.paused = False
        self.on_change()

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        return {partition for partition, state in self.assigned.items() if state.paused}

    def handed_out(self, partition: TopicPartition, position: Position) -> None:
        """Records up to `position` are given to the user: the one way in which reading moves a position."""
        state = self.assigned[partition]
        state.position = position
        self._just_handed_out[partition] = state

    def poll_begins(self) -> None:
        """The user comes back: what earlier polls handed out counts as worked on and may be committed."""
        if self._just_handed_out:
            for state in self._just_handed_out.values():
                state.committable = state.position
            self._just_handed_out = {}

    def positions(self) -> dict[TopicPartition, Position]:
        """How far the user has got: the position of every partition that has one."""
        return {p: state.position for p, state in self.assigned.items() if state.position is not None}

    def positions_handed_out(self) -> dict[TopicPartition, Position]:
        """What an automatic commit may commit: nothing of the poll that the user still works on."""
        return {
            partition: state.committable for partition, state in self.assigned.items() if state.committable is not None
        }

    def in_stage(self, stage: Stage) -> list[TopicPartition]:
        """The assigned partitions that stand there."""
        return [partition for partition, state in self.assigned.items() if state.stage is stage]

    def _move(self, state: PartitionState, position: Position) -> None:
        state.position = state.committable = position
        state.reset = None
        state.preferred_replica = None
        state.stage = Stage.FETCHING if position.leader_epoch == NO_EPOCH else Stage.VALIDATING
        self.on_change()

    def _good(self, state: PartitionState) -> None:
        state.stage = Stage.FETCHING
        self.on_change()

    def _take_over(self, wanted: Mapping[TopicPartition, None]) -> None:
        before = self.assigned
        self.assigned = {partition: before.get(partition) or PartitionState() for partition in wanted}
        self._forget_what_left()

    def _keep_only(self, partitions: Iterable[TopicPartition]) -> None:
        self.assigned = {partition: self.assigned[partition] for partition in partitions}
        self._forget_what_left()

    def _forget_what_left(self) -> None:
        self._just_handed_out = {
            p: state for p, state in self._just_handed_out.items() if self.assigned.get(p) is state
        }
        self.on_change()

    def _refuse_mixing(self, wanted: str, *, by_user: bool) -> None:
        if self.assigned_by_user and not by_user:
            raise SubscriptionError(f"cannot {wanted}: partitions were assigned by hand; unsubscribe first")
        if by_user and self.subscribed:
            raise SubscriptionError(f"cannot {wanted}: a subscription is in force; unsubscribe first")
