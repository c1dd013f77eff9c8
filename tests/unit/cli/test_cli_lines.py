"""Input becomes the lines and the records that it should, however it is cut into chunks."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.cli.line_input import LineCutter
from headwater.cli.line_records import BadLineError, LineFormat, parse_headers


@given(
    data=st.text("ab;\n").map(str.encode),
    cuts=st.lists(st.integers(0, 200)),
    delimiter=st.sampled_from([b"\n", b";;"]),
)
def test_lines_do_not_depend_on_where_chunks_end(data: bytes, cuts: list[int], delimiter: bytes) -> None:
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    cutter = LineCutter(delimiter)
    lines = [line for a, b in pairwise(edges) for line in cutter.cut(data[a:b])]
    assert [*lines, cutter.rest()] == data.split(delimiter)


def values(line_format: LineFormat, *lines: bytes) -> list[tuple[bytes | None, bytes | None]]:
    return [record[:2] for record in line_format.records(lines)]


def test_a_plain_line_is_a_value() -> None:
    assert LineFormat().records([b"a", b""]) == [(None, b"a", ()), (None, b"", ())]


def test_a_key_ends_at_the_first_separator_and_may_be_missing_or_empty() -> None:
    keyed = LineFormat(key_separator=b":")
    assert values(keyed, b"k:v:w", b"none", b":v") == [(b"k", b"v:w"), (None, b"none"), (b"", b"v")]


def test_a_mark_stands_for_null() -> None:
    marked = LineFormat(key_separator=b"=", null_value=b"NULL")
    assert values(marked, b"k=NULL", b"NULL", b"k=NULLX") == [(b"k", None), (None, None), (b"k", b"NULLX")]


def test_headers_of_the_line_follow_those_of_all_lines() -> None:
    both = LineFormat(headers=(("all", b"1"),), headers_separator=b"\t", key_separator=b"\t")
    assert both.records([b"a:x,b:\tkey\tvalue"]) == [(b"key", b"value", (("all", b"1"), ("a", b"x"), ("b", b"")))]


def test_a_line_without_its_headers_is_shown_in_the_error() -> None:
    with pytest.raises(BadLineError, match="oops"):
        LineFormat(headers_separator=b"\t").records([b"oops"])
    with pytest.raises(BadLineError, match="nocolon"):
        parse_headers(b"a:1,nocolon")
