"""The schema after a load: what the table has, plus what was seen. Nothing is taken away; every change has words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.types as pt

from headwater.lake.shapes.declared import name_of_type, wider
from headwater.lake.shapes.fitting import is_text
from headwater.lake.shapes.new_types import (
    GROUPS,
    NUMBERS,
    declared_type,
    groups_by_frequency,
    holds_scalars,
    is_map,
    scalar_type,
)
from headwater.lake.shapes.parsing import user_fields
from headwater.lake.shapes.paths import elements, is_metadata, join
from headwater.lake.shapes.policies import Policies
from headwater.lake.shapes.scalars import LONGEST_DECIMAL, Kind
from headwater.lake.shapes.shape import CSV_SOURCE, Node, Shape

ChangeKind = Literal["create", "add", "widen", "conflict", "rewrite"]

LONGEST_NAME = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChange:
    """One change of a schema, or a conflict that changes nothing, in words for people."""

    kind: ChangeKind
    path: str
    old_type: str | None = None
    new_type: str | None = None
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaPlan:
    """The user's fields in their final form, and how they came about."""

    schema: pa.Schema
    changes: tuple[SchemaChange, ...] = ()


def plan_schema(shape: Shape, current: pa.Schema | None = None, policies: Policies | None = None) -> SchemaPlan:
    """The schema that holds a table's columns and what was seen in new data.

    Columns stay, in their order, and get wider where Iceberg can; new ones follow. A field gets a column with its first
    value that is not null, `{}` or `[]`. Where kinds of values disagree the policy of the field decides.
    """
    planner = _Planner(policies or Policies(), text=shape.sources == {CSV_SOURCE}, new=current is None)
    existing = list(user_fields(current)) if current is not None else []
    if current is not None:
        planner.claim_all(existing, "")
        planner.note_required(current)
    fields = planner.fields(existing, shape.root, "", "", 0)
    return SchemaPlan(schema=pa.schema(fields), changes=tuple(planner.changes))


def words_of_type(type_: pa.DataType) -> str:
    """A type as people know it from tables."""
    if pt.is_struct(type_):
        return f"struct<{', '.join(f'{field.name}: {words_of_type(field.type)}' for field in type_)}>"
    if pt.is_list(type_) or pt.is_large_list(type_):
        return f"list<{words_of_type(type_.value_type)}>"
    if pt.is_map(type_):
        return f"map<{words_of_type(type_.key_type)}, {words_of_type(type_.item_type)}>"
    short = {"int32": "int", "int64": "long", "date32": "date", "time64": "time"}
    name = name_of_type(type_)
    return short.get(name, name)


