"""A consumer without a group: subscribed to topics, it reads all their partitions alone, and commits nothing."""

import time
from collections.abc import Iterable
from typing import Final

from headwater.client.client import Client
from headwater.client.consumer.errors import SubscriptionError
from headwater.client.consumer.listeners import RebalanceListener, Teller
from headwater.client.consumer.membership import CommitCallback, GroupMetadata, OffsetAndMetadata, Offsets
from headwater.client.consumer.subscription import SubscriptionState
from headwater.types import TopicPartition

_LOOKS_EVERY_S: Final = 0.5


class WithoutGroup:
    """Stands where the membership of a group would (`membership.Membership`)."""

    def __init__(self, client: Client, subscription: SubscriptionState) -> None:
        self._client = client
        self._subscription = subscription
        self._teller = Teller()
        self._assigned: dict[str, int] = {}
        self._next_look_s = 0.0

    @property
    def listener(self) -> RebalanceListener | None:
        """Told of partitions that come, at first and when a topic grows."""
        return self._teller.listener

    @listener.setter
    def listener(self, listener: RebalanceListener | None) -> None:
        self._teller.listener = listener

    async def poll(self, timeout_s: float) -> None:
        """Assigns the partitions that there are now; those that were assigned before keep their place."""
        self._look_for_missing_topics()
        seen = self._seen()
        if seen == self._assigned:
            return
        self._assigned = seen
        before = self._subscription.assigned
        wanted = [TopicPartition(topic, number) for topic, count in seen.items() for number in range(count)]
        self._subscription.assign_from_group(wanted)
        await self._teller.assigned([partition for partition in wanted if partition not in before])
        self._teller.raise_failure()

    @property
    def poll_needed(self) -> bool:
        """Whether partitions have come, or are still looked for."""
        return self._seen() != self._assigned or bool(self._missing())

    async def commit(self, offsets: Offsets | None = None, timeout_s: float | None = None) -> None:
        """Cannot be done."""
        raise _no_group("commit")

    def commit_async(self, offsets: Offsets | None = None, callback: CommitCallback | None = None) -> None:
        """Cannot be done."""
        raise _no_group("commit")

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Cannot be done."""
        raise _no_group("ask for committed offsets")

    async def leave(self) -> None:
        """There is nothing to leave."""
        self._assigned = {}

    async def close(self, timeout_s: float = 30.0) -> None:
        """There is nothing to close."""

    @property
    def metadata(self) -> GroupMetadata:
        """Nobody."""
        raise _no_group("be a member")

    def _missing(self) -> frozenset[str]:
        return self._subscription.subscribed_topics.difference(self._client.known_topics)

    def _look_for_missing_topics(self) -> None:
        """A topic that is not there yet is asked about now and then, so that it is read soon after it was made."""
        missing, now_s = self._missing(), time.monotonic()
        if missing and now_s >= self._next_look_s:
            self._next_look_s = now_s + _LOOKS_EVERY_S
            self._client.need_refresh(missing)

    def _seen(self) -> dict[str, int]:
        """The subscribed topics that there are, with their partitions."""
        if not self._subscription.subscribed:
            return {}
        counts = {topic: self._client.partition_count(topic) for topic in self._subscription.subscribed_topics}
        return {topic: count for topic, count in counts.items() if count}


def _no_group(wanted: str) -> SubscriptionError:
    return SubscriptionError(f"cannot {wanted} without a group: give the consumer one, as in group='billing'")
