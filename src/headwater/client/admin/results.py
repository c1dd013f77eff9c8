"""What came of each of several things: one failure does not hide the others' success."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import Final, TypeVar

from headwater.client.errors import ClientError, RefusedError, TimedOutError

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

_AT_ONCE: Final = 32


class Results(dict[K, T | ClientError]):
    """For each thing that was asked for, in that order, its result or its error. Nothing is raised unasked.

    >>> results = Results({"orders": 3, "invoices": ClientError("topic invoices: no such topic")})
    >>> results.succeeded, results.failed
    ({'orders': 3}, {'invoices': ClientError('topic invoices: no such topic')})
    """

    @property
    def succeeded(self) -> dict[K, T]:
        """Those with a result."""
        return {thing: result for thing, result in self.items() if not isinstance(result, ClientError)}

    @property
    def failed(self) -> dict[K, ClientError]:
        """Those with an error."""
        return {thing: result for thing, result in self.items() if isinstance(result, ClientError)}

    def one(self, thing: K) -> T:
        """The result of one thing; its error is raised.

        >>> Results({"orders": 3}).one("orders")
        3
        """
        result = self[thing]
        if isinstance(result, ClientError):
            raise result
        return result

    def or_raise(self) -> dict[K, T]:
        """All results; the first error is raised if there is any.

        >>> Results({"orders": 3}).or_raise()["orders"]
        3
        """
        for error in self.failed.values():
            raise error
        return self.succeeded


async def for_each(things: Iterable[K], operation: Callable[[K], Awaitable[T]]) -> Results[K, T]:
    """Runs `operation` with every thing, some at a time; what is refused to one of them is that one's result."""
    places = asyncio.Semaphore(_AT_ONCE)

    async def run(thing: K) -> T | ClientError:
        async with places:
            try:
                return await operation(thing)
            except (RefusedError, TimedOutError) as error:
                return error

    wanted = distinct(things)
    return Results(zip(wanted, await asyncio.gather(*map(run, wanted)), strict=True))


def distinct(things: Iterable[K]) -> list[K]:
    """Each thing once. A lone name is a collection too, of its letters: whoever gives one means something else."""
    if isinstance(things, str):
        raise TypeError(f"give a collection of names: [{things!r}], not {things!r}")
    return list(dict.fromkeys(things))
