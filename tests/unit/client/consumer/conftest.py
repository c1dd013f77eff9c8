"""Every test of a module that can be compiled runs in both forms."""

from collections.abc import Callable
from types import ModuleType

import pytest

from both_forms import CONSUMER, PROTOCOL, load_compiled, load_plain


@pytest.fixture(scope="session", params=["compiled", "plain"])
def form(request: pytest.FixtureRequest) -> Callable[[str], ModuleType]:
    """Modules of `headwater.client.consumer` by name, in one of their forms."""
    modules = (load_compiled if request.param == "compiled" else load_plain)((*PROTOCOL, *CONSUMER))
    return lambda part: modules[f"headwater.client.consumer.{part}"]
