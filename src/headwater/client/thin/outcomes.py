"""How it went for each of several things: one failure does not hide the others' success."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from headwater.client.errors import RefusedError

T = TypeVar("T")

_AT_ONCE: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Generic[T]):
    """How it went for one of several: either `value` or `error` is set."""

    name: str
    value: T | None = None
    error: RefusedError | None = None


async def for_each(names: Iterable[str], operation: Callable[[str], Awaitable[T]]) -> list[Outcome[T]]:
    """Runs `operation` with every name, some at a time; what a broker refuses to one is that one's outcome."""
    places = asyncio.Semaphore(_AT_ONCE)

    async def run(name: str) -> Outcome[T]:
        async with places:
            try:
                return Outcome(name=name, value=await operation(name))
            except RefusedError as error:
                return Outcome(name=name, error=error)

    return list(await asyncio.gather(*map(run, names)))
