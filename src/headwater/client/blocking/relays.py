"""Has functions of the user called in the thread that waits for the client, where they may use the client."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from headwater.client.blocking.io_thread import IoThread
from headwater.client.consumer.listeners import RebalanceListener
from headwater.client.consumer.membership import CommitCallback, Offsets
from headwater.types import TopicPartition


def relayed_listener(io: IoThread, listener: RebalanceListener) -> RebalanceListener:
    """A listener for the asyncio consumer whose methods are called in the caller's thread."""
    return _RelayedListener(io, listener)


def relayed_callback(io: IoThread, callback: CommitCallback) -> CommitCallback:
    """The same for a call-back of commits."""

    async def relayed(offsets: Offsets, error: Exception | None) -> None:
        await io.in_callers_thread(lambda: _plain(callback, offsets, error))

    return relayed


class _RelayedListener(RebalanceListener):
    def __init__(self, io: IoThread, listener: RebalanceListener) -> None:
        self._io = io
        self._listener = listener

    async def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        await self._io.in_callers_thread(lambda: _plain(self._listener.on_assigned, partitions))

    async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        await self._io.in_callers_thread(lambda: _plain(self._listener.on_revoked, partitions))

    async def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        await self._io.in_callers_thread(lambda: _plain(self._listener.on_lost, partitions))


def _plain(function: Callable[..., Any], *arguments: Any) -> None:
    result = function(*arguments)
    if inspect.iscoroutine(result):
        result.close()
        raise TypeError(f"{function!r} is async: a blocking consumer calls plain functions only")
