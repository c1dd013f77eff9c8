"""Producer ids that were never handed out before, not even by an earlier run: reserved in blocks, taken one by one."""

import asyncio
from collections.abc import Iterator
from typing import Final

from headwater.broker.services.journal import Journal
from headwater.broker.services.threads import run_to_end
from headwater.cluster.changes import ProducerIdsReserved
from headwater.protocol.errors import ApiError, ErrorCode

_BLOCK: Final = 1000


class ProducerIds:
    """The ids of one broker."""

    def __init__(self, store: Journal) -> None:
        self._store = store
        self._reserved: Iterator[int] = iter(range(0))
        self._left = 0
        self._reserving = asyncio.Lock()

    async def next(self) -> int:
        """An id; waits while a block is being reserved."""
        await self.make_ready()
        return self.take()

    async def make_ready(self) -> None:
        """Sees to it that `take` finds an id."""
        async with self._reserving:
            if self._left:
                return
            first = self._store.image.next_producer_id
            reserved = ProducerIdsReserved(next_producer_id=first + _BLOCK)
            await run_to_end(lambda: self._store.append(reserved))
            self._reserved, self._left = iter(range(first, first + _BLOCK)), _BLOCK

    def take(self) -> int:
        """An id of the block at hand; ApiError, which clients take as "later", when there is none."""
        if not self._left:
            raise ApiError(ErrorCode.coordinator_load_in_progress, "no producer ids are reserved at the moment")
        self._left -= 1
        return next(self._reserved)
