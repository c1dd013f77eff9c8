"""Every test of a module that can be compiled runs in both forms."""

from collections.abc import Callable
from types import ModuleType

import pytest

from both_forms import PROTOCOL, load_compiled, load_plain


def compiled(part: str) -> ModuleType:
    return load_compiled(PROTOCOL)[f"headwater.protocol.{part}"]


def plain(part: str) -> ModuleType:
    return load_plain(PROTOCOL)[f"headwater.protocol.{part}"]


@pytest.fixture(scope="session")
def plain_records() -> ModuleType:
    return plain("records")


@pytest.fixture(scope="session")
def compiled_records() -> ModuleType:
    return compiled("records")


@pytest.fixture(scope="session", params=["compiled", "plain"])
def form(request: pytest.FixtureRequest) -> Callable[[str], ModuleType]:
    """Modules of `headwater.protocol` by name, in one of their forms."""
    return compiled if request.param == "compiled" else plain


@pytest.fixture(scope="session")
def records(form: Callable[[str], ModuleType]) -> ModuleType:
    """`headwater.protocol.records` in one of its forms."""
    return form("records")
