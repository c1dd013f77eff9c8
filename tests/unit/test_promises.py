"""docs/durability.md and docs/security.md promise nothing without a test: every sentence names one by number, and each
of those exists.
"""

import re
import symtable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOT_PROMISED = "## What is not promised"


class Page:
    """The promises of a page, and the tests that are listed at its end by their numbers."""

    def __init__(self, name: str) -> None:
        text = (ROOT / "docs" / f"{name}.md").read_text("utf-8")
        self.promises, _, tests = text.partition("\n## The tests\n")
        self.listed: dict[str, str] = dict(re.findall(r"^(\d+)\. `([^`]+)`$", tests, re.M))


@pytest.fixture(params=["durability", "security"])
def page(request: pytest.FixtureRequest) -> Page:
    return Page(request.param)


def names_in(file: Path) -> set[str]:
    """The tests of a file: `test_x`, `TestX`, `TestX::test_y`."""
    # No `ast`: in Python 3.11 it counts its depth wrongly after errors and beside other threads (gh-106905).
    module = symtable.symtable(file.read_text("utf-8"), file.name, "exec")
    names = {each.get_name() for each in module.get_symbols() if each.is_assigned()}
    for each in module.get_children():
        if each.get_type() == "class":
            names |= {f"{each.get_name()}::{method.get_name()}" for method in each.get_children()}
    return {name for name in names if name.lower().startswith("test")}


def test_every_test_that_is_named_exists(page: Page) -> None:
    assert page.listed
    for number, test in page.listed.items():
        file, _, name = test.partition("::")
        assert (ROOT / file).is_file(), f"[{number}] {file}"
        assert name in names_in(ROOT / file), f"[{number}] {name}"


def test_the_numbers_in_the_text_are_those_of_the_list_in_order(page: Page) -> None:
    used = [number for group in re.findall(r"\[(\d+(?:, \d+)*)\]", page.promises) for number in group.split(", ")]
    assert set(used) == set(page.listed)
    assert list(page.listed) == [str(number) for number in range(1, len(page.listed) + 1)]
    assert len(set(page.listed.values())) == len(page.listed), "a test is listed twice"


def test_every_promise_names_a_test(page: Page) -> None:
    promised = page.promises.partition(NOT_PROMISED)[0]
    points = re.findall(r"^- .*(?:\n  .*)*", promised, re.M)
    rows = [row for row in re.findall(r"^\|.*\|$", promised, re.M) if not re.match(r"\|[-| ]*\|$", row)]
    assert points
    assert rows
    silent = [point for point in points if not re.search(r"\[\d", point)]
    silent += [row for row in rows if not re.search(r"\[\d", row) and not row.startswith("| |")]
    assert silent == []
