"""Which columns data gets, and what becomes of values that disagree with them."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from headwater.lake.shapes import Policies, SchemaPlan, parse_json, plan_schema, shape_of_arrow, shape_of_json
from headwater.lake.shapes.policies import Policy


def records(*values: object) -> pa.Array:
    return pa.array([json.dumps(value).encode() for value in values], pa.binary())


def plan(*values: object, current: pa.Schema | None = None, policies: Policies | None = None) -> SchemaPlan:
    return plan_schema(shape_of_json(records(*values)), current, policies)


def type_of(*values: object) -> pa.DataType | None:
    schema = plan(*({"a": value} for value in values)).schema
    return schema.field("a").type if "a" in schema.names else None


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([1, 2], pa.int64()),
        ([1, 2.5], pa.float64()),
        ([1, 2**64], pa.decimal128(38, 0)),
        ([10**38], None),
        ([2**64, 0.5], pa.float64()),
        ([True, None], pa.bool_()),
        (["2024-02-29", "2023-01-01"], pa.date32()),
        (["2024-02-29T00:00:00Z", "2024-02-29 00:00:00.5+02:00"], pa.timestamp("us", "UTC")),
        (["2024-02-29T00:00:00", "2024-02-29 00:00:00.123456"], pa.timestamp("us")),
        (["2024-02-29", "2024-02-29T00:00:00"], pa.string()),
        (["2024-02-29T00:00:00Z", "2024-02-29T00:00:00"], pa.string()),
        (["2024-02-29", "soon"], pa.string()),
        (["2024-02-30"], pa.string()),
        (["2024-02-29T00:00:00.1234567Z"], pa.string()),
        ([None], None),
        ([{}], None),
        ([[]], None),
        ([[], [[]], [None]], None),
        ([{}, {"b": None}], None),
        ([1, 2, "x"], pa.int64()),
        ([1, "x"], pa.string()),
        ([1, True], pa.int64()),
        ([{}, 1], pa.int64()),
        ([[1], [2.5, None], []], pa.list_(pa.float64())),
        ([[[1]], [[]]], pa.list_(pa.list_(pa.int64()))),
        ([[{"b": 1}], [{"c": "x"}]], pa.list_(pa.struct([("b", pa.int64()), ("c", pa.string())]))),
        ([{"b": {"c": 1}}], pa.struct([("b", pa.struct([("c", pa.int64())]))])),
    ],
)  # fmt: skip
def test_a_new_field_gets_the_type_that_holds_what_was_seen(values: list[object], type_: pa.DataType | None) -> None:
    assert type_of(*values) == type_


def test_numbers_that_no_double_holds_become_decimals_where_most_of_them_are_so() -> None:
    shape = shape_of_json(pa.array([b'{"a": 1234567890.12345678901}', b'{"a": 0.12345678901234567890}', b'{"a": 1}']))
    assert plan_schema(shape).schema.field("a").type == pa.decimal128(38, 19)


@pytest.mark.parametrize(
    ("current", "values", "type_"),
    [
        (pa.int32(), [2**40], pa.int64()),
        (pa.int32(), [5], pa.int32()),
        (pa.int64(), [1.5], pa.int64()),
        (pa.float32(), [0.1], pa.float32()),
        (pa.float32(), [0.123456789], pa.float64()),
        (pa.decimal128(5, 2), [12345.5], pa.decimal128(7, 2)),
        (pa.decimal128(5, 2), [0.125], pa.decimal128(5, 2)),
        (pa.decimal128(38, 2), [10**37], pa.decimal128(38, 2)),
        (pa.date32(), ["soon"], pa.date32()),
        (pa.string(), [1], pa.string()),
        (pa.struct([("b", pa.int64())]), [{"c": 1}], pa.struct([("b", pa.int64()), ("c", pa.int64())])),
        (pa.list_(pa.int32()), [[2**40]], pa.list_(pa.int64())),
        (pa.map_(pa.string(), pa.int32()), [{"x": 2**40}], pa.map_(pa.string(), pa.int64())),
        (pa.binary(), ["x"], pa.binary()),
    ],
)  # fmt: skip
def test_a_column_grows_only_where_iceberg_can(current: pa.DataType, values: list[object], type_: pa.DataType) -> None:
    planned = plan(*({"a": value} for value in values), current=pa.schema([("a", current)]))
    assert planned.schema == pa.schema([("a", type_)])


def test_columns_stay_in_their_order_and_new_ones_follow_in_that_of_full_records() -> None:
    current = pa.schema([("z", pa.int64()), ("gone", pa.string())])
    planned = plan({"y": 1}, {"x": 1, "z": 1, "y": 2, "b": 1}, current=current)
    assert planned.schema.names == ["z", "gone", "x", "y", "b"]
    assert [(change.kind, change.path) for change in planned.changes] == [("add", "x"), ("add", "y"), ("add", "b")]


def test_spellings_that_differ_by_case_share_no_column_and_lose_nothing() -> None:
    values = records({"Id": 1}, {"id": 2}, {"id": 3, "ID": 4})
    planned = plan_schema(shape_of_json(values))
    schema = planned.schema
    assert schema.names == ["id"]
    assert planned.changes[-1].words == "ID differs from another field only by case: kept in _rescued"
    rows = parse_json(values, schema).to_pylist()
    assert [row["_rescued"] for row in rows] == [[("Id", "1")], None, [("ID", "4")]]
    assert plan({"id": 1}, {"id": 1}, {"ID": 1}, current=pa.schema([("ID", pa.int64())])).schema.names == ["ID"]


def test_names_that_would_collide_in_iceberg_get_no_column() -> None:
    planned = plan({"a": {"b": 1}, "a.b": 2, "l": [1], "l.element": 3, "": 4, "_Key": 5, "x\n": 6})
    assert planned.schema.names == ["a", "l"]
    assert {change.path for change in planned.changes if change.kind == "conflict"} == {
        '["a.b"]',
        '["l.element"]',
        '[""]',
        "_Key",
        '["x\\n"]',
    }
    assert plan({"l.element": 3, "l": [1]}).schema.names == ["l.element"]


def test_an_object_with_many_rare_keys_is_a_map_unless_the_table_says_struct() -> None:
    values = [{"by_user": {f"u{number}": number, f"u{number + 1}": 1.5}} for number in range(300)]
    schema = plan(*values).schema
    assert schema.field("by_user").type == pa.map_(pa.string(), pa.float64())
    row = parse_json(records(values[7], {"by_user": {"a": "x", "b": 1}}), schema).to_pylist()
    assert row[0]["by_user"] == [("u7", 7.0), ("u8", 1.5)]
    assert (row[1]["by_user"], row[1]["_rescued"]) == ([("b", 1.0)], [("by_user.a", '"x"')])
    current = pa.schema([("by_user", pa.struct([("u1", pa.float64())]))])
    assert pa.types.is_struct(plan(*values, current=current).schema.field("by_user").type)


def test_a_shape_does_not_grow_with_the_number_of_keys() -> None:
    values = [{"m": {f"k{number}-{key}": 1 for key in range(100)}} for number in range(200)]
    parts = [shape_of_json(records(*values[at : at + 20])) for at in range(0, 200, 20)]
    merged = parts[0]
    for part in parts[1:]:
        merged = merged.merge(part)
    assert len(merged.to_json()) < 200
    assert merged == shape_of_json(records(*values))
    assert plan_schema(merged).schema.field("m").type == pa.map_(pa.string(), pa.int64())


@pytest.mark.parametrize(
    ("policy", "schema", "rows"),
    [
        ("corrupt", {"a": pa.int64()}, [{"a": 1}, {"a": 2}, {"a": None, "_rescued": [("a", '"x"')]}]),
        ("columns", {"a": pa.int64(), "a__string": pa.string()}, [{"a": 1}, {"a": 2}, {"a__string": "x"}]),
        ("string", {"a": pa.string()}, [{"a": "1"}, {"a": "2"}, {"a": "x"}]),
    ],
)
def test_a_policy_decides_about_values_that_disagree(
    policy: Policy, schema: dict[str, pa.DataType], rows: list[dict[str, object]]
) -> None:
    policies = Policies(fields={"a": policy})
    values = records({"a": 1}, {"a": 2}, {"a": "x"})
    planned = plan_schema(shape_of_json(values), None, policies).schema
    assert planned == pa.schema(list(schema.items()))
    empty = dict.fromkeys([*schema, "_rescued", "_corrupt_record"])
    assert parse_json(values, planned, policies).to_pylist() == [empty | row for row in rows]


def test_a_column_is_rewritten_as_string_only_when_asked() -> None:
    current = pa.schema([("a", pa.int64())])
    kept = plan({"a": "x"}, current=current, policies=Policies(default="string"))
    assert kept.schema == current
    assert [change.kind for change in kept.changes] == ["conflict"]
    changed = plan({"a": "x"}, current=current, policies=Policies(default="string", rewrite=True))
    assert changed.schema == pa.schema([("a", pa.string())])
    assert [(change.kind, change.old_type, change.new_type) for change in changed.changes] == [
        ("rewrite", "long", "string")
    ]


def test_what_is_inside_of_a_rewritten_column_is_no_change_of_its_own() -> None:
    current = pa.schema([("a", pa.struct([("b", pa.int32())]))])
    policies = Policies(default="string", rewrite=True)
    changed = plan({"a": {"b": 1 << 40, "c": 1}}, {"a": 5}, current=current, policies=policies)
    assert changed.schema == pa.schema([("a", pa.string())])
    assert [(change.kind, change.path) for change in changed.changes] == [("rewrite", "a")]


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'drop' of field 'a' is unknown; take one of corrupt, columns, string"):
        Policies(fields={"a": "drop"})  # type: ignore[dict-item]
    policies = Policies(default="columns", fields={"a.b": "string"}, rewrite=True)
    assert Policies.from_json(policies.to_json()) == policies


def test_a_required_column_may_be_null_from_now_on() -> None:
    current = pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("_key", pa.binary(), nullable=False)])
    planned = plan({"b": 1}, current=current)
    assert planned.schema == pa.schema([("a", pa.int64()), ("b", pa.int64())])
    assert planned.changes[0].words == "a may be null from now on"


def test_types_that_a_source_declares_are_taken() -> None:
    source = {
        "i": (pa.int16(), pa.int32()),
        "u": (pa.uint64(), pa.decimal128(20, 0)),
        "d": (pa.decimal128(9, 2), pa.decimal128(9, 2)),
        "t": (pa.timestamp("ms", "Europe/Berlin"), pa.timestamp("us", "UTC")),
        "b": (pa.large_binary(), pa.binary()),
        "s": (pa.struct([("x", pa.float32())]), pa.struct([("x", pa.float32())])),
        "l": (pa.list_(pa.date64()), pa.list_(pa.date32())),
    }
    shape = shape_of_arrow(pa.schema([(name, types[0]) for name, types in source.items()]))
    planned = plan_schema(type(shape).from_json(shape.to_json()))
    assert planned.schema == pa.schema([(name, types[1]) for name, types in source.items()])
    wider = plan_schema(shape_of_arrow(pa.schema([("i", pa.int64())])), planned.schema)
    assert wider.schema.field("i").type == pa.int64()
