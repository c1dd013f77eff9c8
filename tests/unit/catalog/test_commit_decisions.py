"""The decision on a commit, step by step, without a server: what is asked first is answered first."""

from typing import Any
from uuid import UUID

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import AddSnapshotUpdate, TableUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from catalog_parts import SOURCE, TABLE, commit_of, moving, offset, snapshot
from headwater.catalog.any_metadata import AnyMetadata
from headwater.catalog.commits import (
    Absent,
    AlreadyThere,
    CommittedLoad,
    Conflict,
    Decision,
    Refusal,
    Swap,
    decide,
    positions_of,
)
from headwater.catalog.entries import COMMITTED, FAILED, PENDING, Load, SchemaChange
from headwater.catalog.pyiceberg_gaps import apply_updates, parse_commit_request
from headwater.catalog.snapshot_properties import state_replaced

UUID_OF_TABLE = UUID(int=7)


def empty_table() -> AnyMetadata:
    schema = Schema(NestedField(1, "id", LongType()))
    return new_table_metadata(
        schema, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "file:///t", {}, table_uuid=UUID_OF_TABLE
    )


def load(load_id: str = "L", state: str = PENDING, **other: Any) -> Load:
    facts: dict[str, Any] = {
        "table": TABLE,
        "source": SOURCE,
        "mode": "append",
        "before": None,
        "after": None,
        "details": {},
    }
    return Load(load_id=load_id, state=state, begun_ms=0, **{**facts, **other})


def decision(table: AnyMetadata | None, request: dict[str, Any], *loads: Load) -> Decision:
    parsed = parse_commit_request(request)
    return decide(TABLE, table, parsed.requirements, parsed.updates, {load.load_id: load for load in loads})


def after(table: AnyMetadata, request: dict[str, Any], *loads: Load) -> AnyMetadata:
    """The table after a commit that must be accepted."""
    decided = decision(table, request, *loads)
    assert isinstance(decided, Swap), decided
    return apply_updates(table, decided.updates, "file:///t/metadata/00000.metadata.json")


@pytest.fixture
def loaded() -> AnyMetadata:
    """A table with one snapshot, 1, and a position."""
    return after(empty_table(), commit_of(snapshot(1, None, moving(None, offset(10), "L"))), load())


def test_a_load_is_committed_with_its_snapshot() -> None:
    decided = decision(empty_table(), commit_of(snapshot(1, None, moving(None, offset(10), "L"))), load())
    assert isinstance(decided, Swap)
    assert decided.loads == (CommittedLoad(load_id="L", snapshot_id=1, before=None, after=offset(10)),)


def test_the_summary_keeps_the_position_and_the_load_but_not_what_was_expected(loaded: AnyMetadata) -> None:
    current = loaded.current_snapshot()
    assert positions_of(current) == {SOURCE: offset(10)}
    assert current is not None
    assert current.summary is not None
    assert set(current.summary.additional_properties) == {"headwater.offsets", "headwater.load"}


def test_a_snapshot_that_is_there_is_noticed_before_anything_else(loaded: AnyMetadata) -> None:
    """Its requirement fails, its load is committed and its position is old: all of that is its own doing."""
    again = commit_of(snapshot(1, None, moving(None, offset(10), "L")))
    assert decision(loaded, again, load(state=COMMITTED, snapshot_id=1)) == AlreadyThere()


def test_a_snapshot_of_no_load_is_noticed_too(loaded: AnyMetadata) -> None:
    table = after(loaded, commit_of(snapshot(2, 1), parent=1))
    assert decision(table, commit_of(snapshot(2, 1), parent=1)) == AlreadyThere()


def test_a_snapshot_that_expired_is_known_by_its_load() -> None:
    again = commit_of(snapshot(1, None, moving(None, offset(10), "L")))
    assert decision(empty_table(), again, load(state=COMMITTED, snapshot_id=1)) == AlreadyThere()
    other = decision(empty_table(), again, load(state=COMMITTED, snapshot_id=2))
    assert isinstance(other, Refusal), "a load that another snapshot was committed with"


def test_a_requirement_comes_before_a_position(loaded: AnyMetadata) -> None:
    """The client must look again: a compaction between does not make its load a late one."""
    stale = commit_of(snapshot(2, None, moving(None, offset(20), "M")), parent=None)
    assert isinstance(decision(loaded, stale, load("M")), Conflict)


def test_what_is_absent_can_only_be_created() -> None:
    assert decision(None, commit_of(snapshot(1, None))) == Absent()
    create = {"requirements": [{"type": "assert-create"}], "updates": []}
    assert isinstance(decision(None, create), Swap)
    assert decision(empty_table(), create) == Conflict(
        why=f"Requirement failed: table already exists: {TABLE}", exists=True
    )


def test_a_creation_that_was_carried_out_is_there() -> None:
    updates = [{"action": "assign-uuid", "uuid": str(UUID_OF_TABLE)}]
    assert decision(empty_table(), {"requirements": [{"type": "assert-create"}], "updates": updates}) == AlreadyThere()
    assert isinstance(decision(empty_table(), {"requirements": [], "updates": updates}), Swap), "no creation"


