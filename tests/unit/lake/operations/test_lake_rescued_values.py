"""A replay makes of rescued texts what a load of today would make of the record; nothing is lost, nothing doubled."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.lake.operations.rescued_columns import AS_JSON, COUNTS, ROWS, replayed_rows
from headwater.lake.operations.rescued_values import Replay, Replayed
from headwater.lake.shapes import Policies, parse_json, plan_schema, shape_of_json
from headwater.lake.shapes.paths import join, split
from unit.lake.shapes.generated_json import any_records

batches = st.lists(any_records, min_size=1, max_size=4)
policies_of_tables = st.builds(Policies, default=st.sampled_from(["corrupt", "columns", "string"]))

TABLE = pa.schema(
    [
        ("id", pa.int64()),
        ("id__string", pa.string()),
        ("name", pa.string()),
        ("a", pa.struct([("b", pa.int32()), ("c", pa.struct([("at", pa.date32())]))])),
        ("counts", pa.map_(pa.string(), pa.int64())),
        ("items", pa.list_(pa.int32())),
    ]
)


def replayed(
    *rescued: tuple[str, str], now: dict[str, Any] | None = None, policy: Any = "corrupt", **how: Any
) -> Replayed:
    replay = Replay(list(TABLE), Policies(default=policy), how.pop("column", None))
    return replay.row((now or {}).get, list(rescued), **how)


@given(st.lists(st.text(), min_size=1, max_size=4))
def test_a_path_leads_back_to_its_keys(keys: list[str]) -> None:
    path = ""
    for key in keys:
        path = join(path, key)
    assert split(path) == keys


@pytest.mark.parametrize("path", ["a#0", "a.b#1", "a[]", "", "a..b", 'a["b'])
def test_what_leads_to_no_field_has_no_keys(path: str) -> None:
    assert split(path) is None


@given(batches, batches, policies_of_tables)
@settings(deadline=None, max_examples=150)
def test_a_replay_after_the_schema_has_grown_gives_the_rows_of_a_load_with_that_schema(
    first: list[bytes | None], second: list[bytes | None], policies: Policies
) -> None:
    old = plan_schema(shape_of_json(pa.array(first, pa.binary())), None, policies).schema
    new = plan_schema(shape_of_json(pa.array([*first, *second], pa.binary())), old, policies).schema
    records = pa.array(second, pa.binary())
    loaded = with_schema(parse_json(records, old, policies), new)
    assert plain(replayed_rows(loaded, policies)) == plain(with_schema(parse_json(records, new, policies), new))


def with_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.StructArray:
    """The rows as a table gives them whose schema has grown, and what a replay wants to know of them."""
    fields = [*schema, *(batch.schema.field(name) for name in ("_rescued", "_corrupt_record"))]
    rows = batch.to_pylist()
    arrays = [pa.array([row.get(each.name) for row in rows], each.type) for each in fields]
    flags = pa.array([True] * len(rows), pa.bool_())
    return pa.StructArray.from_arrays([*arrays, flags], names=[*(each.name for each in fields), AS_JSON])


def plain(rows: pa.StructArray) -> list[dict[str, Any]]:
    rows.validate(full=True)
    found = [{name: value for name, value in row.items() if name not in (*COUNTS, AS_JSON)} for row in rows.to_pylist()]
    for row in found:
        row["_rescued"] = sorted(row["_rescued"] or ())
    return [{name: sorted_entries(value) for name, value in row.items()} for row in found]


def sorted_entries(value: Any) -> Any:
    """Maps have no order: a replay adds its entries at the end."""
    if isinstance(value, dict):
        return {name: sorted_entries(each) for name, each in value.items()}
    if isinstance(value, list) and value and all(isinstance(each, tuple) for each in value):
        return sorted(((key, sorted_entries(each)) for key, each in value), key=lambda entry: entry[0])
    return [sorted_entries(each) for each in value] if isinstance(value, list) else value


def test_values_go_into_columns_structs_and_maps_and_the_rest_stays() -> None:
    texts = [("id", "12"), ("a.b", "7"), ("a.c.at", '"2024-02-29"'), ("a.x", "1"), ("counts.k", "5")]
    row = replayed(*texts, ("counts.q", '"no"'), ("items", "[1,2]"), ("id#0", "3"), ("other", "{}"))
    assert row.values == {
        "id": 12,
        "a": {"b": 7, "c": {"at": 19782}},
        "counts": [("k", 5)],
        "items": [1, 2],
    }
    assert row.rescued == [("a.x", "1"), ("counts.q", '"no"'), ("id#0", "3"), ("other", "{}")]
    assert row.restored == 5


def test_a_field_that_never_had_a_column_is_restored_with_what_is_in_it() -> None:
    row = replayed(("a", '{"b": 1, "c": {}, "new": [1]}'))
    assert row.values == {"a": {"b": 1, "c": {}}}
    assert row.rescued == [("a.new", "[1]")]
    assert replayed(("a", "{}")).values == {"a": {}}


def test_a_value_that_is_there_is_never_overwritten() -> None:
    now = {"id": 5, "a": {"b": 1, "c": None}, "counts": [("k", 1)]}
    row = replayed(("id", "12"), ("a.b", "7"), ("counts.k", "9"), ("a.c", '{"at": "2024-01-01"}'), now=now)
    assert row.rescued == [("id", "12"), ("a.b", "7"), ("counts.k", "9")]
    assert row.values == {"a": {"b": 1, "c": {"at": 19723}}}


def test_the_policies_of_a_load_hold() -> None:
    assert replayed(("id", '"two"')).rescued == [("id", '"two"')]
    assert replayed(("id", '"two"'), policy="columns").values == {"id__string": "two"}
    assert replayed(("name", "12")).rescued == [("name", "12")]
    assert replayed(("name", "12"), policy="string").values == {"name": "12"}


def test_plain_texts_are_numbers_to_numbers_and_strings_to_strings() -> None:
    texts = [("name", "12"), ("id", "007"), ("a.b", "3"), ("items", "[1]"), ("counts", '{"k":1}'), ("other", "x")]
    row = replayed(*texts, as_json=False)
    assert row.values == {"name": "12", "a": {"b": 3}, "items": [1], "counts": [("k", 1)]}
    assert row.rescued == [("id", "007"), ("other", "x")]
    assert replayed(("name", '"quoted"'), as_json=False).values == {"name": '"quoted"'}
    assert replayed(("id", "null"), ("name", ""), as_json=False).rescued == [("id", "null")]


@pytest.mark.parametrize("text", ['1,"id":5', '"x","id":5', '1},"id":{"b":5', "", "nope", "null"])
@pytest.mark.parametrize("as_json", [True, False])
def test_a_text_that_is_more_than_a_value_reaches_no_other_field(text: str, as_json: bool) -> None:
    row = replayed(("other", text), ("a.b", text), as_json=as_json)
    assert row.rescued == [("other", text), ("a.b", text)]
    assert not row.values


def test_a_record_that_can_be_read_by_now_becomes_a_row() -> None:
    row = replayed(corrupt='{"id": 1, "other": [1]}')
    assert (row.values, row.rescued, row.corrupt, row.record_restored) == ({"id": 1}, [("other", "[1]")], None, True)
    assert replayed(corrupt="base64:eyJpZCI6MX0=").values == {"id": 1}
    for corrupt in ("nope", "base64:?", "base64:/w=="):
        assert replayed(corrupt=corrupt) == Replayed(rescued=[], corrupt=corrupt)
    assert replayed(corrupt='{"id": 1}', column="id").corrupt == '{"id": 1}'


def test_one_field_may_be_replayed_alone() -> None:
    row = replayed(("id", "12"), ("a.b", "7"), ("a.c.at", '"2024-02-29"'), column="a.c")
    assert row.values == {"a": {"c": {"at": 19782}}}
    assert row.rescued == [("id", "12"), ("a.b", "7")]


def test_rows_without_a_change_are_told_from_those_with_one() -> None:
    batch = parse_json(pa.array([b'{"id": 1}', b'{"name": 5}', b'{"a": {"b": 2}}', b"?"]), TABLE.remove(3))
    rows = replayed_rows(with_schema(batch, TABLE), Policies())
    assert rows.field(ROWS).to_pylist() == [0, 0, 1, 0]
    assert replayed_rows(rows_of_none(rows), Policies()).field(ROWS).to_pylist() == []


def rows_of_none(rows: pa.StructArray) -> pa.StructArray:
    columns = {each.name: rows.field(place) for place, each in enumerate(rows.type) if each.name not in COUNTS}
    columns[AS_JSON] = pa.array([True] * len(rows))
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns)).slice(0, 0)
