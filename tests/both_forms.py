"""What can be compiled is tested in both forms: compiled, as users run them, and plain, without Cython."""

import functools
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

PROTOCOL = tuple(
    f"headwater.protocol.{part}"
    for part in (
        "batches", "record_reading", "record_checking", "record_decoding", "column_building", "record_columns",
        "record_writing", "record_encoding", "records", "wire", "headers", "produce_lane", "fetch_lane",
        "entity_slots", "entity_reading",
    )
)  # fmt: skip
"""Modules that are compiled and those between them, in the order of their imports."""

CONSUMER = tuple(f"headwater.client.consumer.{part}" for part in ("visibility", "records", "fetch_lane", "arrow"))

PRODUCER = (
    "headwater.protocol.record_writing",
    *(
        f"headwater.client.producer.{part}"
        for part in (
            "partitioners",
            "handles",
            "memory",
            "batch_building",
            "queues",
            "gathering",
            "accumulator",
            "sending",
        )
    ),
)

_NEVER_COMPILED = (
    "headwater.protocol.entity_slots",
    "headwater.protocol.record_columns",
    "headwater.protocol.records",
    "headwater.client.consumer.arrow",
    "headwater.client.consumer.visibility",
)


@functools.cache
def load_plain(names: tuple[str, ...]) -> dict[str, ModuleType]:
    """These modules from their sources, as if there were no Cython; each sees the plain form of those before it."""
    with _modules_put_back("cython", *names):
        sys.modules["cython"] = None  # type: ignore[assignment]
        for name in names:
            package = importlib.import_module(name.rpartition(".")[0])
            assert package.__file__ is not None
            source = Path(package.__file__).with_name(f"{name.rpartition('.')[2]}.py")
            spec = importlib.util.spec_from_file_location(name, source)
            assert spec is not None
            assert spec.loader is not None
            module = sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        return {name: sys.modules[name] for name in names}


@functools.cache
def load_compiled(names: tuple[str, ...]) -> dict[str, ModuleType]:
    """These modules as they are imported; the test is skipped where they were not compiled."""
    modules = {name: importlib.import_module(name) for name in names}
    for name, module in modules.items():
        if name not in _NEVER_COMPILED and str(module.__file__).endswith(".py"):
            pytest.skip("the extension modules are not built: python setup.py build_ext --inplace")
    return modules


@contextmanager
def _modules_put_back(*names: str) -> Iterator[None]:
    before = {name: sys.modules.get(name) for name in names}
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module
