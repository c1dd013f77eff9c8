"""Option values mean what people write."""

import pytest
import typer

from headwater.cli.options import pairs, timestamp_ms, unescaped


def test_escapes_stand_for_bytes_and_all_else_for_itself() -> None:
    assert unescaped(r"\t") == b"\t"
    assert unescaped(r"a\n\x41\0\\n") == b"a\nA\0\\n"
    assert unescaped(r"\d::é") == rb"\d::" + "é".encode()


def test_pairs_keep_what_follows_the_first_equals_sign() -> None:
    assert pairs(["a=1", "b=x=y", "c="], "--config") == {"a": "1", "b": "x=y", "c": ""}


@pytest.mark.parametrize("text", ["novalue", "=value"])
def test_what_is_no_pair_is_a_usage_error_that_shows_it(text: str) -> None:
    with pytest.raises(typer.BadParameter, match=text):
        pairs([text], "--config")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1700000000000", 1700000000000),
        ("2024-01-01T00:00:00Z", 1704067200000),
        ("2024-01-01T00:00:00.250+00:00", 1704067200250),
        ("2024-01-01 09:00:00+09:00", 1704067200000),
        ("yesterday", None),
    ],
)
def test_times_are_iso_or_epoch_milliseconds(text: str, expected: int | None) -> None:
    assert timestamp_ms(text) == expected
