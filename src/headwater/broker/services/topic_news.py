"""Tells consumer groups that topics came, went or grew: group after group, in slices.

A thousand groups and ten thousand topics are too much for one turn of the loop, and so is a pattern that somebody made
to be slow. As in Apache, groups hear of a topic a moment later than Metadata tells of it. Changes that come meanwhile
are told in one more round.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headwater.broker.services.clock import now_ms
from headwater.broker.services.turns import Work

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

_BETWEEN_LOOKS_S: Final = 1.0


class TopicNews:
    """The news of one broker's topics."""

    def __init__(self, broker: "Broker", learn: Callable[[str], Work[None]]) -> None:
        self._broker = broker
        self._learn = learn
        self._deleted: set[str] = set()
        self._is_news = False
        self._is_telling = False
        self._later: asyncio.TimerHandle | None = None

    def tell(self, deleted: str | None) -> None:
        """Topics came or grew, or one was deleted."""
        if deleted is not None:
            self._deleted.add(deleted)
        self._is_news = True
        if not self._is_telling:
            self._is_telling = True
            self._broker.in_background(self._tell_all())

    def tell_later(self) -> None:
        """A group could not know what its patterns match: it looks again soon."""
        if self._later is None:
            self._later = asyncio.get_running_loop().call_later(_BETWEEN_LOOKS_S, self._tell_now)

    def stop(self) -> None:
        """Tells nothing more."""
        if self._later is not None:
            self._later.cancel()

    def _tell_now(self) -> None:
        self._later = None
        self.tell(None)

    async def _tell_all(self) -> None:
        try:
            while self._is_news:
                self._is_news = False
                deleted, self._deleted = self._deleted, set()
                await self._broker.dispatcher.turns.finish(self._round(deleted))
        finally:
            self._is_telling = False

    def _round(self, deleted: set[str]) -> Work[None]:
        for running in self._broker.groups.loaded():
            for outcome in running.shard.topics_deleted(deleted, now_ms()) if deleted else ():
                running.carry_out(outcome)
                yield None
            for group_id, patterns in running.shard.patterns():
                for pattern in patterns:
                    yield from self._learn(pattern)
                if not running.is_loaded:
                    break
                running.carry_out_all([running.shard.look_at_topics(group_id, now_ms())])
                yield None
