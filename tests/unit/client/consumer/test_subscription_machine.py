"""Whatever comes in whatever order: positions move only as promised, and no commit runs ahead of the user."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headwater.client.consumer.resets import EARLIEST, LATEST
from headwater.client.consumer.subscription import Position, Stage, SubscriptionState
from headwater.types import TopicPartition

PARTITIONS = [TopicPartition("orders", number) for number in range(3)]
partitions = st.sampled_from(PARTITIONS)
offsets = st.integers(0, 50)
epochs = st.integers(0, 5)
positions = st.builds(Position, offsets, st.just(-1) | epochs)
resets = st.sampled_from([EARLIEST, LATEST])


class Subscriptions(RuleBasedStateMachine):
    """Keeps beside the real state only what a user would know: where reading stands, and what is worked on."""

    def __init__(self) -> None:
        super().__init__()
        self.changes = 0
        self.state = SubscriptionState(EARLIEST, self.changed)
        self.state.subscribe(["orders"])
        self.worked_on: dict[TopicPartition, Position | None] = {}
        self.in_work: dict[TopicPartition, Position] = {}
        self.highest_epochs: dict[TopicPartition, int] = {}
        self.state.assign_from_group(PARTITIONS)
        # One is being read from the start, so that not every run has to find its way there.
        self.seek(PARTITIONS[0], Position(0))

    def changed(self) -> None:
        self.changes += 1

    def moved(self, partition: TopicPartition, position: Position | None) -> None:
        self.worked_on[partition] = position
        self.in_work.pop(partition, None)

    @rule(wanted=st.sets(partitions, min_size=1))
    def assign(self, wanted: set[TopicPartition]) -> None:
        self.state.assign_from_group(wanted)
        for model in (self.worked_on, self.in_work, self.highest_epochs):
            for partition in [*model]:
                if partition not in wanted:
                    del model[partition]

    @rule(gone=st.sets(partitions, max_size=1))
    def revoke(self, gone: set[TopicPartition]) -> None:
        self.state.revoke(gone)
        for model in (self.worked_on, self.in_work, self.highest_epochs):
            for partition in gone:
                model.pop(partition, None)

    @rule(partition=partitions, position=positions)
    def seek(self, partition: TopicPartition, position: Position) -> None:
        if partition in self.state.assigned:
            before = self.changes
            self.state.seek(partition, position)
            assert self.changes > before, "somebody has to fetch from there"
            self.moved(partition, position)

    @rule(partition=partitions, reset=resets)
    def request_reset(self, partition: TopicPartition, reset: object) -> None:
        if partition in self.state.assigned:
            self.state.request_reset(partition, reset)  # type: ignore[arg-type]
            self.moved(partition, None)

    @rule(partition=partitions, reset=resets, offset=offsets)
    def reset_is_looked_up(self, partition: TopicPartition, reset: object, offset: int) -> None:
        state = self.state.assigned.get(partition)
        expected = state is not None and state.stage is Stage.RESETTING and state.reset == reset
        assert self.state.reset_done(partition, reset, offset) == expected  # type: ignore[arg-type]
        if expected:
            self.moved(partition, Position(offset))

    @rule(partition=partitions, committed=st.none() | positions)
    def committed_offset_is_looked_up(self, partition: TopicPartition, committed: Position | None) -> None:
        state = self.state.assigned.get(partition)
        expected = state is not None and state.stage is Stage.STARTING
        assert self.state.start_at(partition, committed) == expected
        if expected:
            self.moved(partition, committed)

    @rule(partition=partitions, offset=offsets)
    def leader_says_out_of_range(self, partition: TopicPartition, offset: int) -> None:
        state = self.state.assigned.get(partition)
        hit = state is not None and state.position is not None and state.position.offset == offset
        assert self.state.out_of_range(partition, offset)
        if hit:
            self.moved(partition, None)

    @rule(partition=partitions, epoch=epochs)
    def leader_is_seen(self, partition: TopicPartition, epoch: int) -> None:
        self.state.leader_seen(partition, epoch)
        if partition in self.state.assigned:
            self.highest_epochs[partition] = max(epoch, self.highest_epochs.get(partition, -1))

    @rule(partition=partitions, asked=positions, current=st.booleans(), found=st.none() | positions)
    def leader_validates(
        self, partition: TopicPartition, asked: Position, current: bool, found: Position | None
    ) -> None:
        state = self.state.assigned.get(partition)
        if current and state is not None and state.position is not None:
            asked = state.position
        counts = state is not None and state.stage is Stage.VALIDATING and state.position == asked
        truncation = self.state.validated(partition, asked, found)
        cut = counts and (found is None or found.offset < asked.offset)
        assert (truncation is not None) == cut
        if cut:
            self.moved(partition, found)

    @precondition(lambda self: self.fetchable())
    @rule(data=st.data(), count=st.integers(1, 5), epoch=epochs)
    def hand_out(self, data: st.DataObject, count: int, epoch: int) -> None:
        partition = data.draw(st.sampled_from(self.fetchable()))
        before = self.state.assigned[partition].position
        assert before is not None
        position = Position(before.offset + count, epoch)
        self.state.handed_out(partition, position)
        self.in_work[partition] = position

    def fetchable(self) -> list[TopicPartition]:
        return [partition for partition, state in self.state.assigned.items() if state.fetchable]

    @rule()
    def user_polls(self) -> None:
        self.state.poll_begins()
        self.worked_on.update(self.in_work)
        self.in_work.clear()

    @precondition(lambda self: self.state.assigned)
    @rule(data=st.data())
    def pause_or_resume(self, data: st.DataObject) -> None:
        some = data.draw(st.sets(st.sampled_from([*self.state.assigned])))
        (self.state.resume if data.draw(st.booleans()) else self.state.pause)(some)
        assert some <= self.state.paused() or not some & self.state.paused()

    @invariant()
    def positions_are_where_the_user_expects_them(self) -> None:
        for partition, state in self.state.assigned.items():
            assert state.position == self.in_work.get(partition, self.worked_on.get(partition))

    @invariant()
    def commits_never_run_ahead_of_the_user(self) -> None:
        expected = {partition: position for partition, position in self.worked_on.items() if position is not None}
        assert self.state.positions_handed_out() == expected

    @invariant()
    def stages_fit_what_is_known(self) -> None:
        for partition, state in self.state.assigned.items():
            assert (state.position is None) == (state.stage in (Stage.STARTING, Stage.RESETTING))
            assert (state.reset is not None) == (state.stage is Stage.RESETTING)
            assert state.fetchable == (state.stage is Stage.FETCHING and not state.paused)
            if state.stage is Stage.VALIDATING:
                assert state.position is not None
                assert state.position.leader_epoch >= 0
            assert state.seen_leader_epoch == self.highest_epochs.get(partition, -1)


TestSubscriptions = Subscriptions.TestCase
TestSubscriptions.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
