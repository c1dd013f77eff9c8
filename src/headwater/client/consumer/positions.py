"""Brings every assigned partition to a good position: committed offsets, resets, validation after a change of leaders.

A task for each of the three, alive only while there is something to look up, so that none waits for another's broker.
They go on by themselves when a poll is cancelled or never comes; what only the user can cure is kept for the next poll
to raise, and is not looked up again before.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from headwater.client.back_off import BackOff
from headwater.client.client import Client
from headwater.client.consumer.errors import LogTruncatedError, NoOffsetError
from headwater.client.consumer.offsets import ends_of_epochs, list_offsets
from headwater.client.consumer.resets import LATEST_MS
from headwater.client.consumer.settings import ConsumerSettings
from headwater.client.consumer.subscription import Position, Stage, SubscriptionState
from headwater.client.errors import ClientError, RefusedError, UnsupportedError
from headwater.protocol.kafka_types import ErrorCode
from headwater.types import TopicPartition

FetchCommitted = Callable[[Collection[TopicPartition]], Awaitable[Mapping[TopicPartition, Position | None]]]
"""Asks the group where it stopped; None for a partition of which nothing is committed."""


class Positions:
    """Looks positions up. `fetch_committed` is None without a group; `on_news` is called when something changed."""

    def __init__(
        self,
        client: Client,
        subscription: SubscriptionState,
        settings: ConsumerSettings,
        fetch_committed: FetchCommitted | None,
        on_news: Callable[[], None],
    ) -> None:
        self._client = client
        self._subscription = subscription
        self._settings = settings
        self._fetch_committed = fetch_committed
        self._on_news = on_news
        self._back_off = BackOff(settings.retry_backoff_ms, settings.retry_backoff_max_ms)
        self._steps = {Stage.STARTING: self._start, Stage.RESETTING: self._reset, Stage.VALIDATING: self._validate}
        self._tasks: dict[Stage, asyncio.Task[None]] = {}
        self._errors: dict[TopicPartition, tuple[Stage, Exception]] = {}
        """What went wrong, and in which stage: an error of a stage that was left, by a seek say, is of no concern."""

    def look_up(self) -> None:
        """Starts looking up what is missing, unless that is being done already."""
        missing = {
            state.stage
            for partition, state in self._subscription.assigned.items()
            if state.stage is not Stage.FETCHING and not self._failed(partition, state.stage)
        }
        for stage in missing.difference(self._tasks):
            self._tasks[stage] = asyncio.create_task(self._run(stage), name=f"consumer positions, {stage.value}")

    def raise_error(self) -> None:
        """Raises something that only the user can cure, once; the partition is looked up again after that."""
        for partition in [*self._errors]:
            stage, error = self._errors.pop(partition)
            state = self._subscription.assigned.get(partition)
            if state is not None and state.stage is stage:
                raise error

    async def close(self) -> None:
        """Ends the tasks."""
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _failed(self, partition: TopicPartition, stage: Stage) -> bool:
        found = self._errors.get(partition)
        return found is not None and found[0] is stage

    def _in(self, stage: Stage) -> list[TopicPartition]:
        """The partitions to look up for a stage."""
        return [p for p in self._subscription.in_stage(stage) if not self._failed(p, stage)]

    def _fail(self, stage: Stage, errors: Mapping[TopicPartition, Exception]) -> None:
        self._errors.update({partition: (stage, error) for partition, error in errors.items()})

    async def _run(self, stage: Stage) -> None:
        failures = 0
        try:
            while partitions := self._in(stage):
                retry = await self._steps[stage](partitions)
                self._on_news()
                failures = failures + 1 if retry else 0
                if retry:
                    self._client.need_refresh({partition.topic for partition in retry})
                    await asyncio.sleep(self._back_off.delay_ms(failures, random.random()) / 1000)  # noqa: S311
        except Exception as error:
            # A mistake of ours must not end as a consumer that reads nothing and says nothing.
            self._fail(stage, dict.fromkeys(self._in(stage), error))
        finally:
            del self._tasks[stage]
            self._on_news()

    async def _start(self, starting: Sequence[TopicPartition]) -> set[TopicPartition]:
        """Looks up committed offsets; gives the partitions to try again."""
        committed: Mapping[TopicPartition, Position | None] = {}
        if self._fetch_committed is not None:
            try:
                committed = await self._fetch_committed(starting)
            except ClientError as error:
                return self._sort(Stage.STARTING, dict.fromkeys(starting, error))
        for partition in starting:
            self._subscription.start_at(partition, committed.get(partition))
        nowhere = [partition for partition in self._in(Stage.STARTING) if partition in starting]
        if nowhere:
            self._fail(Stage.STARTING, dict.fromkeys(nowhere, NoOffsetError(nowhere)))
        return set()

    async def _reset(self, resetting: Sequence[TopicPartition]) -> set[TopicPartition]:
        """Looks up where resets lead; gives the partitions to try again."""
        resets = {partition: self._subscription.assigned[partition].reset for partition in resetting}
        now_ms = int(time.time() * 1000)
        timestamps_ms = {p: reset.timestamp_ms(now_ms) for p, reset in resets.items() if reset is not None}
        answers = await list_offsets(self._client, timestamps_ms, read_committed=self._settings.read_committed)
        younger_than_all = [partition for partition, found in answers.found.items() if found is None]
        if younger_than_all:
            # Nothing was written since then: what comes next is the first that is young enough.
            ends = await list_offsets(
                self._client,
                dict.fromkeys(younger_than_all, LATEST_MS),
                read_committed=self._settings.read_committed,
            )
            answers.found.update(ends.found)
            answers.errors.update(ends.errors)
        for partition, found in answers.found.items():
            reset = resets.get(partition)
            if found is not None and reset is not None:
                self._subscription.reset_done(partition, reset, found.offset)
        return self._sort(Stage.RESETTING, answers.errors)

    async def _validate(self, validating: Sequence[TopicPartition]) -> set[TopicPartition]:
        """Asks leaders whether they share our past; gives the partitions to try again."""
        known = {partition: self._subscription.assigned[partition].position for partition in validating}
        positions = {partition: position for partition, position in known.items() if position is not None}
        epochs = {partition: position.leader_epoch for partition, position in positions.items()}
        answers = await ends_of_epochs(self._client, epochs)
        for partition, found in answers.found.items():
            truncation = self._subscription.validated(partition, positions[partition], found)
            if truncation is not None and self._subscription.default_reset is None:
                diverged = None if truncation.diverged is None else truncation.diverged.offset
                error = LogTruncatedError(partition, truncation.position.offset, diverged)
                self._fail(Stage.VALIDATING, {partition: error})
        for partition in [p for p, error in answers.errors.items() if isinstance(error, UnsupportedError)]:
            del answers.errors[partition]
            self._subscription.validation_impossible(partition, positions[partition])
        return self._sort(Stage.VALIDATING, answers.errors)

    def _sort(self, stage: Stage, errors: Mapping[TopicPartition, ClientError]) -> set[TopicPartition]:
        """Keeps the errors that only the user can cure, and gives the partitions that may be tried again."""
        retry = set()
        for partition, error in errors.items():
            if self._client.may_pass(error) or _topic_may_come(error):
                retry.add(partition)
            else:
                self._fail(stage, {partition: error})
        return retry


def _topic_may_come(error: ClientError) -> bool:
    """A topic that is assigned and not there may be created yet, or is known to other brokers already."""
    return isinstance(error, RefusedError) and error.code is ErrorCode.unknown_topic_or_partition
