"""Typed rows into the fields of a table: exactly, or rescued as text; one value that does not fit costs no other."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as f

from headwater.lake import Lake
from headwater.lake.load.conforming import conform
from headwater.lake.load.layout import LEFTOVERS
from headwater.lake.shapes import Policies
from peers.spark import lake as lake
from peers.spark import pyspark_leaves_sockets

pytestmark = pyspark_leaves_sockets


def conformed(
    lake: Lake, ddl: str, rows: list[tuple[Any, ...]], fields: dict[str, pa.DataType], **how: Any
) -> list[Any]:
    frame = lake.spark.createDataFrame(rows, ddl)
    schema = pa.schema([*(pa.field(name, type_) for name, type_ in fields.items()), *LEFTOVERS])
    answer = conform(frame, schema, **how).toArrow()
    assert answer.schema.names == schema.names
    return [tuple(row.values())[:-1] for row in answer.to_pylist()]


SCALARS: list[tuple[str, pa.DataType, list[Any], list[Any]]] = [
    ("int", pa.int64(), [1, None], [(1, None), (None, None)]),
    ("long", pa.int32(), [7, 2**40], [(7, None), (None, "1099511627776")]),
    ("long", pa.float64(), [2**53, 2**53 + 1], [(2.0**53, None), (None, "9007199254740993")]),
    ("float", pa.float64(), [0.5], [(0.5, None)]),
    ("double", pa.float32(), [0.5, 0.1], [(0.5, None), (None, "0.1")]),
    ("double", pa.int64(), [2.0, 2.5, -0.0, float("nan")], [(2, None), (None, "2.5"), (None, "-0.0"), (None, "NaN")]),
    ("decimal(10,2)", pa.float64(), [Decimal("1.10")], [(1.1, None)]),
    (
        "decimal(10,2)",
        pa.decimal128(5, 1),
        [Decimal("1.10"), Decimal("1.11")],
        [(Decimal("1.1"), None), (None, "1.11")],
    ),
    ("boolean", pa.int32(), [True], [(None, "true")]),
    ("string", pa.int64(), ["7"], [(None, "7")]),
    (
        "string",
        pa.date32(),
        ["2024-02-29", "2024-02-30", "29.2.2024"],
        ["date", (None, "2024-02-30"), (None, "29.2.2024")],
    ),
    ("int", pa.string(), [5], [("5", None)]),
    ("binary", pa.string(), [b"ok", b"\xff"], [("ok", None), (None, "base64:/w==")]),
]


@pytest.mark.parametrize(("source", "target", "given", "expected"), SCALARS, ids=[f"{s}-{t}" for s, t, _, _ in SCALARS])
def test_a_value_is_cast_where_that_is_exact_and_else_rescued(
    lake: Lake, source: str, target: pa.DataType, given: list[Any], expected: list[Any]
) -> None:
    found = conformed(lake, f"v {source}", [(value,) for value in given], {"v": target})
    for (value, rescued), wanted in zip(found, expected, strict=True):
        text = dict(rescued)["v"] if rescued else None
        if wanted == "date":
            assert (value.isoformat(), text) == ("2024-02-29", None)
        else:
            assert (value, text) == wanted


def test_structs_fit_field_by_field_and_lists_and_maps_as_a_whole(lake: Lake) -> None:
    found = conformed(
        lake,
        "s struct<x:int,y:string,z:binary>, l array<long>, m map<string,long>, same array<struct<a:int>>",
        [((1, "a", b"\xff"), [1, 2], {"k": 1}, [(1,)]), (None, [1, 2**40], {"k": 2**40}, None)],
        {
            "s": pa.struct([("x", pa.int64()), ("new", pa.string()), ("y", pa.int32())]),
            "l": pa.list_(pa.int32()),
            "m": pa.map_(pa.string(), pa.int32()),
            "same": pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string())])),
        },
    )
    assert found == [
        (
            {"x": 1, "new": None, "y": None},
            [1, 2],
            [("k", 1)],
            [{"a": 1, "b": None}],
            [("s.y", "a"), ("s.z", "base64:/w==")],
        ),
        (None, None, None, None, [("l", "[1,1099511627776]"), ("m", '{"k":1099511627776}')]),
    ]


def test_columns_that_nobody_asked_for_are_rescued_under_their_names(lake: Lake) -> None:
    found = conformed(
        lake,
        "`a.b` int, A int, _row string, extra array<int>, there long",
        [(1, 2, "mine", [3], 4)],
        {"a.b": pa.int32(), "a": pa.int32(), "_row": pa.int64(), "_path": pa.string()},
        origin={"_row": "there", "_path": f.lit("p")},
    )
    assert found == [(1, None, 4, "p", [("A", "2"), ("_row", "mine"), ("extra", "[3]")])]


def test_policies_decide_where_misfits_go(lake: Lake) -> None:
    given = [([1],), (None,)]
    assert conformed(lake, "v array<int>", given, {"v": pa.string()})[0] == (None, [("v", "[1]")])
    as_text = conformed(lake, "v array<int>", given, {"v": pa.string()}, policies=Policies(default="string"))
    assert as_text[0] == ("[1]", None)
    fields = {"v": pa.int64(), "v__string": pa.string()}
    beside = conformed(lake, "v array<int>", given, fields, policies=Policies(default="columns"))
    assert beside == [(None, "[1]", None), (None, None, None)]
