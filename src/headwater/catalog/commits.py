"""What the catalog does with a commit: the decision that makes loads exactly once. Pure: no I/O, no clock.

In this order:

1. A snapshot of the request that the table already has, or that its load was committed with: the client did not hear
   our first answer. The answer is the table as it is. Anything else would make the client delete files of a committed
   snapshot, or write them twice.
2. A requirement that does not hold: a conflict (409). The client refreshes, and asks again.
3. A position that is not the one the writer read (`headwater.expect`), or a load that is not pending: refused (400).
   The client drops its files, because somebody else has loaded this data.
4. No position in the request (compaction, a DELETE, a person's insert): the parent snapshot's positions are carried
   forward, so that maintenance and expiry keep them.
5. Otherwise the swap, which the caller makes; when it loses, it asks again from 1 with the table as it is then.

A rewrite of all data (`headwater.replaces`, sent with CREATE OR REPLACE TABLE AS SELECT) is accepted only while the
table is the one that was read. It then follows the snapshot that it replaces, so the positions are carried forward.
Without that property, a table that is replaced begins anew.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from pyiceberg.schema import Schema
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AddSortOrderUpdate,
    AssertCreate,
    AssignUUIDUpdate,
    RemovePropertiesUpdate,
    SetDefaultSortOrderUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.types import IcebergType

from headwater.catalog.any_metadata import AnyMetadata
from headwater.catalog.entries import COMMITTED, PENDING, Load, SchemaChange
from headwater.catalog.ledger_json import change_from_json
from headwater.catalog.positions import Position, canonical, parse_positions
from headwater.catalog.requirements import TABLE_EXISTS, unmet
from headwater.catalog.snapshot_properties import EXPECT, LOAD, OFFSETS, REPLACES, state_replaced

_ADDED_ROWS: Final = "added-records"
_MOST_DIGITS: Final = 18
"""A number of so many digits fits into the ledger."""
_KEPT_BY_A_REWRITE: Final = (
    AddSortOrderUpdate,
    SetDefaultSortOrderUpdate,
    SetPropertiesUpdate,
    RemovePropertiesUpdate,
)
"""Updates of a rewrite that are left out: its statement cannot name the table's sort order, and adds an owner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlreadyThere:
    """The table has what the request asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """There is no such table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """The table is not what the client took it for; it may look again and retry."""

    why: str
    exists: bool = False
    """Whether the request was to create a table that exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The request must not be repeated."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedLoad:
    """A load that becomes committed with the swap."""

    load_id: str
    snapshot_id: int
    before: Position | None
    after: Position | None
    rows: int | None = None
    """The rows that its snapshot added, as the writer says."""
    rewrites: bool = False
    """Whether it rewrote all data, so that no other load that is under way fits the table any more."""
    changes: tuple[SchemaChange, ...] = ()
    """What the rewrite did to the schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """The updates to apply, positions settled, and the loads that are committed with them."""

    updates: tuple[TableUpdate, ...]
    loads: tuple[CommittedLoad, ...] = ()


Decision: TypeAlias = AlreadyThere | Absent | Conflict | Refusal | Swap


def loads_named(updates: Iterable[TableUpdate]) -> list[str]:
    """The ids of the loads that a request's snapshots belong to: what `decide` must know of the ledger."""
    named = (_text(update.snapshot, LOAD) for update in updates if isinstance(update, AddSnapshotUpdate))
    return [load_id for load_id in named if load_id is not None]


def positions_of(snapshot: Snapshot | None) -> dict[str, Position]:
    """The position of each source as of a snapshot."""
    text = _text(snapshot, OFFSETS) if snapshot is not None else None
    positions = parse_positions(text) if text is not None else {}
    return {source: position for source, position in positions.items() if position is not None}


def decide(
    table: str,
    current: AnyMetadata | None,
    requirements: Sequence[TableRequirement],
    updates: Sequence[TableUpdate],
    loads: Mapping[str, Load],
) -> Decision:
    """What to do with a commit to a table, given the table as it is and the loads that the request names."""
    creating = any(isinstance(requirement, AssertCreate) for requirement in requirements)
    if _is_there(current, updates, loads) or (creating and _is_created(current, updates)):
        return AlreadyThere()
    if current is None and not creating:
        return Absent()
    if current is not None and creating:
        return Conflict(why=f"{TABLE_EXISTS}: {table}", exists=True)
    for requirement in requirements:
        why = unmet(requirement, current)
        if why is not None:
            return Conflict(why=why)
    try:
        return _Settlement(table, current, updates, loads).swap()
    except _RefusedError as refused:
        return Refusal(why=str(refused))


