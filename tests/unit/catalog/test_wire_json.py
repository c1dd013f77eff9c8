"""JSON from the wire is read unless a database, a client or an answer could not carry it."""

import pytest

from headwater.catalog.wire_json import read_json


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"1e999", "too large"),
        (b"[-Infinity]", "not a number"),
        (b'{"a": 9223372036854775808}', "64 bits"),
        (b"-9223372036854775809", "64 bits"),
        (b"1" * 10_000, "64 bits"),
        (b'["a\\u0000b"]', "null character"),
        (b'{"\\ud800": 1}', "half of one"),
        (b"[" * 101 + b"]" * 101, "too deeply"),
        (b'{"a":' * 50_000, "too deeply"),
        (b"\xff", "decode"),
        (b"", "Expecting"),
    ],
)
def test_what_cannot_be_kept_is_refused(body: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_json(body)


def test_all_else_is_read() -> None:
    assert read_json('{"a": ["\\ud83d\\ude00", "ä", 1.5, -9223372036854775808, null]}'.encode()) == {
        "a": ["😀", "ä", 1.5, -(2**63), None]
    }
    assert read_json(b'["' + b"[" * 500 + b'\\"", [' + b"[]," * 500 + b"1]]")[0] == "[" * 500 + '"'
