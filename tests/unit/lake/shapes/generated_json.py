"""JSON of any shape, as texts, and a judge of its own that finds every value again after a load."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from hypothesis import strategies as st

from headwater.lake.shapes.paths import SPILL_SUFFIX, join

KEYS = ["a", "b", "A", "c d", "a.b", "a.element", "", "_key", "_Rescued", "b__string", "é", "x\ny", '"', "#"]
STRINGS = [
    "",
    "x",
    "2024-02-29",
    "2023-02-29",
    "2024-02-29T12:30:00Z",
    "2024-02-29 12:30:00.123456+02:00",
    "2024-02-29T12:30:00.1-0530",
    "2024-02-29T12:30:00",
    "2024-02-29 23:59:60",
    "2024-02-29T12:30:00.1234567Z",
    "0001-01-01T00:00:00+01:00",
    "0001-01-01T00:00:00-18:00",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999Z",
    "9999-12-31T23:59:59-00:01",
    "0000-01-01",
    "1969-12-31",
    "1900-02-29",
    "12",
    "é\n\u2028😀",
    "1" * 40,
]
NUMBERS = [
    "0",
    "-0",
    "-0.0",
    "1",
    "2.0",
    "1.5",
    "1e3",
    "1E+2",
    "0.1",
    "123456.7",
    "0.1000000",
    "2147483647",
    "2147483648",
    "-2147483648",
    "-2147483649",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
    "1" * 38,
    "1" * 39,
    "1" + "0" * 38,
    "0." + "1" * 17,
    "0." + "1" * 30,
    "0." + "0" * 400 + "1",
    "5e-324",
    "1e308",
    "1e309",
    "1e-400",
    "1e99999999999999999999",
    "123456789012345678",
    "1.7976931348623157e308",
    "0.30000000000000004",
    "1152921504606846976",
    "1152921504606846977",
    "100000000000000000000000",
    "1e22",
    "1e23",
    "9007199254740992.5",
]

number_texts = st.one_of(
    st.sampled_from(NUMBERS),
    st.just("1").map(lambda first: first + "0" * 5000),
    st.integers(-(2**70), 2**70).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.from_regex(r"\A-?(0|[1-9][0-9]{0,18})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?\Z"),
)
strings = st.one_of(st.sampled_from(STRINGS), st.text(max_size=5), st.dates().map(str), st.datetimes().map(str))


def quoted(text: str, plain: bool) -> str:
    """A string of JSON, with letters or with escapes."""
    return json.dumps(text, ensure_ascii=not plain)


string_texts = st.builds(quoted, strings, st.booleans())
key_texts = st.builds(quoted, st.sampled_from(KEYS), st.booleans())
scalar_texts = st.one_of(st.sampled_from(["null", "true", "false"]), number_texts, string_texts)
spaces = st.sampled_from(["", " ", "\n\t"])


def _array(items: list[str], space: str) -> str:
    return f"[{space}{f'{space},'.join(items)}{space}]"


def _object(members: list[tuple[str, str]], space: str) -> str:
    return "{" + space + f",{space}".join(f"{key}{space}:{space}{value}" for key, value in members) + space + "}"


def objects(values: st.SearchStrategy[str], *, repeated: bool = False) -> st.SearchStrategy[str]:
    """Objects of these values; with repeated keys on demand."""
    by = None if repeated else (lambda member: json.loads(member[0]))
    return st.builds(_object, st.lists(st.tuples(key_texts, values), max_size=4, unique_by=by), spaces)


def _values(*, repeated: bool) -> st.SearchStrategy[str]:
    return st.recursive(
        scalar_texts,
        lambda below: st.one_of(
            st.builds(_array, st.lists(below, max_size=3), spaces), objects(below, repeated=repeated)
        ),
        max_leaves=8,
    )


records = objects(_values(repeated=False)).map(str.encode)
repeating_records = objects(_values(repeated=True), repeated=True).map(str.encode)
broken_records = st.one_of(
    st.binary(max_size=8),
    st.sampled_from([b"[", b'{"a":']).map(lambda opening: b'{"a":' + opening * 10_000),
    st.integers(98, 101).map(lambda depth: b'{"a":' + b"[" * depth + b"]" * depth + b"}"),
    scalar_texts.map(str.encode),
    st.sampled_from(
        [
            b"",
            b" ",
            b"{}{}",
            b"{} x",
            b'{"a":NaN}',
            b'{"a":-Infinity}',
            b'{"a":01}',
            b'{"a":1.}',
            b'{"a":.5}',
            b'{"a":+1}',
            b'{"a":"\\ud800"}',
            b'{"\\udc00":1}',
            b'{"a":"\\ud83d\\ude00"}',
            b'{"a":"\\ud800\\ud800"}',
            b"base64:",
            b"[1]",
            b'{"a":"\xff"}',
            b'\xef\xbb\xbf{"a":1}',
            b'{"a":1,}',
            b'{"a" 1}',
            b"{'a':1}",
            b'{"a":"\n"}',
            b'{"a":"\\x"}',
            b'{"a":tru}',
            b'{"a":nul',
            b'{"a":"\\u00zz"}',
            b'{"a":"',
            b'{"a":-}',
            b'{"a":1e}',
            b'{"a":1 2}',
            b'{"a":"\xed\xa0\x80"}',
            b'{"a":"\xc0\x80"}',
            b'{"a":"\xf4\x90\x80\x80"}',
            b'{"a":"\\u0000\x7f"}',
            b'{"a":"\0"}',
        ]
    ),
)


@st.composite
def cut_records(draw: st.DrawFn) -> bytes:
    """A record of which a byte was dropped or changed."""
    record = bytearray(draw(records))
    at = draw(st.integers(0, len(record) - 1))
    record[at : at + 1] = draw(st.binary(max_size=1))
    return bytes(record)


any_records = st.one_of(records, records, repeating_records, broken_records, cut_records(), st.none())


def is_kept(raw: bytes | None, row: Mapping[str, Any], *, spills: bool) -> bool:
    """Whether all of a record is in its row: in columns, among the rescued, or whole. `spills`: second columns are."""
    columns = dict(row)
    corrupt, rescued = columns.pop("_corrupt_record"), dict(columns.pop("_rescued") or ())
    if raw is not None and is_json_object(raw):
        return corrupt is None and is_found(json_value(raw), columns, "", rescued, spills=spills)
    if rescued or any(value is not None for value in columns.values()):
        return False
    return corrupt is None if raw is None else original(corrupt) == raw


def is_json_object(raw: bytes) -> bool:
    """As the standard library sees it, with what it is lax about."""
    if raw.count(b"[") + raw.count(b"{") > 100:
        return False
    try:
        value = json.loads(raw.decode("utf-8"), parse_constant=lambda name: json.loads("?"), parse_int=str)
        json.dumps(value, ensure_ascii=False).encode()
    except ValueError:
        return False
    return isinstance(value, dict) and not raw.startswith(b"\xef\xbb\xbf")


def original(corrupt: str | None) -> bytes | None:
    """The bytes of a record that was kept whole."""
    if corrupt is None:
        return None
    return base64.b64decode(corrupt[7:]) if corrupt.startswith("base64:") else corrupt.encode()


def is_found(value: Any, column: Any, path: str, rescued: dict[str, str], spill: Any = None, *, spills: bool) -> bool:
    """Whether a value of JSON is in its column, in its second column, or among the rescued."""
    if value is None:
        return column is None
    if path in rescued and path:
        return same(json_value(rescued[path]), value) and column is None
    if spill is not None:
        return column is None and text_is(spill, value)
    if isinstance(column, str) and not isinstance(value, str):
        return text_is(column, value)
    if isinstance(value, dict) and isinstance(column, dict):
        below = column
        if spills:
            below = {key: held for key, held in column.items() if not key.endswith(SPILL_SUFFIX)}
        return all(
            is_found(
                item,
                below.get(key),
                join(path, key),
                rescued,
                column.get(key + SPILL_SUFFIX) if spills else None,
                spills=spills,
            )
            for key, item in value.items()
        )
    if isinstance(value, dict) and isinstance(column, list):
        entries = dict(column)
        return all(
            is_found(item, entries.get(key), join(path, key), rescued, spills=spills) for key, item in value.items()
        )
    if isinstance(value, list) and isinstance(column, list) and len(value) == len(column):
        return all(is_found(*pair, f"{path}?", {}, spills=spills) for pair in zip(value, column, strict=True))
    return same(value, column)


def text_is(text: str, value: Any) -> bool:
    """Whether a text is that of a value; that of a string is the string itself."""
    return text == value if isinstance(value, str) else same(json_value(text), value)


def json_value(text: str | bytes) -> Any:
    """A value of JSON, its numbers exact."""
    return json.loads(text, parse_float=exact_number, parse_int=exact_number)


def exact_number(text: str) -> Decimal | tuple[str]:
    """A number; beyond what Decimal can do only an equal text is an equal number."""
    try:
        return Decimal(text)
    except InvalidOperation:
        return (text,)


def same(value: Any, other: Any) -> bool:
    """Whether a value of JSON and a value of a column say the same."""
    if isinstance(value, bool) or isinstance(other, bool):
        return value is other
    if isinstance(value, Decimal) and isinstance(other, float):
        return value in (Decimal(repr(other)), Decimal(other))
    if isinstance(value, str) and isinstance(other, datetime):
        wanted = datetime.fromisoformat(value)
        return wanted == (other.astimezone(UTC) if other.tzinfo else other)
    if isinstance(value, str) and isinstance(other, date):
        return value == other.isoformat()
    return bool(value == other) and (value is None) == (other is None)
