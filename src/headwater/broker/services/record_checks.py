"""The threads in which large and compressed batches are checked, away from the event loop.

There are few, so that what such batches take once decompressed stays within a few times the limit of one. The codecs
and the walk over the records work without the interpreter's lock.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")

_THREADS: Final = 2


class RecordChecks:
    """The threads of one broker; they start when they are needed first."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="record-checks")

    async def run(self, check: Callable[[], T]) -> T:
        """What `check` returns or raises, from a thread, in the order of the calls."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, check)

    def stop(self) -> None:
        """Takes no more; what is under way reads memory of its own and may end in peace."""
        self._threads.shutdown(wait=False, cancel_futures=True)
