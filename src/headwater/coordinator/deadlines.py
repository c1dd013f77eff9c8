"""Deadlines by name, for timers without a clock: whoever runs the shard asks when the next one is and what is due."""

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

Name = TypeVar("Name", bound=Hashable)


class Deadlines(Generic[Name]):
    """Each name has one deadline at most; setting it again moves it.

    >>> deadlines = Deadlines[str]()
    >>> deadlines.set("session", 10)
    >>> deadlines.due(10)
    ['session']
    """

    def __init__(self) -> None:
        self._at_ms: dict[Name, int] = {}
        self._heap: list[tuple[int, int, Name]] = []
        self._entry: dict[Name, int] = {}
        """The number of each name's entry in the heap; entries with another number no longer count."""
        self._count = 0

    def set(self, name: Name, at_ms: int) -> None:
        """Sets or moves a deadline.

        A later one leaves the heap as it is: most deadlines are moved again and again by heartbeats and looked at once.
        """
        earlier_than = self._at_ms.get(name)
        self._at_ms[name] = at_ms
        if earlier_than is None or at_ms < earlier_than:
            self._push(name, at_ms)

    def cancel(self, name: Name) -> None:
        """Forgets a deadline, if there is one."""
        if self._at_ms.pop(name, None) is not None:
            del self._entry[name]

    def get(self, name: Name) -> int | None:
        """When a name is due, None if it is not set."""
        return self._at_ms.get(name)

    def next_ms(self) -> int | None:
        """The earliest deadline."""
        self._settle()
        return self._heap[0][0] if self._heap else None

    def take(self, now_ms: int) -> Name | None:
        """Takes out the earliest of those that are due; None when none is."""
        self._settle()
        if not self._heap or self._heap[0][0] > now_ms:
            return None
        name = heapq.heappop(self._heap)[2]
        del self._at_ms[name], self._entry[name]
        return name

    def due(self, now_ms: int) -> list[Name]:
        """Takes out all that are due, earliest first."""
        names: list[Name] = []
        while (name := self.take(now_ms)) is not None:
            names.append(name)
        return names

    def _settle(self) -> None:
        """Makes the heap's top a deadline that holds: those that were moved go back in at their new time."""
        while self._heap:
            at_ms, number, name = self._heap[0]
            if self._entry.get(name) == number:
                holds_ms = self._at_ms[name]
                if holds_ms == at_ms:
                    return
                heapq.heappop(self._heap)
                self._push(name, holds_ms)
            else:
                heapq.heappop(self._heap)

    def _push(self, name: Name, at_ms: int) -> None:
        self._count += 1
        self._entry[name] = self._count
        heapq.heappush(self._heap, (at_ms, self._count, name))
