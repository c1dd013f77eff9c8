"""Patterns that clients give, of topics or transactional ids: the whole name matches, or it does not.

The pattern comes from a client and is matched on the broker's only thread, so the time must be bound: the tree becomes
an automaton that reads a name once, one step for each character, as in RE2. Steps are worked out when first needed.

A pattern is bounded: in its length before anything is made of it, in the points of its automaton, and in what is kept
of its steps, a few megabytes. One step takes a millisecond at worst, so whoever has much to match takes them one by one
(`steps`).
"""

import functools
from collections.abc import Generator
from typing import Final

from headwater.coordinator.pattern_syntax import WORD, Chars, Choice, Node, PatternError, Place, Repeat, Row, parse

MAX_LENGTH: Final = 4_000
"""In characters: some hundred names of topics, one after the other."""
_MAX_POINTS: Final = 2_000
_MAX_KEPT: Final = 20_000
"""Points in all states that are kept, a state counting for eight more and a way to another for two."""
_PATTERNS_KEPT: Final = 8


class Pattern:
    """A pattern, ready to match.

    >>> Pattern("orders-.*").matches("orders-eu")
    True

    `PatternError` when the text is no pattern, or too large a one.
    """

    def __init__(self, text: str) -> None:
        # Points of the automaton: those that read a character, those that hold at a place, and the ways on from each.
        self._reads: list[frozenset[str] | None] = [None]
        self._holds: list[str | None] = [None]
        self._ways: list[list[int]] = [[]]
        self._states: dict[tuple[frozenset[int], str], _State] = {}
        self._kept = 0
        if len(text) > MAX_LENGTH:
            raise PatternError(f"{len(text)} characters; {MAX_LENGTH} are allowed")
        self._start = self._state(frozenset({self._build(parse(text), 0)}), "")

    def matches(self, name: str) -> bool:
        """Whether the whole of `name` matches."""
        steps = self.steps(name)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return bool(end.value)

    def steps(self, name: str) -> Generator[None, None, bool]:
        """Whether the whole of `name` matches, with a pause after every step that had to be worked out."""
        state = self._start
        for char in name:
            known = state.after.get(char)
            if known is None:
                state = self._step(state, char)
                yield
            else:
                state = known
        if state.accepts is None:
            state.accepts = 0 in self._reachable(state, "")
        return state.accepts

    def _build(self, node: Node, then: int) -> int:
        """Adds the points of a node that goes on to the point `then` (0 is the end); where it begins."""
        match node:
            case Chars(chars):
                return self._point(then, reads=chars)
            case Place(name):
                return self._point(then, holds=name)
            case Row(items):
                for item in reversed(items):
                    then = self._build(item, then)
                return then
            case Choice(items):
                return self._point(*[self._build(item, then) for item in items])
            case Repeat(item, least, most):
                return self._repeat(item, least, most, then)

    def _repeat(self, item: Node, least: int, most: int | None, then: int) -> int:
        if most is None:
            then = self._point(then)
            self._ways[then].append(self._build(item, then))
        else:
            end = then
            for _ in range(most - least):
                then = self._point(self._build(item, then), end)
        for _ in range(least):
            then = self._build(item, then)
        return then

    def _point(self, *ways: int, reads: frozenset[str] | None = None, holds: str | None = None) -> int:
        if len(self._ways) >= _MAX_POINTS:
            raise PatternError("expression too large")
        self._reads.append(reads)
        self._holds.append(holds)
        self._ways.append(list(ways))
        return len(self._ways) - 1

    def _step(self, state: "_State", char: str) -> "_State":
        points = (point for point in self._reachable(state, char) if char in (self._reads[point] or ()))
        after = self._state(frozenset(way for point in points for way in self._ways[point]), char)
        state.after[char] = after
        self._kept += 2
        return after

    def _reachable(self, state: "_State", following: str) -> set[int]:
        """The points that can be reached before the character `following` is read ("" is the end)."""
        reached: set[int] = set()
        ahead = list(state.points)
        while ahead:
            point = ahead.pop()
            if point in reached:
                continue
            holds = self._holds[point]
            if holds is None or _holds(holds, state.before, following):
                reached.add(point)
                if self._reads[point] is None:
                    ahead += self._ways[point]
        return reached

    def _state(self, points: frozenset[int], before: str) -> "_State":
        key = (points, "" if not before else "w" if before in WORD else "-")
        state = self._states.get(key)
        if state is None:
            if self._kept + len(points) + 8 > _MAX_KEPT:
                self._forget()
            self._kept += len(points) + 8
            state = self._states[key] = _State(*key)
        return state

    def _forget(self) -> None:
        """Bounds the memory of a pattern with very many states."""
        for state in self._states.values():
            state.after.clear()
        self._states.clear()
        self._start.after.clear()
        self._kept = 0


@functools.lru_cache(maxsize=_PATTERNS_KEPT)
def compiled(text: str) -> Pattern:
    """A pattern, the same as before when it was asked for lately."""
    return Pattern(text)


class _State:
    """Points that may be current, and what was read just before: "" at the begin, "w" in a word, "-" else."""

    __slots__ = ("accepts", "after", "before", "points")

    def __init__(self, points: frozenset[int], before: str) -> None:
        self.points = points
        self.before = before
        self.after: dict[str, _State] = {}
        self.accepts: bool | None = None


def _holds(place: str, before: str, following: str) -> bool:
    if place == "begin":
        return not before
    if place == "end":
        return not following
    is_boundary = (before == "w") != (following in WORD)
    return is_boundary == (place == "boundary")
