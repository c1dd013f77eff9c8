"""The promise of the lake: any JSON, in any number of loads, and every value of every record is found again."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater.lake.shapes import Policies, parse_json, plan_schema, shape_of_json
from unit.lake.shapes.generated_json import any_records, is_kept, records, repeating_records

loads = st.lists(st.lists(any_records, min_size=1, max_size=5), min_size=1, max_size=3)
policies_of_tables = st.builds(Policies, default=st.sampled_from(["corrupt", "columns", "string"]))


def load(batches: list[list[bytes | None]], policies: Policies) -> list[tuple[bytes | None, dict[str, Any]]]:
    """Records with their rows, load after load, each planned upon what the earlier ones made."""
    schema = None
    rows: list[tuple[bytes | None, dict[str, Any]]] = []
    for batch in batches:
        values = pa.array(batch, pa.binary())
        before = schema
        schema = plan_schema(shape_of_json(values), schema, policies).schema
        assert before is None or schema.names[: len(before)] == before.names
        parsed = parse_json(values, schema, policies)
        parsed.validate(full=True)
        rows += zip(batch, parsed.to_pylist(), strict=True)
    return rows


@given(loads, policies_of_tables)
@settings(deadline=None, max_examples=200)
def test_every_record_is_found_again(batches: list[list[bytes | None]], policies: Policies) -> None:
    for raw, row in load(batches, policies):
        assert is_kept(raw, row, spills=policies.default == "columns"), (raw, row)


@given(repeating_records)
@example(b'{"a":1,"a":"x","a":2}')
@settings(deadline=None, max_examples=60)
def test_values_of_repeated_keys_are_kept_in_their_order(record: bytes) -> None:
    row = load([[record]], Policies())[0][1]
    rescued = dict(row["_rescued"] or ())
    pairs: list[list[tuple[str, Any]]] = []
    json.loads(record, object_pairs_hook=pairs.append, parse_int=float)
    top = pairs[-1]
    for key in {key for key, _ in top if key.isalpha()}:
        values = [value for name, value in top if name == key]
        for turn, value in enumerate(values[:-1]):
            if isinstance(value, str):
                assert json.loads(rescued[f"{key}#{turn}"]) == value
            assert (value is None) == (f"{key}#{turn}" not in rescued) or value is None


@given(st.lists(records, max_size=6), st.data())
@settings(deadline=None, max_examples=60)
def test_a_schema_does_not_depend_on_how_the_data_was_split(batch: list[bytes], data: st.DataObject) -> None:
    whole = shape_of_json(pa.array(batch, pa.binary()))
    order = data.draw(st.permutations(batch))
    cut = data.draw(st.integers(0, len(order)))
    parts = [shape_of_json(pa.array(part, pa.binary())) for part in (order[:cut], order[cut:])]
    assert parts[0].merge(parts[1]) == parts[1].merge(parts[0]) == whole
    assert plan_schema(parts[1].merge(parts[0])) == plan_schema(whole)


@given(st.lists(records, min_size=1, max_size=6), policies_of_tables)
@settings(deadline=None, max_examples=60)
def test_a_second_load_of_the_same_data_changes_nothing(batch: list[bytes], policies: Policies) -> None:
    shape = shape_of_json(pa.array(batch, pa.binary()))
    first = plan_schema(shape, None, policies)
    second = plan_schema(shape, first.schema, policies)
    assert second.schema == first.schema
    assert {change.kind for change in second.changes} <= {"conflict"}


@given(st.lists(records, min_size=1, max_size=4), st.lists(records, min_size=1, max_size=4), policies_of_tables)
@settings(deadline=None, max_examples=100)
def test_no_two_fields_have_one_name_in_iceberg(first: list[bytes], second: list[bytes], policies: Policies) -> None:
    schema = None
    for batch in (first, second):
        schema = plan_schema(shape_of_json(pa.array(batch, pa.binary())), schema, policies).schema
    names = [name.lower() for field in schema or () for name in full_names(field.name, field.type)]
    assert len(names) == len(set(names))


def full_names(name: str, type_: pa.DataType) -> list[str]:
    below: list[tuple[str, pa.DataType]] = []
    if pa.types.is_struct(type_):
        below = [(field.name, field.type) for field in type_]
    elif pa.types.is_list(type_):
        below = [("element", type_.value_type)]
    return [name, *(found for field, inner in below for found in full_names(f"{name}.{field}", inner))]


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_records_may_be_strings_or_bytes(type_: pa.DataType) -> None:
    values = pa.array(['{"a": 1}', None]).cast(type_)
    schema = plan_schema(shape_of_json(values)).schema
    assert parse_json(values, schema)["a"].to_pylist() == [1, None]