def without(summary: dict[str, str], key: str) -> dict[str, str]:
    return {name: value for name, value in summary.items() if name != key}


@pytest.mark.parametrize(
    ("summary", "known", "why"),
    [
        (moving(None, offset(20), "L"), load(), "another load was quicker"),
        (moving(offset(9), offset(20), "L"), load(), "another load was quicker"),
        (without(moving(offset(10), offset(20), "L"), "headwater.expect"), load(), "without headwater.expect"),
        (without(moving(offset(10), offset(20), "L"), "headwater.offsets"), load(), "without headwater.offsets"),
        (without(moving(offset(10), offset(20), "L"), "headwater.load"), load(), "without headwater.load"),
        ({**moving(offset(10), offset(20), "L"), "headwater.expect": "{}"}, load(), "other sources"),
        ({**moving(offset(10), offset(20), "L"), "headwater.expect": "nonsense"}, load(), "headwater.expect"),
        ({**moving(offset(10), offset(20), "L"), "headwater.offsets": '{"a":7}'}, load(), "headwater.offsets"),
        (moving(offset(10), offset(20), "X"), load(), "unknown"),
        (moving(offset(10), offset(20), "L"), load(state=FAILED), "failed"),
        (moving(offset(10), offset(20), "L"), load(state=COMMITTED, snapshot_id=9), "committed"),
        (moving(offset(10), offset(20), "L"), load(table="db.other"), "db.other"),
        (moving(offset(10), offset(20), "L"), load(source="topic:other"), "topic:other"),
        ({"headwater.load": "X"}, load(), "unknown"),
    ],
)
def test_what_is_refused_for_good(loaded: AnyMetadata, summary: dict[str, str], known: Load, why: str) -> None:
    decided = decision(loaded, commit_of(snapshot(2, 1, summary), parent=1), known)
    assert isinstance(decided, Refusal)
    assert why in decided.why


def test_equal_positions_may_be_spelled_differently(loaded: AnyMetadata) -> None:
    summary = {
        **moving(None, offset(20), "M"),
        "headwater.expect": '{ "topic:events" : {"topics":{"events": {"0":10}}}}',
    }
    moved = after(loaded, commit_of(snapshot(2, 1, summary), parent=1), load("M"))
    assert positions_of(moved.current_snapshot()) == {SOURCE: offset(20)}


def test_positions_of_other_sources_stay(loaded: AnyMetadata) -> None:
    summary = moving(None, {"load": "M"}, "M", "files:x")
    moved = after(loaded, commit_of(snapshot(2, 1, summary), parent=1), load("M", source="files:x"))
    assert positions_of(moved.current_snapshot()) == {SOURCE: offset(10), "files:x": {"load": "M"}}


def test_a_position_can_be_taken_away(loaded: AnyMetadata) -> None:
    moved = after(loaded, commit_of(snapshot(2, 1, moving(offset(10), None, "M")), parent=1), load("M"))
    assert positions_of(moved.current_snapshot()) == {}


def test_a_load_may_leave_the_position_where_it_is(loaded: AnyMetadata) -> None:
    decided = decision(loaded, commit_of(snapshot(2, 1, {"headwater.load": "M"}), parent=1), load("M"))
    assert isinstance(decided, Swap)
    assert decided.loads == (CommittedLoad(load_id="M", snapshot_id=2, before=offset(10), after=offset(10)),)


def test_a_commit_of_several_snapshots_settles_each_from_the_one_before(loaded: AnyMetadata) -> None:
    """pyiceberg overwrites with a delete and an append in one commit."""
    moved = after(
        loaded,
        commit_of(snapshot(2, 1, operation="delete"), snapshot(3, 2, moving(offset(10), offset(20), "M")), parent=1),
        load("M"),
    )
    assert positions_of(moved.snapshot_by_id(2)) == {SOURCE: offset(10)}
    assert positions_of(moved.snapshot_by_id(3)) == {SOURCE: offset(20)}


def test_two_snapshots_cannot_belong_to_one_load(loaded: AnyMetadata) -> None:
    request = commit_of(snapshot(2, 1, {"headwater.load": "M"}), snapshot(3, 2, {"headwater.load": "M"}), parent=1)
    assert isinstance(decision(loaded, request, load("M")), Refusal)


def test_a_replaced_table_begins_anew(loaded: AnyMetadata) -> None:
    """CREATE OR REPLACE TABLE AS SELECT: the loaded data is gone, and the position with it."""
    moved = after(loaded, commit_of(snapshot(2, None), parent=1))
    assert positions_of(moved.current_snapshot()) == {}


def replacing(snapshot_id: int | None = 1, schema_id: int = 0, load_id: str = "R") -> dict[str, str]:
    return {
        "headwater.replaces": state_replaced(schema_id=schema_id, snapshot_id=snapshot_id),
        "headwater.load": load_id,
    }