def _is_there(current: AnyMetadata | None, updates: Sequence[TableUpdate], loads: Mapping[str, Load]) -> bool:
    for update in updates:
        if isinstance(update, AddSnapshotUpdate):
            snapshot_id = update.snapshot.snapshot_id
            if current is not None and current.snapshot_by_id(snapshot_id) is not None:
                return True
            # The snapshot may have expired since; the ledger remembers it.
            load = loads.get(_text(update.snapshot, LOAD) or "")
            if load is not None and load.state == COMMITTED and load.snapshot_id == snapshot_id:
                return True
    return False


def _is_created(current: AnyMetadata | None, updates: Sequence[TableUpdate]) -> bool:
    # A table's uuid is chosen by who creates it, so one that the table has is a creation that was carried out.
    uuids = [update.uuid for update in updates if isinstance(update, AssignUUIDUpdate)]
    return current is not None and current.table_uuid in uuids


class _RefusedError(Exception):
    pass


class _Settlement:
    """Settles the positions of all snapshots of a request, in the order in which they follow each other."""

    def __init__(
        self, table: str, current: AnyMetadata | None, updates: Sequence[TableUpdate], loads: Mapping[str, Load]
    ) -> None:
        self._table = table
        self._current = current
        self._updates = updates
        self._loads = loads
        self._added: dict[int, Snapshot] = {}
        self._committed: list[CommittedLoad] = []
        self._on_main = {
            update.snapshot_id
            for update in updates
            if isinstance(update, SetSnapshotRefUpdate) and update.ref_name == MAIN_BRANCH
        }

    def swap(self) -> Swap:
        """The request with its positions settled."""
        settled = [
            AddSnapshotUpdate(snapshot=self._settle(update.snapshot))
            if isinstance(update, AddSnapshotUpdate)
            else update
            for update in self._updates
        ]
        if any(load.rewrites for load in self._committed):
            settled = [update for update in settled if not isinstance(update, _KEPT_BY_A_REWRITE)]
        return Swap(updates=tuple(settled), loads=tuple(self._committed))

    def _settle(self, snapshot: Snapshot) -> Snapshot:
        rewrites = _text(snapshot, REPLACES) is not None
        if rewrites:
            snapshot = self._following(snapshot)
        positions = positions_of(self._parent(snapshot))
        before = dict(positions)
        moved = self._moves(snapshot, positions)
        for source, position in moved.items():
            if position is None:
                positions.pop(source, None)
            else:
                positions[source] = position
        load_id = _text(snapshot, LOAD)
        if load_id is not None:
            load = self._pending(load_id, moved)
            self._committed.append(
                CommittedLoad(
                    load_id=load_id,
                    snapshot_id=snapshot.snapshot_id,
                    before=before.get(load.source),
                    after=positions.get(load.source),
                    rows=_added_rows(snapshot),
                    rewrites=rewrites,
                    changes=_changes_of(load) if rewrites else (),
                )
            )
        elif moved:
            raise _RefusedError(f"{OFFSETS} without {LOAD}: begin a load first, and commit with its id")
        settled = _with_positions(snapshot, positions)
        self._added[snapshot.snapshot_id] = settled
        return settled

    def _following(self, snapshot: Snapshot) -> Snapshot:
        """A rewrite as the child of what it replaces, after the check that this is still what the table is."""
        current = self._current
        found = current and state_replaced(schema_id=current.current_schema_id, snapshot_id=current.current_snapshot_id)
        if current is None or _text(snapshot, REPLACES) != found:
            raise _RefusedError(
                f"{self._table} is {found}, the rewrite read {_text(snapshot, REPLACES)}: another writer was quicker; "
                "read the table again"
            )
        if snapshot.snapshot_id not in self._on_main or _text(snapshot, LOAD) is None:
            raise _RefusedError(f"{REPLACES} belongs to a load ({LOAD}) that replaces what is on {MAIN_BRANCH}")
        self._check_partitions(current)
        # Its rows are no new ones: those who read what was appended must not read them again.
        properties = snapshot.summary.additional_properties if snapshot.summary is not None else {}
        return snapshot.model_copy(
            update={
                "parent_snapshot_id": current.current_snapshot_id,
                "summary": Summary(Operation.OVERWRITE, **properties),
            }
        )

    def _check_partitions(self, current: AnyMetadata) -> None:
        """The partitions of older snapshots are read with the types that columns have now."""
        sources = {part.source_id for spec in current.partition_specs for part in spec.fields}
        types = _types(current.schema(), sources)
        for update in self._updates:
            if isinstance(update, AddSchemaUpdate):
                for field_id, type_ in _types(update.schema_, sources).items():
                    if type_ != types.get(field_id, type_):
                        raise _RefusedError(
                            f"{update.schema_.find_column_name(field_id)} stays {types[field_id]}: {self._table} is or "
                            "was, partitioned by it"
                        )

    def _parent(self, snapshot: Snapshot) -> Snapshot | None:
        parent_id = snapshot.parent_snapshot_id
        if parent_id is None:
            return None
        if parent_id in self._added:
            return self._added[parent_id]
        return self._current.snapshot_by_id(parent_id) if self._current is not None else None

    def _moves(self, snapshot: Snapshot, positions: Mapping[str, Position]) -> Mapping[str, Position | None]:
        """The new positions that the request asks for, after the check that the writer read the present ones."""
        offsets, expect = _positions(snapshot, OFFSETS), _positions(snapshot, EXPECT)
        if offsets is None and expect is None:
            return {}
        if offsets is None or expect is None:
            given, missing = (EXPECT, OFFSETS) if offsets is None else (OFFSETS, EXPECT)
            raise _RefusedError(f"{given} without {missing}: a position moves only from one that the writer has read")
        if offsets.keys() != expect.keys():
            raise _RefusedError(f"{OFFSETS} and {EXPECT} name other sources: {sorted(offsets)}, {sorted(expect)}")
        if snapshot.snapshot_id not in self._on_main:
            raise _RefusedError(f"{OFFSETS} on another branch than {MAIN_BRANCH}: only its position counts")
        for source, expected in expect.items():
            found = positions.get(source)
            if found != expected:
                raise _RefusedError(
                    f"the position of {source} in {self._table} is {canonical(found)}, the writer expected "
                    f"{canonical(expected)}: another load was quicker; read the position again and recompute"
                )
        return offsets

    def _pending(self, load_id: str, moved: Mapping[str, Position | None]) -> Load:
        load = self._loads.get(load_id)
        if load is None:
            raise _RefusedError(f"load {load_id} is unknown: begin a load first, and commit with its id")
        if load.state != PENDING:
            raise _RefusedError(f"load {load_id} is {load.state}, only a pending one can be committed: begin another")
        if load.table != self._table:
            raise _RefusedError(f"load {load_id} is one into {load.table}, not into {self._table}")
        if moved and load.source not in moved:
            raise _RefusedError(f"load {load_id} is one of {load.source}, whose position the commit does not name")
        if load_id in (earlier.load_id for earlier in self._committed):
            raise _RefusedError(f"load {load_id} is named by two snapshots of one commit")
        return load


