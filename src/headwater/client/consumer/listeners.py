"""What a user is told of rebalances, and how functions that may be plain or async are called."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from headwater.client.errors import ClientError
from headwater.types import TopicPartition


class ListenerError(ClientError):
    """A function of the user failed while the group rebalanced; its own error is the cause. The rebalance went on."""


class RebalanceListener:
    """Told by `poll` and `close`, before these return. Override what you need, with plain or `async` methods.

    >>> class Notes(RebalanceListener):
    ...     async def on_revoked(self, partitions):
    ...         await consumer.commit()
    """

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> Any:
        """These came; with a cooperative assignor or the consumer protocol, beside those that are there already."""

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> Any:
        """These go, and are still ours: the last moment to commit."""

    def on_lost(self, partitions: Sequence[TopicPartition]) -> Any:
        """These are somebody else's already: a commit would be refused. Without a method of its own, `on_revoked`."""
        return self.on_revoked(partitions)


async def call(function: Callable[..., Any], *arguments: Any) -> None:
    """Calls a plain or an async function."""
    result = function(*arguments)
    if inspect.isawaitable(result):
        await result


class Teller:
    """Tells the listener and keeps its first error, so that a rebalance is completed before the user hears of it."""

    def __init__(self) -> None:
        self.listener: RebalanceListener | None = None
        self._failure: Exception | None = None

    async def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """After the partitions were added; also when there are none, as the end of a rebalance."""
        if self.listener is not None:
            await self._tell(self.listener.on_assigned, partitions)

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Before the partitions are taken away."""
        if self.listener is not None and partitions:
            await self._tell(self.listener.on_revoked, partitions)

    async def lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Before partitions that are no longer ours are taken away."""
        if self.listener is not None and partitions:
            await self._tell(self.listener.on_lost, partitions)

    def raise_failure(self) -> None:
        """Raises what the listener has failed with since the last time."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise ListenerError(f"the rebalance listener failed: {failure or type(failure).__name__}") from failure

    async def _tell(self, function: Callable[..., Any], partitions: Sequence[TopicPartition]) -> None:
        try:
            await call(function, sorted(partitions))
        except Exception as error:
            self._failure = self._failure or error
