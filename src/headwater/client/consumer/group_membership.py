"""What a member of either protocol does alike: poll's frame, commits, automatic commits, the topics it watches.

`ClassicMembership` and `ConsumerMembership` fill in how to take part in the group.
"""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from headwater.client.back_off import BackOff
from headwater.client.client import Client
from headwater.client.consumer.commits import AutoCommit, Commits, Verdict
from headwater.client.consumer.group_link import GroupLink
from headwater.client.consumer.group_statistics import GroupStatistics
from headwater.client.consumer.group_topics import match_pattern
from headwater.client.consumer.heartbeats import Heartbeats
from headwater.client.consumer.listeners import RebalanceListener, Teller
from headwater.client.consumer.membership import CommitCallback, GroupMetadata, OffsetAndMetadata, Offsets
from headwater.client.consumer.settings import ConsumerSettings
from headwater.client.consumer.subscription import SubscriptionState
from headwater.client.errors import ClientError
from headwater.protocol.kafka_types import ErrorCode
from headwater.types import TopicPartition

logger = logging.getLogger(__name__)


class GroupMembership(ABC):
    """See the module's docstring. `wake` is called when a poll is needed that nobody may expect.

    `on_committed` is called with the offsets of every commit that the group has taken, whoever asked for it.
    """

    def __init__(
        self,
        client: Client,
        subscription: SubscriptionState,
        settings: ConsumerSettings,
        wake: Callable[[], None],
        *,
        statistics: GroupStatistics,
        on_committed: Callable[[Offsets], None],
    ) -> None:
        if settings.group_id is None:
            raise ValueError("a consumer without group.id is in no group")
        self.group_id = settings.group_id
        self._client = client
        self._subscription = subscription
        self._settings = settings
        self._wake = wake
        self._statistics = statistics
        self._link = GroupLink(client, self.group_id)
        self._back_off = BackOff(settings.retry_backoff_ms, settings.retry_backoff_max_ms)
        self._commits = Commits(
            self._link,
            self,
            self._back_off,
            settings.default_api_timeout_ms / 1000,
            statistics=statistics,
            on_committed=on_committed,
        )
        self._auto_commit = (
            AutoCommit(settings.auto_commit_interval_ms / 1000, settings.retry_backoff_ms / 1000)
            if settings.enable_auto_commit
            else None
        )
        self._teller = Teller()
        self._heartbeats = Heartbeats(
            interval_s=settings.heartbeat_interval_ms / 1000,
            session_s=settings.session_timeout_ms / 1000,
            max_poll_interval_s=settings.max_poll_interval_ms / 1000,
            retry_s=settings.retry_backoff_ms / 1000,
        )
        self._failure: ClientError | None = None
        self._pulse = asyncio.Event()
        """Set when something has changed that the heartbeat task or a poll may wait for."""
        self._beating: asyncio.Task[None] | None = None
        self._watched_topics: frozenset[str] | None = frozenset()
        self._missing_topics_timer: asyncio.TimerHandle | None = None
        client.on_metadata.append(self._on_metadata)

    @property
    def listener(self) -> RebalanceListener | None:
        """Who is told of rebalances."""
        return self._teller.listener

    @listener.setter
    def listener(self, listener: RebalanceListener | None) -> None:
        self._teller.listener = listener

    @property
    @abstractmethod
    def metadata(self) -> GroupMetadata:
        """Who this consumer is now."""

    @property
    @abstractmethod
    def poll_needed(self) -> bool:
        """Whether a poll would change something now."""

    @abstractmethod
    def commits_as(self) -> GroupMetadata:
        """In whose name offsets are committed; see `Committer`."""

    @abstractmethod
    def commit_answered(self, code: ErrorCode, sent: GroupMetadata) -> Verdict:
        """Takes in a refused commit; see `Committer`."""

    @abstractmethod
    async def leave(self) -> None:
        """Gives everything up."""

    @abstractmethod
    async def _take_part(self, deadline_s: float) -> None:
        """Does what the group wants of us, until the deadline."""

    @abstractmethod
    async def _beat_forever(self) -> None:
        """The heartbeat task."""

    @abstractmethod
    def _picture_changed(self) -> None:
        """There is a new picture of the cluster."""

    async def poll(self, timeout_s: float) -> None:
        """Takes part in the group; see `Membership`."""
        await self._commits.run_callbacks()
        if self._subscription.subscribed:
            self._heartbeats.polled(now_s())
            self._raise_failure()
            self._watch_topics()
            if self._beating is not None and self._beating.done():
                self._beating.result()
            if self._beating is None:
                self._beating = asyncio.create_task(self._beat_forever(), name=f"heartbeats of group {self.group_id}")
            await self._take_part(now_s() + timeout_s)
            self._raise_failure()
            self._teller.raise_failure()
        self._commit_when_due()

    async def commit(self, offsets: Offsets | None = None, timeout_s: float | None = None) -> None:
        """Commits; see `Membership`."""
        await self._commits.commit(self._positions() if offsets is None else offsets, timeout_s)

    def commit_async(self, offsets: Offsets | None = None, callback: CommitCallback | None = None) -> None:
        """Commits without waiting; see `Membership`."""
        self._commits.commit_async(self._positions() if offsets is None else dict(offsets), callback)

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What is committed; see `Membership`."""
        return await self._commits.committed(partitions, timeout_s, self._asks_as)

    async def close(self, timeout_s: float = 30.0) -> None:
        """Commits, leaves and ends; see `Membership`."""
        deadline_s = now_s() + timeout_s
        try:
            await self._commit_before_they_go()
            await self._commits.settle(max(0.0, deadline_s - now_s()))
            await self.leave()
        finally:
            self._commits.cancel()
            if self._on_metadata in self._client.on_metadata:
                self._client.on_metadata.remove(self._on_metadata)
            if self._missing_topics_timer is not None:
                self._missing_topics_timer.cancel()

    def _asks_as(self) -> GroupMetadata | None:
        """In whose name committed offsets are asked for."""
        return None

    async def _commit_before_they_go(self) -> None:
        """Automatically, what may be committed of partitions that go: a failure costs that records are read again."""
        if self._auto_commit is None:
            return
        limit_ms = min(self._settings.request_timeout_ms, self._settings.max_poll_interval_ms)
        try:
            await self._commits.commit(self._handed_out(), limit_ms / 1000)
        except ClientError as error:
            logger.warning("offsets could not be committed before partitions go: %s", error)

    def _commit_when_due(self) -> None:
        if self._auto_commit is not None and self._auto_commit.due(now_s()):
            self._commits.commit_async(self._handed_out(), self._committed_automatically)

    def _committed_automatically(self, offsets: Offsets, error: Exception | None) -> None:
        if error is None or self._auto_commit is None:
            return
        logger.warning("an automatic commit of %d offsets failed: %s", len(offsets), error)
        if isinstance(error, ClientError) and self._client.may_pass(error):
            self._auto_commit.failed(now_s())

    def _handed_out(self) -> Offsets:
        handed_out = self._subscription.positions_handed_out()
        return {place: OffsetAndMetadata(*position) for place, position in handed_out.items()}

    def _positions(self) -> Offsets:
        return {place: OffsetAndMetadata(*position) for place, position in self._subscription.positions().items()}

    def _fail(self, failure: ClientError) -> None:
        """The next poll raises it."""
        self._failure = failure
        self._news()

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _news(self) -> None:
        self._pulse.set()
        self._wake()

    async def _wait_for_news(self, until_s: float | None) -> None:
        """Returns at news, or when the time has come."""
        self._pulse.clear()
        try:
            async with asyncio.timeout(None if until_s is None else max(0.0, until_s - now_s())):
                await self._pulse.wait()
        except TimeoutError:
            pass

    async def _stop_beating(self) -> None:
        beating, self._beating = self._beating, None
        if beating is not None:
            beating.cancel()
            await asyncio.wait([beating])

    def _watch_topics(self) -> None:
        topics = None if self._subscription.pattern is not None else self._subscription.subscribed_topics
        if topics is not self._watched_topics:
            self._watched_topics = topics
            self._client.watch(topics)

    def _on_metadata(self) -> None:
        if not self._subscription.subscribed:
            return
        match_pattern(self._client, self._subscription, exclude_internal=self._settings.exclude_internal_topics)
        missing = self._topics_of_interest().difference(self._client.known_topics)
        if missing and self._missing_topics_timer is None:
            # A topic that is not there yet is looked for now and then, so that it is read soon after it was made.
            self._missing_topics_timer = asyncio.get_running_loop().call_later(
                self._settings.retry_backoff_max_ms / 1000, self._look_for_missing_topics
            )
        self._picture_changed()

    def _topics_of_interest(self) -> frozenset[str]:
        """The topics that are looked for until they are there."""
        return self._subscription.subscribed_topics

    def _look_for_missing_topics(self) -> None:
        self._missing_topics_timer = None
        if self._subscription.subscribed:
            self._client.need_refresh()


def now_s() -> float:
    """The clock of memberships."""
    return time.monotonic()
