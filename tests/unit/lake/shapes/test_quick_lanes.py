"""The quick lanes say exactly what the plain ones say, compiled or not."""

from __future__ import annotations

from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from both_forms import load_compiled, load_plain
from headwater.lake.shapes import inference, parsing
from headwater.lake.shapes.inference import count_plainly, count_quickly, shape_of_json
from headwater.lake.shapes.json_reading import COMPILED
from headwater.lake.shapes.parsing import parse_plainly, parse_quickly, user_fields
from headwater.lake.shapes.planning import plan_schema
from headwater.lake.shapes.policies import Policies
from headwater.lake.shapes.shape import Shape
from unit.lake.shapes.generated_json import KEYS, any_records

LANES = tuple(
    f"headwater.lake.shapes.{part}" for part in ("json_reading", "json_column", "json_columns", "json_counting")
)
batches = st.lists(any_records, max_size=6)
MOMENT = "2024-02-28T12:30:15.25+01:30"


@given(batches)
@settings(deadline=None, max_examples=200)
@example(
    [b'{"a":1e0000000000005}', b'{"a":0.00e5}', b'{"a":"2024-02-2\\u0039"}', b'{"\\u0061":1}', b'{"a":1,"\\u0061":2}']
)
def test_both_lanes_count_alike(batch: list[bytes | None]) -> None:
    check_counts(batch)


@pytest.mark.parametrize("place", range(len(MOMENT)))
def test_both_lanes_take_no_letter_for_a_digit(place: int) -> None:
    text = f"{MOMENT[:place]}i{MOMENT[place + 1 :]}"
    batch: list[bytes | None] = [b'{"a": "%s", "b": "%s"}' % (text.encode(), text[:10].encode())]
    check_counts(batch)
    check_both_lanes(batch, pa.schema([("a", pa.timestamp("us", "UTC")), ("b", pa.date32())]), Policies())


def check_counts(batch: list[bytes | None]) -> None:
    values = pa.array(batch, pa.binary())
    plain, corrupt = count_plainly(values)
    quick, corrupt_too = count_quickly(values)
    assert Shape(root=quick).to_json() == Shape(root=plain).to_json()
    assert corrupt == corrupt_too


SCALARS = (
    pa.bool_(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.large_string(), pa.date32(),
    pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("ns"), pa.decimal128(20, 3), pa.binary(), pa.binary(16),
    pa.time64("us"), pa.uuid(), pa.null(),
)  # fmt: skip

types_by_hand = st.recursive(
    st.sampled_from(SCALARS),
    lambda below: st.one_of(
        below.map(pa.list_),
        below.map(pa.large_list),
        below.map(lambda item: pa.map_(pa.string(), item)),
        st.lists(st.tuples(st.sampled_from(KEYS), below), max_size=3, unique_by=lambda field: field[0]).map(pa.struct),
    ),
    max_leaves=5,
)
schemas_by_hand = st.lists(
    st.tuples(st.sampled_from(KEYS), types_by_hand), max_size=5, unique_by=lambda field: field[0]
).map(pa.schema)
policies_of_tables = st.builds(Policies, default=st.sampled_from(["corrupt", "columns", "string"]))


@pytest.mark.parametrize("broken", [b"", b"{}}"])
@pytest.mark.parametrize("repeated", [b"", b', "k5": 1'])
@pytest.mark.parametrize("keys", [200, 256, 257, 600])
def test_both_lanes_count_alike_when_there_are_very_many_keys(keys: int, repeated: bytes, broken: bytes) -> None:
    inside = [b", ".join(b'"k%d": {"x%d": %d}' % (key, key, key) for key in range(at, keys, 7)) for at in range(7)]
    batch = [b'{"a": {"b": {%s%s}}}' % (members, repeated) for members in inside]
    check_counts([b'{"a": {"b": {"odd": 1, "even": 2}}} %s' % broken, *batch])


@given(batches, batches, policies_of_tables)
@settings(deadline=None, max_examples=200)
def test_both_lanes_parse_alike(known: list[bytes | None], batch: list[bytes | None], policies: Policies) -> None:
    schema = plan_schema(shape_of_json(pa.array(known + batch[::2], pa.binary())), None, policies).schema
    check_both_lanes(batch, schema, policies)


@given(batches, schemas_by_hand, policies_of_tables)
@settings(deadline=None, max_examples=200)
def test_both_lanes_parse_alike_for_any_schema(
    batch: list[bytes | None], schema: pa.Schema, policies: Policies
) -> None:
    check_both_lanes(batch, user_fields(schema), policies)


@given(batches)
@example([b'{"b":""}'])
@settings(deadline=None, max_examples=50)
def test_the_quick_lanes_need_no_compiler(batch: list[bytes | None]) -> None:
    values = pa.array(batch, pa.binary())
    schema = plan_schema(shape_of_json(values)).schema
    plain = load_plain(LANES)
    with (
        patch.object(inference, "RecordCounter", plain["headwater.lake.shapes.json_counting"].RecordCounter),
        patch.object(parsing, "ColumnReader", plain["headwater.lake.shapes.json_columns"].ColumnReader),
    ):
        assert Shape(root=count_quickly(values)[0]) == Shape(root=count_plainly(values)[0])
        check_both_lanes(batch, schema, Policies())


def test_the_lanes_that_users_get_are_compiled() -> None:
    load_compiled(LANES)
    assert COMPILED


def check_both_lanes(batch: list[bytes | None], schema: pa.Schema, policies: Policies) -> None:
    values = pa.array([b"{}", *batch, b"{}"], pa.binary())[1:-1]
    quick = parse_quickly(values, schema, policies)
    quick.validate(full=True)
    # Printed, so that NaN and the sign of zero count too.
    assert str(quick.to_pylist()) == str(parse_plainly(values, schema, policies).to_pylist())
