"""Members of a group on headwater's own client, each with its membership alone: nothing is fetched.

A member polls in a task of its own, as an application would, and writes down what its listener heard.
"""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any

import pytest

from headwater.client.client import Client
from headwater.client.consumer.group import membership_for
from headwater.client.consumer.listeners import RebalanceListener
from headwater.client.consumer.membership import Membership
from headwater.client.consumer.settings import consumer_settings
from headwater.client.consumer.subscription import SubscriptionState
from headwater.client.settings import ConnectionSettings
from headwater.types import TopicPartition

from .actions import Topic

PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])
_PATIENCE_S = 25
_PROMPT = {
    "heartbeat_interval_ms": 100,
    "session_timeout_ms": 10_000,
    "metadata_max_age_ms": 500,
    "enable_auto_commit": False,
}


def run(case: Coroutine[Any, Any, None]) -> None:
    """Runs an async case on a loop of its own."""
    asyncio.run(asyncio.wait_for(case, 60))


def all_of(topic: Topic, partitions: int) -> set[TopicPartition]:
    """The first partitions of a topic."""
    return {TopicPartition(topic.name, number) for number in range(partitions)}


class OurMember(RebalanceListener):
    """One member: its owned partitions, all events, and what a poll raised."""

    def __init__(self, name: str, bootstrap: str, group: str, **settings: Any) -> None:
        self.name = name
        protocol = settings.get("group_protocol", "classic")
        prompt = _PROMPT if protocol == "classic" else {"enable_auto_commit": False}
        self.settings = consumer_settings({**prompt, "group_id": group, "client_id": name, **settings})
        creates = bool(self.settings.connection["allow_auto_create_topics"])
        self.client = Client(
            bootstrap,
            ConnectionSettings(client_id=name, metadata_max_age_ms=500, allow_auto_create_topics=creates),
        )
        self.subscription = SubscriptionState(None)
        self.membership: Membership = membership_for(self.client, self.subscription, self.settings)
        self.membership.listener = self
        self.events: list[tuple[str, list[TopicPartition]]] = []
        self.errors: list[Exception] = []
        self.polls = True
        """Whether the task goes on polling: a test may hold it."""
        self.raises_end_polling = False
        """Whether it ends, as most applications do, when a poll raises."""
        self._task: asyncio.Task[None] | None = None

    @property
    def owned(self) -> set[TopicPartition]:
        """What it may read now."""
        return set(self.subscription.assigned)

    def of(self, event: str) -> list[list[TopicPartition]]:
        """What came with each event of one kind that named any partitions."""
        return [partitions for kind, partitions in self.events if kind == event and partitions]

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.events.append(("assigned", list(partitions)))

    async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.events.append(("revoked", list(partitions)))

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.events.append(("lost", list(partitions)))

    def start(self) -> None:
        """Begins to poll."""
        self._task = asyncio.create_task(self._poll_on())

    async def stop(self) -> None:
        """Leaves the group and ends."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        try:
            await self.membership.close()
        finally:
            await self.client.close()

    async def poll(self) -> None:
        """One poll."""
        await self.membership.poll(0.05)

    async def _poll_on(self) -> None:
        while True:
            if self.polls:
                try:
                    await self.poll()
                except Exception as error:
                    self.errors.append(error)
                    self.polls = not self.raises_end_polling
            await asyncio.sleep(0.01)


class OurMembers:
    """The members of one case; all that are left leave at its end."""

    def __init__(self, bootstrap: str, group: str, **settings: Any) -> None:
        self._bootstrap = bootstrap
        self.group = group
        self._settings = settings
        self.running: list[OurMember] = []

    def start(
        self,
        name: str,
        *topics: str,
        pattern: re.Pattern[str] | None = None,
        kind: type[OurMember] = OurMember,
        **settings: Any,
    ) -> OurMember:
        """A new member, which polls."""
        member = kind(name, self._bootstrap, self.group, **{**self._settings, **settings})
        if pattern is None:
            member.subscription.subscribe(topics)
        else:
            member.subscription.subscribe_pattern(pattern)
        member.start()
        self.running.append(member)
        return member

    async def stop(self, member: OurMember) -> None:
        """Ends one."""
        self.running.remove(member)
        await member.stop()

    async def until(
        self, condition: Callable[[], object], what: str, meanwhile: Callable[[], None] | None = None
    ) -> None:
        """Waits while all poll; `meanwhile` is done again and again in a thread."""
        deadline = time.monotonic() + _PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"not within {_PATIENCE_S} s: {what}; {self.story()}"
            if meanwhile is None:
                await asyncio.sleep(0.02)
            else:
                await asyncio.to_thread(meanwhile)

    def story(self) -> str:
        """What all have and have been told, for a failure to show."""
        return "; ".join(f"{m.name}: {sorted(m.owned)} {m.events} {m.errors}" for m in self.running)

    def spread(self, *counts: int) -> bool:
        """Whether the members own so many partitions each, in any order, and none twice."""
        shares = [member.owned for member in self.running]
        return sorted(map(len, shares)) == sorted(counts) and len(set().union(*shares)) == sum(counts)


@contextlib.asynccontextmanager
async def our_members(bootstrap: str, group: str, **settings: Any) -> AsyncIterator[OurMembers]:
    """See `OurMembers`."""
    members = OurMembers(bootstrap, group, **settings)
    try:
        yield members
    finally:
        for member in list(members.running):
            await members.stop(member)
