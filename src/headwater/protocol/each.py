"""Rows of a response that are made one by one, while the response is written.

A handler that answers thousands of items would hold up the event loop, and hold all of its rows in memory, if it made
a tuple of them. With `each` it says how a row is made; whoever writes the response makes them, and may serve others in
between. So a row tells what holds when it is written, not when the request came. Rows are made again whenever they are
gone over: a response is written once.
"""

import itertools
import typing
from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeVar

S = TypeVar("S")
T = TypeVar("T")


class Each(Collection[Any]):
    """Stands for `tuple(make(item) for item in items)` in a response, and is equal to it."""

    __slots__ = ("_items", "make")

    def __init__(self, make: Callable[[Any], Any], items: Collection[Any]) -> None:
        self.make = make
        self._items = items

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (Each, tuple)) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, number: int) -> Any:
        return self.make(next(itertools.islice(self._items, number, None)))

    def __contains__(self, row: object) -> bool:
        return any(row == each for each in self)

    def __iter__(self) -> Iterator[Any]:
        return map(self.make, self._items)


def each(make: Callable[[S], T], items: Collection[S]) -> tuple[T, ...]:
    """The rows that `make` makes of `items`, when they are written. `items` must not change until then.

    >>> rows = each(str, [1, 2])
    >>> len(rows), list(rows)
    (2, ['1', '2'])
    """
    return typing.cast(tuple[T, ...], Each(make, items))
