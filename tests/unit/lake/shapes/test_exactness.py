"""A value is in its column exactly, or it is not there at all but rescued: by either lane."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.lake.shapes.parsing import parse_plainly, parse_quickly
from headwater.lake.shapes.policies import Policies

Parse = Callable[[pa.Array, pa.Schema, Policies], pa.RecordBatch]

HELD = [
    (pa.int64(), "-9223372036854775808", -(2**63)),
    (pa.int64(), "9223372036854775807", 2**63 - 1),
    (pa.int64(), "2.0", 2),
    (pa.int64(), "12e2", 1200),
    (pa.int32(), "-2147483648", -(2**31)),
    (pa.float64(), "0.1", 0.1),
    (pa.float64(), "0.30000000000000004", 0.30000000000000004),
    (pa.float64(), "1152921504606846976", 2.0**60),
    (pa.float64(), "5e-324", 5e-324),
    (pa.float64(), "1e23", 1e23),
    (pa.float32(), "0.1", pytest.approx(0.1)),
    (pa.float32(), "1234567.5", 1234567.5),
    (pa.decimal128(5, 2), "-123.4", Decimal("-123.40")),
    (pa.decimal128(5, 0), "1e4", Decimal(10000)),
    (pa.date32(), '"2024-02-29"', date(2024, 2, 29)),
    (pa.timestamp("us"), '"2024-02-29 12:00:00.000001"', datetime(2024, 2, 29, 12, 0, 0, 1)),  # noqa: DTZ001
    (pa.timestamp("us", "UTC"), '"2024-02-29T12:00:00+0530"', datetime(2024, 2, 29, 6, 30, tzinfo=UTC)),
    (pa.timestamp("us", "UTC"), '"1969-12-31T23:59:59.9-01:00"', datetime(1970, 1, 1, 0, 59, 59, 900_000, tzinfo=UTC)),
    (pa.time64("us"), '"12:30:00.5"', time(12, 30, 0, 500_000)),
    (pa.uuid(), '"123e4567-e89b-12d3-a456-426614174000"', uuid.UUID("123e4567-e89b-12d3-a456-426614174000")),
    (pa.string(), '"\\u00e9\\n\\ud83d\\ude00"', "é\n😀"),
    (pa.list_(pa.int64()), "[1, null]", [1, None]),
    (pa.struct([("x", pa.int64())]), "{}", {"x": None}),
]
NOT_HELD = [
    (pa.int64(), "9223372036854775808"),
    (pa.int64(), "1.5"),
    (pa.int64(), "-0"),
    (pa.int64(), '"1"'),
    (pa.int32(), "2147483648"),
    (pa.float64(), "1152921504606846977"),
    (pa.float64(), "9007199254740993"),
    (pa.float64(), "9007199254740993.0"),
    (pa.float64(), "0.10000000000000001"),
    (pa.float64(), "0.1000000000000000055"),
    (pa.float64(), "1e309"),
    (pa.float64(), "1e-400"),
    (pa.float32(), "0.12345678"),
    (pa.decimal128(5, 2), "0.125"),
    (pa.decimal128(5, 2), "1000"),
    (pa.bool_(), "1"),
    (pa.date32(), '"2023-02-29"'),
    (pa.date32(), '"2024-02-29T00:00:00"'),
    (pa.timestamp("us"), '"2024-02-29T00:00:00Z"'),
    (pa.timestamp("us", "UTC"), '"2024-02-29T00:00:00"'),
    (pa.timestamp("us", "UTC"), '"2024-02-29T00:00:00.1234567Z"'),
    (pa.timestamp("us", "UTC"), '"0001-01-01T00:00:00+00:01"'),
    (pa.timestamp("ns"), '"2024-02-29T00:00:00"'),
    (pa.uuid(), '"123E4567-e89b-12d3-a456-426614174000"'),
    (pa.binary(), '"x"'),
    (pa.string(), "1"),
    (pa.list_(pa.int64()), '[1, "x"]'),
    (pa.list_(pa.struct([("x", pa.int64())])), '[{"x": 1, "y":  2}]'),
    (pa.struct([("x", pa.int64())]), "[1]"),
]


@pytest.mark.parametrize("parse", [parse_plainly, parse_quickly])
@pytest.mark.parametrize(("type_", "text", "value"), HELD)
def test_what_a_type_holds_is_in_the_column(parse: Parse, type_: pa.DataType, text: str, value: object) -> None:
    row = parse(pa.array([b'{"a": %s}' % text.encode()]), pa.schema([("a", type_)]), Policies()).to_pylist()[0]
    assert row == {"a": value, "_rescued": None, "_corrupt_record": None}


@pytest.mark.parametrize("parse", [parse_plainly, parse_quickly])
@pytest.mark.parametrize(("type_", "text"), NOT_HELD)
def test_what_a_type_does_not_hold_is_rescued_as_it_was_written(parse: Parse, type_: pa.DataType, text: str) -> None:
    row = parse(pa.array([b'{"a": %s}' % text.encode()]), pa.schema([("a", type_)]), Policies()).to_pylist()[0]
    assert row == {"a": None, "_rescued": [("a", text)], "_corrupt_record": None}


@given(st.lists(st.from_regex(r"\A-?(0|[1-9][0-9]{0,6})\.[0-9]{9,17}\Z"), min_size=20, max_size=20))
@settings(deadline=None, max_examples=50)
def test_doubles_of_many_digits_are_in_the_column_if_they_are_written_so(texts: list[str]) -> None:
    values = pa.array([f'{{"a": {text}}}'.encode() for text in texts])
    rows = parse_quickly(values, pa.schema([("a", pa.float64())]), Policies()).to_pylist()
    for text, row in zip(texts, rows, strict=True):
        near = float(text)
        is_held = Decimal(text) in (Decimal(repr(near)), Decimal(near))
        assert row["a"] == (near if is_held else None)
        assert row["_rescued"] == (None if is_held else [("a", text)])
