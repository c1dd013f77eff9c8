"""Piped tables are plain text: aligned, never cut, never coloured."""

import re
import sys

import pytest

from headwater.cli.output import aligned, bytes_for_people, print_table


def test_columns_are_as_wide_as_their_widest_cell_and_numbers_end_alike() -> None:
    assert aligned(("Topic", "Offset"), [("a", "5"), ("longer", "12345678")], ("Offset",)) == [
        "Topic     Offset",
        "a              5",
        "longer  12345678",
    ]


def test_a_long_cell_is_not_cut_and_none_is_a_dash(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("Config", "Value"), [("x" * 300, None)])
    assert capsys.readouterr().out == f"{'Config'.ljust(300)}  Value\n{'x' * 300}  -\n"


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 * 2**30, "5.0 GiB"), (2**50, "1024.0 TiB")],
)
def test_sizes_have_a_fitting_unit(size_bytes: int, text: str) -> None:
    assert bytes_for_people(size_bytes) == text


def test_a_narrow_terminal_breaks_headings_between_words_and_cuts_only_what_may_be_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    columns = ("TOPIC", "CURRENT-OFFSET", "CONSUMER-ID")
    print_table(columns, [("orders", 7, "a-member-with-a-very-long-name")], numeric=columns[1:2], shortened=columns[2:])
    plain = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert [line.split() for line in plain.splitlines() if "──" not in line] == [
        ["CURRENT-"],
        ["TOPIC", "OFFSET", "CONSUMER-ID"],
        ["orders", "7", "a-member-with-a-very-…"],
    ]