def replacement(summary: dict[str, str], **how: Any) -> dict[str, Any]:
    """What REPLACE TABLE AS SELECT sends: no ref is required to be anything, and the snapshot has no parent."""
    request = commit_of(snapshot(2, None, summary), **how)
    order = {"order-id": 0, "fields": []}
    more: list[dict[str, Any]] = [
        {"action": "remove-snapshot-ref", "ref-name": "main"},
        {"action": "add-sort-order", "sort-order": order},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-properties", "updates": {"owner": "somebody"}},
    ]
    return {"requirements": [], "updates": [*more, *request["updates"]]}


def test_a_rewrite_follows_what_it_replaces_and_keeps_the_positions(loaded: AnyMetadata) -> None:
    rewrite = load("R", mode="rewrite", before=offset(10), details={"changes": [{"kind": "rewrite", "path": "id"}]})
    request = replacement({**replacing(), "added-records": "12"})
    decided = decision(loaded, request, rewrite)
    assert isinstance(decided, Swap)
    change = SchemaChange(kind="rewrite", path="id", source=SOURCE, position=offset(10), load_id="R")
    assert decided.loads == (
        CommittedLoad(
            load_id="R",
            snapshot_id=2,
            before=offset(10),
            after=offset(10),
            rows=12,
            rewrites=True,
            changes=(change,),
        ),
    )
    current = after(loaded, request, rewrite).current_snapshot()
    assert current is not None
    assert current.summary is not None
    assert (current.snapshot_id, current.parent_snapshot_id, current.summary.operation) == (2, 1, Operation.OVERWRITE)
    assert positions_of(current) == {SOURCE: offset(10)}


def test_a_rewrite_leaves_the_order_and_the_properties(loaded: AnyMetadata) -> None:
    decided = decision(loaded, replacement(replacing()), load("R"))
    assert isinstance(decided, Swap)
    assert [update.action for update in decided.updates] == ["remove-snapshot-ref", "add-snapshot", "set-snapshot-ref"]


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (replacement(replacing(snapshot_id=None)), "another writer was quicker"),
        (replacement(replacing(snapshot_id=7)), "another writer was quicker"),
        (replacement(replacing(schema_id=7)), "another writer was quicker"),
        (replacement(without(replacing(), "headwater.load")), "belongs to a load"),
        (replacement(replacing(), branch="audit"), "main"),
        (replacement(replacing(load_id="X")), "unknown"),
    ],
)
def test_a_rewrite_of_anything_but_the_present_table_is_refused(
    loaded: AnyMetadata, request_: dict[str, Any], why: str
) -> None:
    decided = decision(loaded, request_, load("R"))
    assert isinstance(decided, Refusal)
    assert why in decided.why


@pytest.mark.parametrize(("source_id", "refused"), [(1, True), (2, False)])
def test_a_column_that_partitions_were_ever_made_of_keeps_its_type(source_id: int, refused: bool) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "day", LongType()))
    spec = PartitionSpec(PartitionField(source_id, 1000, IdentityTransform(), "part"), spec_id=1)
    table = new_table_metadata(schema, spec, UNSORTED_SORT_ORDER, "file:///t", {}, table_uuid=UUID_OF_TABLE)
    table = apply_updates(table, _updates({"action": "add-spec", "spec": {"spec-id": 7, "fields": []}}), "file:///m")
    table = apply_updates(table, _updates({"action": "set-default-spec", "spec-id": 1}), "file:///m")
    assert table.spec().fields == ()
    texts = Schema(NestedField(1, "id", StringType()), NestedField(2, "day", LongType()), schema_id=1)
    request = replacement(replacing(snapshot_id=None))
    request["updates"].insert(0, {"action": "add-schema", "schema": texts.model_dump(mode="json")})
    decided = decision(table, request, load("R"))
    assert isinstance(decided, Refusal if refused else Swap)


def _updates(*updates: dict[str, Any]) -> tuple[TableUpdate, ...]:
    return parse_commit_request({"requirements": [], "updates": list(updates)}).updates


def test_what_a_snapshot_added_is_what_its_load_loaded() -> None:
    for text, rows in (("12", 12), ("0", 0), ("many", None)):
        summary = {**moving(None, offset(10), "L"), "added-records": text}
        decided = decision(empty_table(), commit_of(snapshot(1, None, summary)), load())
        assert isinstance(decided, Swap)
        assert decided.loads[0].rows == rows


def test_a_position_on_another_branch_is_refused(loaded: AnyMetadata) -> None:
    request = commit_of(snapshot(2, 1, moving(offset(10), offset(20), "M")), branch="audit", parent=None)
    decided = decision(loaded, request, load("M"))
    assert isinstance(decided, Refusal)
    assert "main" in decided.why


def test_a_snapshot_without_positions_before_it_is_left_as_it_is() -> None:
    request = commit_of(snapshot(1, None, {"spark.app.id": "local-1"}))
    decided = decision(empty_table(), request)
    assert isinstance(decided, Swap)
    assert [update for update in decided.updates if isinstance(update, AddSnapshotUpdate)] == [
        update for update in parse_commit_request(request).updates if isinstance(update, AddSnapshotUpdate)
    ]
