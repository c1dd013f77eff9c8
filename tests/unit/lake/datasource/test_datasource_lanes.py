"""Lanes: raw batches become the columns that are wanted, and nothing is lost on the way."""

from typing import Any

import pyarrow as pa
import pytest

from headwater.lake.datasource.columns import TOPIC_COLUMNS
from headwater.lake.datasource.lanes import default_columns, lane, needed_columns
from headwater.lake.datasource.options import ValueLane
from headwater.lake.errors import LakeUsageError
from headwater.lake.shapes import Shape, shape_of_json

NO_TEXT = b"\xff\xfe"
"""Bytes that are no UTF-8."""


def raw(*values: bytes | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"_offset": [*range(len(values))], "value": pa.array(values, pa.binary())})


def rows(value: ValueLane, wanted: pa.Schema, *values: bytes | None) -> list[dict[str, Any]]:
    (made,) = lane(value, wanted)([raw(*values)])
    assert made.schema.names == wanted.names
    assert [made.schema.field(name).type for name in wanted.names] == wanted.types
    found: list[dict[str, Any]] = made.to_pylist()
    return found


def test_raw_batches_are_handed_on_in_the_order_of_the_columns() -> None:
    wanted = pa.schema([("value", pa.binary()), ("_offset", pa.int64())])
    assert rows("raw", wanted, b"a", None) == [{"value": b"a", "_offset": 0}, {"value": None, "_offset": 1}]


def test_text_is_text_and_what_is_none_is_kept() -> None:
    wanted = pa.schema([("value", pa.string()), ("_corrupt_record", pa.string())])
    assert rows("text", wanted, "Grüße".encode(), None, NO_TEXT) == [
        {"value": "Grüße", "_corrupt_record": None},
        {"value": None, "_corrupt_record": None},
        {"value": None, "_corrupt_record": "base64://4="},
    ]
    only_text = pa.schema([("value", pa.string())])
    assert rows("text", only_text, b"a", NO_TEXT) == [{"value": "a"}, {"value": "base64://4="}]
    assert rows("text", only_text, b"a", b"b") == [{"value": "a"}, {"value": "b"}]


def test_json_becomes_typed_columns_between_those_of_the_record() -> None:
    wanted = pa.schema(
        [
            ("_offset", pa.int64()),
            ("id", pa.int64()),
            ("value", pa.float64()),
            ("_rescued", pa.map_(pa.string(), pa.string())),
            ("_corrupt_record", pa.string()),
        ]
    )
    assert rows("json", wanted, b'{"id": 1, "value": 2.5}', b'{"id": "x"}', b"{", None) == [
        {"_offset": 0, "id": 1, "value": 2.5, "_rescued": None, "_corrupt_record": None},
        {"_offset": 1, "id": None, "value": None, "_rescued": [("id", '"x"')], "_corrupt_record": None},
        {"_offset": 2, "id": None, "value": None, "_rescued": None, "_corrupt_record": "{"},
        {"_offset": 3, "id": None, "value": None, "_rescued": None, "_corrupt_record": None},
    ]


def test_a_split_has_one_shape() -> None:
    batches = [raw(b'{"a": 1}'), raw(b'{"a": 2.5, "b": "x"}', b"no json")]
    (made,) = lane("shape", default_columns("shape", TOPIC_COLUMNS))(batches)
    (found,) = made.to_pylist()
    whole = shape_of_json(pa.array([b'{"a": 1}', b'{"a": 2.5, "b": "x"}', b"no json"]))
    assert Shape.from_json(found["shape"]).to_json() == whole.to_json()
    assert list(lane("shape", default_columns("shape", TOPIC_COLUMNS))([])) == []


def test_only_columns_that_are_looked_at_are_read() -> None:
    assert needed_columns("raw", TOPIC_COLUMNS, TOPIC_COLUMNS) == {*TOPIC_COLUMNS.names}
    assert needed_columns("raw", pa.schema([("_offset", pa.int64())]), TOPIC_COLUMNS) == {"_offset"}
    assert needed_columns("text", pa.schema([("_corrupt_record", pa.string())]), TOPIC_COLUMNS) == {"value"}
    assert needed_columns("json", pa.schema([("id", pa.int64())]), TOPIC_COLUMNS) == {"value"}
    assert needed_columns("shape", default_columns("shape", TOPIC_COLUMNS), TOPIC_COLUMNS) == {"value"}


@pytest.mark.parametrize(
    ("value", "wanted", "words"),
    [
        ("raw", pa.schema([("id", pa.int64())]), "value = raw has no column id: there are _topic, _partition"),
        ("raw", pa.schema([("value", pa.string())]), "the column value is binary and cannot be read as string"),
        ("json", pa.schema([("_offset", pa.int32())]), "the column _offset is int64 and cannot be read as int32"),
        ("shape", pa.schema([("id", pa.int64())]), "value = shape has one column, shape string"),
    ],
)
def test_columns_that_a_lane_cannot_give_are_named(value: ValueLane, wanted: pa.Schema, words: str) -> None:
    with pytest.raises(LakeUsageError, match=words):
        needed_columns(value, wanted, TOPIC_COLUMNS)


def test_json_without_columns_says_where_they_come_from() -> None:
    with pytest.raises(LakeUsageError, match=r"name them with \.schema"):
        default_columns("json", TOPIC_COLUMNS)
