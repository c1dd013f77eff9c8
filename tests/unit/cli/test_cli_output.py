"""Piped tables are plain text: aligned, never cut, never coloured."""

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