def _positions(snapshot: Snapshot, key: str) -> dict[str, Position | None] | None:
    text = _text(snapshot, key)
    if text is None:
        return None
    try:
        return parse_positions(text)
    except ValueError as error:
        raise _RefusedError(f"{key}: {error}") from None


def _text(snapshot: Snapshot, key: str) -> str | None:
    return snapshot.summary.additional_properties.get(key) if snapshot.summary is not None else None


def _types(schema: Schema, field_ids: Iterable[int]) -> dict[int, IcebergType]:
    return {each: schema.find_type(each) for each in field_ids if schema.find_column_name(each) is not None}


def _added_rows(snapshot: Snapshot) -> int | None:
    text = _text(snapshot, _ADDED_ROWS)
    if text is None or not text.isdecimal() or len(text) > _MOST_DIGITS:
        return None
    return int(text)


def _changes_of(load: Load) -> tuple[SchemaChange, ...]:
    changes = [change_from_json(change) for change in load.details.get("changes", ())]
    return tuple(replace(change, source=load.source, position=load.before, load_id=load.load_id) for change in changes)


def _with_positions(snapshot: Snapshot, positions: Mapping[str, Position]) -> Snapshot:
    properties = dict(snapshot.summary.additional_properties) if snapshot.summary is not None else {}
    operation = snapshot.summary.operation if snapshot.summary is not None else Operation.OVERWRITE
    had = properties.pop(OFFSETS, None), properties.pop(EXPECT, None)
    if not positions and had == (None, None):
        return snapshot
    if positions:
        properties[OFFSETS] = canonical(positions)
    return snapshot.model_copy(update={"summary": Summary(operation, **properties)})