class _Planner:
    """Walks over what was seen, together with what the table has."""

    def __init__(self, policies: Policies, *, text: bool, new: bool) -> None:
        self._policies = policies
        self._text = text
        self._kind: ChangeKind = "create" if new else "add"
        self._claimed: set[str] = set()
        self.changes: list[SchemaChange] = []

    def note(self, kind: ChangeKind, path: str, words: str, old: object = None, new: object = None) -> None:
        """Remembers a change."""
        types = [None if type_ is None else words_of_type(type_) for type_ in (old, new)]
        self.changes.append(SchemaChange(kind=kind, path=path, old_type=types[0], new_type=types[1], words=words))

    def note_required(self, current: pa.Schema) -> None:
        """Any field may be missing from a record, so none can stay required."""
        for field in current:
            if not field.nullable and not is_metadata(field.name):
                self.note("widen", field.name, f"{field.name} may be null from now on", field.type, field.type)

    def claim(self, full: str) -> bool:
        """Takes a full name, as Iceberg knows it; false if another field has it, in whatever case."""
        name = full.lower()
        if name in self._claimed:
            return False
        self._claimed.add(name)
        return True

    def _collides(self, path: str, full: str, *names: str) -> bool:
        """Whether another field has the full name that Iceberg gives to what is inside of a list or a map."""
        for name in names:
            if _dotted(full, name).lower() in self._claimed:
                self.note("conflict", path, f"{path} collides with the field {_dotted(full, name)}: kept in _rescued")
                return True
        return False

    def claim_all(self, fields: list[pa.Field], full: str) -> None:
        """Takes the names of fields that exist."""
        for field in fields:
            self._claim_type(field.type, _dotted(full, field.name))

    def _claim_type(self, type_: pa.DataType, full: str) -> None:
        self.claim(full)
        if pt.is_struct(type_):
            self.claim_all(list(type_), full)
        elif pt.is_list(type_) or pt.is_large_list(type_):
            self._claim_type(type_.value_type, _dotted(full, "element"))
        elif pt.is_map(type_):
            self._claim_type(type_.key_type, _dotted(full, "key"))
            self._claim_type(type_.item_type, _dotted(full, "value"))

    def fields(self, existing: list[pa.Field], node: Node, path: str, full: str, depth: int) -> list[pa.Field]:
        """The fields of an object: those it has, then new ones."""
        result: list[pa.Field] = []
        spills: list[pa.Field] = []
        taken = {field.name for field in existing}
        texts = {field.name for field in existing if is_text(field.type)}
        for field in existing:
            child = None if self._policies.is_spill(path, field.name) else node.fields.get(field.name)
            result.append(field if child is None else self._widened(field, child, path, full, depth, texts, spills))
        lower = {name.lower() for name in taken}
        for name, child in _by_position(node):
            if self._may_be_column(name, lower, path, child):
                lower.add(name.lower())
                result += self._new_field(name, child, path, full, depth)
        return result + spills

    def _may_be_column(self, name: str, taken: set[str], path: str, child: Node) -> bool:
        if not any(child.counts[Kind.BOOL :]) and not child.declared:
            return False
        where = join(path, name)
        if not path and is_metadata(name):
            self.note(
                "conflict", where, f"{where} is a column of the load: the values of the field are kept in _rescued"
            )
            return False
        if self._policies.is_spill(path, name):
            self.note("conflict", where, f"{where} is the name of a second column: its values are kept in _rescued")
            return False
        if name.lower() in taken:
            if name not in taken:
                self.note("conflict", where, f"{where} differs from another field only by case: kept in _rescued")
            return False
        if not name or len(name) > LONGEST_NAME or any(character < " " for character in name):
            self.note("conflict", where, f"{where} is no name for a column: its values are kept in _rescued")
            return False
        return True

    def _new_field(self, name: str, child: Node, path: str, full: str, depth: int) -> list[pa.Field]:
        where, dotted = join(path, name), _dotted(full, name)
        if dotted.lower() in self._claimed:
            self.note("conflict", where, f"{where} collides with the field {dotted}: its values are kept in _rescued")
            return []
        type_, others = self.type_of(child, where, dotted, depth + 1)
        if type_ is None:
            return []
        self._claim_type(type_, dotted)
        self.note(self._kind, where, f"{where} is new: {words_of_type(type_)}", None, type_)
        field = pa.field(name, type_)
        if not others:
            return [field]
        spill = self._spill(name, child, path, full, type_)
        return [field, spill] if spill is not None else [field]

    def type_of(self, node: Node, path: str, full: str, depth: int) -> tuple[pa.DataType | None, bool]:
        """The type of a new field, and whether some values do not fit it; None: no column yet."""
        if node.declared:
            return declared_type(node), False
        groups = list(groups_by_frequency(node))
        if len(groups) > 1 and (self._text or self._policies.of(path) == "string"):
            return pa.string(), False
        for group, _ in groups:
            found = self._group_type(node, group, path, full, depth)
            if found is not None:
                return found, len(groups) > 1 or not holds_scalars(found, node)
        return None, bool(groups)

    def _group_type(self, node: Node, group: str, path: str, full: str, depth: int) -> pa.DataType | None:
        if group == "objects":
            return self._object_type(node, path, full, depth)
        if group == "arrays":
            if node.element is None or self._collides(path, full, "element"):
                return None
            element, others = self.type_of(node.element, elements(path), _dotted(full, "element"), depth + 1)
            if element is not None and others:
                self._note_misfits("elements", path, node.element, element)
            return None if element is None else pa.list_(element)
        return scalar_type(node, group)

    def _object_type(self, node: Node, path: str, full: str, depth: int) -> pa.DataType | None:
        if is_map(node):
            values = Node()
            values.absorb(node, depth)
            merged = values.collapse(depth)
            item, others = self.type_of(merged, elements(path), _dotted(full, "value"), depth + 1)
            fits = item is not None and (not others or node.values is not None)
            if fits and not self._collides(path, full, "key", "value"):
                if others:
                    self._note_misfits("values", path, merged, item)
                return pa.map_(pa.string(), item)
        before = len(self.changes)
        fields = self.fields([], node, path, full, depth)
        # The type of the whole says it already.
        self.changes[before:] = [change for change in self.changes[before:] if change.kind != self._kind]
        return pa.struct(fields) if fields else None

    def _spill(self, name: str, child: Node, path: str, full: str, type_: pa.DataType) -> pa.Field | None:
        """Says what does not fit; the second column of the policy `columns`, if that is to be made."""
        where = join(path, name)
        words = f"not all values of {where} fit {words_of_type(type_)} (seen: {_seen(child)})"
        spill = self._policies.spill_of(path, name)
        if spill is None or not self.claim(_dotted(full, spill)):
            self.note("conflict", where, f"{words}: the others are kept in _rescued", type_, type_)
            return None
        second = join(path, spill)
        self.note("conflict", where, f"{words}: the others are in {second}", type_, type_)
        self.note(self._kind, second, f"{second} is new: string", None, pa.string())
        return pa.field(spill, pa.string())

    def _widened(
        self, field: pa.Field, node: Node, path: str, full: str, depth: int, texts: set[str], spills: list[pa.Field]
    ) -> pa.Field:
        where = join(path, field.name)
        before = len(self.changes)
        type_, fits = self._wider_type(field.type, node, where, _dotted(full, field.name), depth + 1)
        if fits:
            return field.with_type(type_)
        policy = self._policies.of(where)
        if policy == "string" and self._policies.rewrite:
            # What would have changed inside of it is in its text.
            del self.changes[before:]
            words = f"{where} is rewritten as string: its values become their texts, in a commit before the load"
            self.note("rewrite", where, words, field.type, pa.string())
            return field.with_type(pa.string())
        if self._policies.spill_of(path, field.name) in texts:
            return field.with_type(type_)
        spill = self._spill(field.name, node, path, full, type_)
        if spill is not None:
            spills.append(spill)
        return field.with_type(type_)

    def _wider_type(self, type_: pa.DataType, node: Node, path: str, full: str, depth: int) -> tuple[pa.DataType, bool]:
        """The type of a column after new values, and whether all of them may fit."""
        if node.declared:
            return self._wider_declared(type_, node, path)
        groups = {group for group, _ in groups_by_frequency(node)}
        if pt.is_struct(type_):
            fields = self.fields(list(type_), node, path, full, depth)
            return pa.struct(fields), groups <= {"objects"}
        if pt.is_list(type_) or pt.is_large_list(type_):
            return self._wider_list(type_, node, path, full, depth), groups <= {"arrays"}
        if pt.is_map(type_):
            return self._wider_map(type_, node, path, full, depth), groups <= {"objects"}
        if is_text(type_):
            return type_, groups <= {"strings"} or self._text or self._policies.of(path) == "string"
        number = _wider_number(type_, node)
        if number != type_:
            words = f"{path} grows from {words_of_type(type_)} to {words_of_type(number)}"
            self.note("widen", path, words, type_, number)
        return number, holds_scalars(number, node)

    def _wider_list(self, type_: pa.DataType, node: Node, path: str, full: str, depth: int) -> pa.DataType:
        if node.element is None:
            return type_
        below = elements(path)
        element, fits = self._wider_type(type_.value_type, node.element, below, _dotted(full, "element"), depth + 1)
        if not fits:
            self._note_misfits("elements", path, node.element, element)
        make = pa.large_list if pt.is_large_list(type_) else pa.list_
        return make(type_.value_field.with_type(element))

    def _note_misfits(self, what: str, path: str, node: Node, type_: pa.DataType) -> None:
        words = f"not all {what} of {path} fit {words_of_type(type_)} (seen: {_seen(node)})"
        kept = "such arrays" if what == "elements" else "the others"
        self.note("conflict", elements(path), f"{words}: {kept} are kept in _rescued", type_, type_)

    def _wider_map(self, type_: pa.DataType, node: Node, path: str, full: str, depth: int) -> pa.DataType:
        values = Node()
        values.absorb(node, depth)
        below, merged = elements(path), values.collapse(depth)
        item, fits = self._wider_type(type_.item_type, merged, below, _dotted(full, "value"), depth + 1)
        if not fits:
            self._note_misfits("values", path, merged, item)
        return pa.map_(type_.key_field, type_.item_field.with_type(item))

    def _wider_declared(self, type_: pa.DataType, node: Node, path: str) -> tuple[pa.DataType, bool]:
        declared = declared_type(node)
        assert declared is not None
        found = wider(type_, declared)
        if found is not None and found != type_:
            words = f"{path} grows from {words_of_type(type_)} to {words_of_type(found)}"
            self.note("widen", path, words, type_, found)
        return (type_, False) if found is None else (found, True)


