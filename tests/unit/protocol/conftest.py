"""What can be compiled is tested in both forms: compiled, as users run them, and plain, without Cython."""

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

COMPILED_PARTS = ("batches", "fetch_lane", "headers", "produce_lane", "record_decoding", "record_encoding", "wire")
PARTS = (
    "batches", "record_decoding", "record_columns", "record_encoding", "records",
    "wire", "headers", "produce_lane", "fetch_lane",
)  # fmt: skip


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


@functools.cache
def load_plain() -> dict[str, ModuleType]:
    """The modules of `headwater.protocol` that can be compiled, from their sources, as if there were no Cython."""
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
        return {part: sys.modules[name] for name, part in zip(names, PARTS, strict=True)}


def load_compiled(part: str) -> ModuleType:
    if not all(is_compiled(each) for each in COMPILED_PARTS):
        pytest.skip("the extension modules are not built: python setup.py build_ext --inplace")
    return importlib.import_module(f"headwater.protocol.{part}")


def is_compiled(part: str) -> bool:
    return not str(importlib.import_module(f"headwater.protocol.{part}").__file__).endswith(".py")


@pytest.fixture(scope="session")
def plain_records() -> ModuleType:
    return load_plain()["records"]


@pytest.fixture(scope="session")
def compiled_records() -> ModuleType:
    return load_compiled("records")


@pytest.fixture(scope="session", params=["compiled", "plain"])
def form(request: pytest.FixtureRequest) -> Callable[[str], ModuleType]:
    """Modules of `headwater.protocol` by name, in one of their forms."""
    return load_compiled if request.param == "compiled" else load_plain().__getitem__


@pytest.fixture(scope="session")
def records(form: Callable[[str], ModuleType]) -> ModuleType:
    """`headwater.protocol.records` in one of its forms."""
    return form("records")
