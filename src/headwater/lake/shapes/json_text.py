"""JSON read by the letter: every value knows where it stands in its text, numbers stay text, no key is forgotten.

This is the plain lane: it decides what a record means. Whatever is quicker must agree with it.
"""

import re
from json import JSONDecodeError
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Final, NamedTuple

from headwater.lake.shapes.scalars import NUMBER

MAX_DEPTH: Final = 100
"""Deeper nesting is no record to us: it is kept whole, as corrupt."""

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_LITERALS: Final = {"n": ("null", None), "t": ("true", True), "f": ("false", False)}


class NotJson(Exception):  # noqa: N818
    """The text is not one JSON object."""


class Value(NamedTuple):
    """A value and where it stands. `tag` is its first character in JSON: `n b 0 " [ {` (b: bool, 0: number).

    `held` is None, a bool, the text of a number, a str, a list of Values, or a list of (key, Value).
    """

    tag: str
    held: object
    start: int
    end: int


def scan_record(raw: bytes) -> tuple[str, Value]:
    """The text of a record and its object; raises NotJson for anything but one JSON object in UTF-8."""
    try:
        text = raw.decode("utf-8")
        at = _skip(text, 0)
        if text[at : at + 1] != "{":
            raise NotJson("the record is not a JSON object")
        value = _scan(text, at, 1)
        if _skip(text, value.end) != len(text):
            raise NotJson("text follows the object")
    except (UnicodeDecodeError, JSONDecodeError, IndexError) as problem:
        raise NotJson(str(problem)) from None
    return text, value


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def _scan(text: str, at: int, depth: int) -> Value:
    first = text[at]
    if first == '"':
        held, end = _string(text, at)
        return Value('"', held, at, end)
    if first == "{":
        return _members(text, at, depth)
    if first == "[":
        return _items(text, at, depth)
    if first in _LITERALS:
        word, constant = _LITERALS[first]
        if not text.startswith(word, at):
            raise NotJson(f"no value at character {at}")
        return Value("n" if constant is None else "b", constant, at, at + len(word))
    number = NUMBER.match(text, at)
    if number is None:
        raise NotJson(f"no value at character {at}")
    return Value("0", number[0], at, number.end())


def _string(text: str, at: int) -> tuple[str, int]:
    held, end = scanstring(text, at + 1, True)
    if len(held) != end - at - 2:
        # Only an escape can make half of a surrogate pair, which no UTF-8 column can hold.
        try:
            held.encode("utf-8")
        except UnicodeEncodeError:
            raise NotJson(f"half a surrogate pair in the string at character {at}") from None
    return held, end


def _members(text: str, at: int, depth: int) -> Value:
    if depth > MAX_DEPTH:
        raise NotJson(f"nested deeper than {MAX_DEPTH}")
    members: list[tuple[str, Value]] = []
    here = _skip(text, at + 1)
    if text[here] == "}":
        return Value("{", members, at, here + 1)
    while True:
        if text[here] != '"':
            raise NotJson(f"no key at character {here}")
        key, here = _string(text, here)
        here = _skip(text, here)
        if text[here] != ":":
            raise NotJson(f"no colon at character {here}")
        value = _scan(text, _skip(text, here + 1), depth + 1)
        members.append((key, value))
        here = _skip(text, value.end)
        if text[here] == "}":
            return Value("{", members, at, here + 1)
        if text[here] != ",":
            raise NotJson(f"no comma at character {here}")
        here = _skip(text, here + 1)


def _items(text: str, at: int, depth: int) -> Value:
    if depth > MAX_DEPTH:
        raise NotJson(f"nested deeper than {MAX_DEPTH}")
    items: list[Value] = []
    here = _skip(text, at + 1)
    if text[here] == "]":
        return Value("[", items, at, here + 1)
    while True:
        value = _scan(text, here, depth + 1)
        items.append(value)
        here = _skip(text, value.end)
        if text[here] == "]":
            return Value("[", items, at, here + 1)
        if text[here] != ",":
            raise NotJson(f"no comma at character {here}")
        here = _skip(text, here + 1)
