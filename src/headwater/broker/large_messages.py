"""Reads and writes large messages beside the event loop.

There is one thread for them: threads that run Python take turns with the loop, and the more there are, the longer the
loop waits for its turn.
"""

import asyncio
import dataclasses
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, ParamSpec, TypeVar

LARGE_REQUEST_BYTES: Final = 32 * 1024
"""A request above this takes the loop for more than a few milliseconds to read: three bytes may be an item."""
_LARGE_RESPONSE_ITEMS: Final = 4_000

P = ParamSpec("P")
R = TypeVar("R")


class LargeMessages:
    """The thread of one broker."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "headwater-large-messages")

    async def run(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls `work` in the thread. Cancelled before its turn, it is not called at all."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, functools.partial(work, *args, **kwargs))

    def close(self) -> None:
        """Ends the thread when its present work is done."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def is_large(message: Any) -> bool:
    """Whether a response has so many items that writing it would hold up the loop."""
    return _items(message, _LARGE_RESPONSE_ITEMS) > _LARGE_RESPONSE_ITEMS


def _items(message: Any, enough: int) -> int:
    """The items in all arrays of an entity. Counting ends when there are more than enough."""
    count = 0
    for name in _arrays(type(message)):
        items = getattr(message, name)
        if items:
            count += len(items)
            if _arrays(type(items[0])):
                for item in items:
                    if count > enough:
                        break
                    count += _items(item, enough - count)
    return count


def _arrays(entity: type[Any]) -> tuple[str, ...]:
    """The names of an entity's fields that hold arrays; none for anything else."""
    found = _array_names.get(entity)
    if found is None:
        fields = dataclasses.fields(entity) if dataclasses.is_dataclass(entity) else ()
        found = _array_names[entity] = tuple(field.name for field in fields if "tuple[" in str(field.type))
    return found


_array_names: dict[type[Any], tuple[str, ...]] = {}
