"""Work in a thread that is waited for even when whoever asked for it is cancelled.

A thread cannot be stopped half-way: a broker that stops must not close the files that a request's thread still writes.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def run_to_end(work: Callable[[], T]) -> T:
    """Runs `work` in a thread. Cancelled, it ends when the thread has ended."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
