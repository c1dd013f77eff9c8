"""Runs coroutine tests on both event loops that clients meet: asyncio's own and uvloop's."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

Test = Coroutine[Any, Any, None]
Run = Callable[[Test], None]

both_loops = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
"""Gives a test the parameter `run`."""


def run_limited(run: Run, test: Test, limit_s: float = 20) -> None:
    """Runs the test to its end; what hangs has failed."""

    async def limited() -> None:
        async with asyncio.timeout(limit_s):
            await test

    run(limited())


def on_both_loops(test: Callable[[], Test]) -> Callable[..., None]:
    """Makes a coroutine function without parameters a test."""

    @both_loops
    def run_it(run: Run) -> None:
        run_limited(run, test())

    # Not functools.wraps: pytest would follow it to a test without the parameter.
    run_it.__name__, run_it.__doc__ = test.__name__, test.__doc__
    return run_it
