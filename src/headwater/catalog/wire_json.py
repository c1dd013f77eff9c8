"""JSON from the wire: what Python's own reader lets through and no database, no client and no answer can carry.

Python reads NaN, numbers of any size, half characters and ten thousand brackets. A number beyond 64 bits fails in the
database, and a NaN that was stored makes every later answer fail that has it in it.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

_MOST_DEEP: Final = 100
"""So deep may objects and lists be nested; a schema of Iceberg with as many levels is read by no engine."""
_SUSPICIOUS: Final = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
_HALF_CHARACTERS: Final = re.compile("[\x00\ud800-\udfff]")
_LARGEST: Final = 2**63 - 1
_BRACKETS: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)


def read_json(body: bytes, *, make_object: Callable[[dict[str, Any]], Any] = dict) -> Any:
    """The value of a JSON text; ValueError for what is no JSON, or cannot be kept."""
    # Python's reader would take other encodings and half characters, whose bytes the checks below do not know.
    text = body.decode("utf-8-sig")
    _check_depth(body)
    value = json.loads(
        text, object_hook=make_object, parse_int=_integer, parse_float=_real, parse_constant=_no_constant
    )
    if _SUSPICIOUS.search(body):
        _check_texts(value)
    return value


def _check_depth(body: bytes) -> None:
    if body.count(b"[") + body.count(b"{") <= _MOST_DEEP:
        return
    depth = 0
    for found in _BRACKETS.finditer(body):
        mark = found[0][:1]
        if mark != b'"':
            depth += 1 if mark in b"[{" else -1
        if depth > _MOST_DEEP:
            raise ValueError(f"it is nested too deeply: at most {_MOST_DEEP} levels")


def _integer(text: str) -> int:
    number = int(text) if len(text) < 21 else _LARGEST + 1
    if not -_LARGEST - 1 <= number <= _LARGEST:
        raise ValueError(f"{text[:40]} is not a number of 64 bits")
    return number


def _real(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is too large for a number")
    return number


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not a number in JSON")


def _check_texts(value: Any) -> None:
    todo = [value]
    while todo:
        each = todo.pop()
        if isinstance(each, str):
            if _HALF_CHARACTERS.search(each):
                raise ValueError(f"no name and no text may have a null character or half of one, like {each!r:.100}")
        elif isinstance(each, Mapping):
            todo += [*each.keys(), *each.values()]
        elif isinstance(each, list):
            todo += each
