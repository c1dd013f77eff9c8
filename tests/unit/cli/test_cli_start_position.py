"""`--offset` takes all the ways to say where to start."""

import pytest

from headwater.cli.start_position import StartAt, StartKind, parse_start


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", StartAt(StartKind.EARLIEST)),
        ("beginning", StartAt(StartKind.EARLIEST)),
        ("latest", StartAt(StartKind.BEFORE_END)),
        ("end", StartAt(StartKind.BEFORE_END)),
        ("0", StartAt(StartKind.OFFSET, 0)),
        ("42", StartAt(StartKind.OFFSET, 42)),
        ("-5", StartAt(StartKind.BEFORE_END, 5)),
        ("@1700000000000", StartAt(StartKind.TIME, 1_700_000_000_000)),
        ("s@1700000000000", StartAt(StartKind.TIME, 1_700_000_000_000)),
        ("2024-01-01T00:00:00Z", StartAt(StartKind.TIME, 1_704_067_200_000)),
    ],
)
def test_every_form(text: str, expected: StartAt) -> None:
    assert parse_start(text) == expected


@pytest.mark.parametrize("text", ["", "-", "first", "1.5", "--5"])
def test_everything_else_is_refused_with_the_forms_there_are(text: str) -> None:
    with pytest.raises(ValueError, match="use a number, earliest"):
        parse_start(text)
