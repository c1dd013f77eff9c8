"""What was seen in data: for every place in a record, how often which kind of value stood there.

Shapes of parts of the data are merged, in any order and grouping, to the same Shape. Its size is bounded: an object
with more keys than `field_limit` allows is taken for a map, of which only the values are described.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from headwater.lake.shapes.scalars import KINDS, Kind

MAX_SHAPE_DEPTH: Final = 24
"""What lies deeper gets no columns of its own: the value above it is rescued as text."""

JSON_SOURCE: Final = "json"
CSV_SOURCE: Final = "csv"
TYPED_SOURCE: Final = "typed"


def field_limit(depth: int) -> int:
    """So many different keys of an object at this depth (the record itself: 0) are told apart."""
    return (4096, 1024)[depth] if depth < 2 else 256


class Node:
    """What stood at one place: counts by kind, and what was inside of objects and arrays."""

    __slots__ = ("after", "before", "counts", "declared", "element", "fields", "position", "values")

    counts: list[int]
    """How often each Kind was seen."""
    position: int
    """The last place among its siblings where this field was seen: columns follow the order of full records."""
    before: int
    """The most digits before the point that a number needed, and after it."""
    after: int
    fields: dict[str, Node]
    values: Node | None
    """What stood under any key, once there were too many keys to tell apart; `fields` is empty then."""
    element: Node | None
    declared: frozenset[str]
    """Types by their names, where the source declares them (see `declared`)."""

    def __init__(self) -> None:
        self.counts = [0] * KINDS
        self.position = self.before = self.after = 0
        self.fields = {}
        self.values = self.element = None
        self.declared = frozenset()

    def field_seen(self, name: str, depth: int) -> Node:
        """The node of a field of this object, which is at this depth."""
        if self.values is not None:
            return self.values
        found = self.fields.get(name)
        if found is None:
            if len(self.fields) >= field_limit(depth):
                return self.collapse(depth)
            found = self.fields[name] = Node()
        return found

    def element_seen(self) -> Node:
        """The node of all elements of this array."""
        if self.element is None:
            self.element = Node()
        return self.element

    def collapse(self, depth: int) -> Node:
        """From now on the keys are not told apart."""
        if self.values is None:
            self.values = Node()
            for child in self.fields.values():
                self.values.absorb(child, depth + 1)
            self.values.position = 0
            self.fields = {}
        return self.values

    def absorb(self, other: Node, depth: int) -> None:
        """Adds what another node of the same place has seen; takes nothing of it by reference."""
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.position = max(self.position, other.position)
        self.before = max(self.before, other.before)
        self.after = max(self.after, other.after)
        self.declared |= other.declared
        if other.element is not None:
            self.element_seen().absorb(other.element, depth + 1)
        if other.values is not None:
            self.collapse(depth).absorb(other.values, depth + 1)
        for name, child in other.fields.items():
            self.absorb_field(name, child, depth)

    def absorb_field(self, name: str, other: Node, depth: int) -> None:
        """Adds what a node of one of the fields has seen; this object is at this depth."""
        mine = self.field_seen(name, depth)
        mine.absorb(other, depth + 1)
        if mine is self.values:
            mine.position = 0

    def count(self, *kinds: Kind) -> int:
        """How many values of these kinds were seen."""
        return sum(self.counts[kind] for kind in kinds)

    def to_plain(self) -> dict[str, Any]:
        """For JSON: only what is there."""
        plain: dict[str, Any] = {}
        seen = {str(int(kind)): self.counts[kind] for kind in Kind if self.counts[kind]}
        if seen:
            plain["k"] = seen
        numbers = {"p": self.position, "b": self.before, "a": self.after}
        plain |= {key: number for key, number in numbers.items() if number}
        if self.declared:
            plain["t"] = sorted(self.declared)
        if self.fields:
            plain["f"] = {name: self.fields[name].to_plain() for name in sorted(self.fields)}
        if self.values is not None:
            plain["v"] = self.values.to_plain()
        if self.element is not None:
            plain["e"] = self.element.to_plain()
        return plain

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Node:
        """The inverse of `to_plain`."""
        node = cls()
        for kind, count in plain.get("k", {}).items():
            node.counts[int(kind)] = count
        node.position, node.before, node.after = plain.get("p", 0), plain.get("b", 0), plain.get("a", 0)
        node.declared = frozenset(plain.get("t", ()))
        node.fields = {name: cls.from_plain(child) for name, child in plain.get("f", {}).items()}
        node.values = cls.from_plain(plain["v"]) if "v" in plain else None
        node.element = cls.from_plain(plain["e"]) if "e" in plain else None
        return node


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What was seen in some records.

    >>> from headwater.lake.shapes import shape_of_json
    >>> import pyarrow as pa
    >>> shape = shape_of_json(pa.array([b'{"a": 1}'])).merge(shape_of_json(pa.array([b'{"a": 2}', b"?"])))
    >>> shape.records, shape.corrupt
    (3, 1)
    """

    records: int = 0
    corrupt: int = 0
    """How many of the records are no JSON object."""
    sources: frozenset[str] = frozenset()
    root: Node = field(default_factory=Node)

    def merge(self, other: Shape) -> Shape:
        """What was seen in both."""
        return merge_shapes((self, other))

    def to_json(self) -> str:
        """Canonical: equal shapes have equal texts."""
        plain = {"n": self.records, "c": self.corrupt, "s": sorted(self.sources), "r": self.root.to_plain()}
        return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Shape:
        """The inverse of `to_json`."""
        plain = json.loads(text)
        root = Node.from_plain(plain["r"])
        return cls(records=plain["n"], corrupt=plain["c"], sources=frozenset(plain["s"]), root=root)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shape) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())


def merge_shapes(shapes: Iterable[Shape]) -> Shape:
    """What was seen in all of them; of none, nothing."""
    records = corrupt = 0
    sources: frozenset[str] = frozenset()
    root = Node()
    for shape in shapes:
        records += shape.records
        corrupt += shape.corrupt
        sources |= shape.sources
        root.absorb(shape.root, 0)
    return Shape(records=records, corrupt=corrupt, sources=sources, root=root)