def _wider_number(type_: pa.DataType, node: Node) -> pa.DataType:
    """What Iceberg can make of a number column so that more of the numbers fit."""
    if type_ == pa.int32() and node.counts[Kind.LONG]:
        return pa.int64()
    if type_ == pa.float32() and node.count(Kind.DOUBLE, Kind.LONG):
        return pa.float64()
    if pt.is_decimal(type_):
        needed = node.before + type_.scale
        if node.count(*NUMBERS) and type_.precision < needed <= LONGEST_DECIMAL:
            return pa.decimal128(needed, type_.scale)
    return type_


def _dotted(full: str, name: str) -> str:
    return f"{full}.{name}" if full else name


def _by_position(node: Node) -> list[tuple[str, Node]]:
    """Fields in the order of full records; of spellings that differ by case the most frequent comes first."""
    leaders: dict[str, tuple[int, str]] = {}
    for name, child in node.fields.items():
        rank = (-sum(child.counts[Kind.BOOL :]), name)
        leaders[name.lower()] = min(leaders.get(name.lower(), rank), rank)

    def order(entry: tuple[str, Node]) -> tuple[int, int, str]:
        leads = leaders[entry[0].lower()][1] == entry[0]
        return (0 if leads else 1, entry[1].position, entry[0])

    return sorted(node.fields.items(), key=order)


def _seen(node: Node) -> str:
    return ", ".join(f"{count} {group}" for group, count in groups_by_frequency(node) if group in GROUPS)
