"""Record batches are tested in both forms: compiled, as users run them, and plain, without Cython."""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

COMPILED_PARTS = ("batches", "record_decoding", "record_encoding")
PARTS = ("batches", "record_decoding", "record_columns", "record_encoding", "records")


@contextmanager
def modules_put_back(*names: str) -> Iterator[None]:
    before = {name: sys.modules.get(name) for name in names}
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module


def load_plain_records() -> ModuleType:
    """`headwater.protocol.records` and its parts from their sources, as if there were no Cython."""
    package = importlib.import_module("headwater.protocol")
    assert package.__file__ is not None
    names = [f"headwater.protocol.{part}" for part in PARTS]
    with modules_put_back("cython", *names):
        sys.modules["cython"] = None  # type: ignore[assignment]
        for name, part in zip(names, PARTS, strict=True):
            spec = importlib.util.spec_from_file_location(name, Path(package.__file__).with_name(f"{part}.py"))
            assert spec is not None
            assert spec.loader is not None
            module = sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        return sys.modules["headwater.protocol.records"]


def is_compiled(part: str) -> bool:
    return not str(importlib.import_module(f"headwater.protocol.{part}").__file__).endswith(".py")


@pytest.fixture(scope="session")
def plain_records() -> ModuleType:
    return load_plain_records()


@pytest.fixture(scope="session")
def compiled_records() -> ModuleType:
    if not all(is_compiled(part) for part in COMPILED_PARTS):
        pytest.skip("the extension modules are not built: python setup.py build_ext --inplace")
    return importlib.import_module("headwater.protocol.records")


@pytest.fixture(scope="session", params=["compiled", "plain"])
def records(request: pytest.FixtureRequest) -> ModuleType:
    """`headwater.protocol.records` in one of its forms."""
    form: ModuleType = request.getfixturevalue(f"{request.param}_records")
    return form
