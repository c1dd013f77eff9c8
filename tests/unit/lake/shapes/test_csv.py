"""CSV is typed by the same rules as JSON: exactly, or kept as text."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.lake.shapes import Policies, parse_csv, plan_schema, shape_of_csv
from headwater.lake.shapes.scalars import Kind, temporal_of
from unit.lake.shapes.generated_json import number_texts, strings

texts = st.one_of(
    st.none(),
    strings,
    number_texts,
    st.sampled_from(["true", "false", "True", "007", "+5", "1.", ".5", "NaN", " 1", "-0"]),
)


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        (["1", "-5", ""], pa.int64()),
        (["1", "2.5"], pa.float64()),
        (["007", "1"], pa.string()),
        (["true", "false"], pa.bool_()),
        (["true", "1"], pa.string()),
        (["2024-02-29", None], pa.date32()),
        (["2024-02-29 10:00:00"], pa.timestamp("us")),
        (["2024-02-29T10:00:00Z"], pa.timestamp("us", "UTC")),
        (["18446744073709551616"], pa.decimal128(38, 0)),
        (["1", "x"], pa.string()),
    ],
)  # fmt: skip
def test_a_column_gets_the_type_that_all_its_texts_have(values: list[str], type_: pa.DataType) -> None:
    table = pa.table({"a": pa.array(values, pa.string())})
    assert plan_schema(shape_of_csv(table)).schema == pa.schema([("a", type_)])


@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=5), st.lists(texts, max_size=3))
@settings(deadline=None)
def test_every_text_is_found_again(rows: list[tuple[str | None, str | None]], earlier: list[str | None]) -> None:
    table = pa.table(
        {"a": pa.array([a for a, _ in rows], pa.string()), "b": pa.array([b for _, b in rows], pa.string())}
    )
    first = plan_schema(shape_of_csv(pa.table({"a": pa.array(earlier, pa.string())}))).schema
    schema = plan_schema(shape_of_csv(table), first).schema
    for (a, b), row in zip(rows, parse_csv(table, schema).to_pylist(), strict=True):
        rescued = dict(row["_rescued"] or ())
        for name, text in (("a", a or None), ("b", b or None)):
            if name in rescued:
                assert (rescued[name], row.get(name)) == (text, None)
            else:
                assert is_same(text, row.get(name))


def is_same(text: str | None, value: object) -> bool:
    if text is None or isinstance(value, str):
        return text == value
    if isinstance(value, bool):
        return text == str(value).lower()
    if isinstance(value, int | Decimal):
        return Decimal(text) == value
    if isinstance(value, float):
        return Decimal(text) in (Decimal(value), Decimal(repr(value)))
    return value is not None and temporal_of(text)[0] is not Kind.STRING


def test_texts_that_do_not_fit_a_column_go_where_the_policy_says() -> None:
    table = pa.table({"a": ["1", "x", ""], "b": ["true", "", "?"], "_row": ["5", "", ""]})
    schema = pa.schema([("a", pa.int64()), ("b", pa.bool_()), ("b__string", pa.string())])
    rows = parse_csv(table, schema, Policies(fields={"b": "columns"})).to_pylist()
    assert rows == [
        {"a": 1, "b": True, "b__string": None, "_rescued": [("_row", "5")], "_corrupt_record": None},
        {"a": None, "b": None, "b__string": None, "_rescued": [("a", "x")], "_corrupt_record": None},
        {"a": None, "b": None, "b__string": "?", "_rescued": None, "_corrupt_record": None},
    ]


@pytest.mark.parametrize(
    "text", ['2024-02-29","w":"', '2024-02-29"}', "2024-02-29\n", "2024-02-29\\u0020", "\\u0032024-02-29"]
)
def test_no_text_breaks_out_of_its_value(text: str) -> None:
    table = pa.table({"a": [text, "2024-02-29"]})
    rows = parse_csv(table, pa.schema([("a", pa.date32())])).to_pylist()
    assert (rows[0]["a"], rows[0]["_rescued"]) == (None, [("a", text)])
    assert plan_schema(shape_of_csv(table)).schema == pa.schema([("a", pa.string())])


def test_of_columns_with_one_name_none_is_lost() -> None:
    table = pa.Table.from_arrays([pa.array(["1"]), pa.array(["2"])], names=["a", "a"])
    row = parse_csv(table, pa.schema([("a", pa.int64())])).to_pylist()[0]
    assert (row["a"], row["_rescued"]) == (2, [("a#0", "1")])
