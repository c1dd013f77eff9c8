"""Every test of a module that can be compiled runs in both forms."""

import contextlib

import pytest

from unit.client.producer.forms import Core, compiled_core, plain_core


@pytest.fixture(params=["compiled", "plain"])
def core(request: pytest.FixtureRequest) -> Core:
    """The producer's core in one of its forms."""
    return compiled_core() if request.param == "compiled" else plain_core()


@pytest.fixture(scope="session")
def both_cores() -> list[Core]:
    """Every form that there is, for tests that try many inputs."""
    found = [plain_core()]
    with contextlib.suppress(pytest.skip.Exception):
        found.append(compiled_core())
    return found
