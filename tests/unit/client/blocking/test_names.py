"""The public names: all there, typed alike in both worlds, and loaded only when they are asked for."""

import ast
import importlib.util
import inspect
from pathlib import Path
from types import ModuleType

import pytest

import headwater
from headwater import aio
from headwater.client.blocking import admin as blocking_admin

from .scripts import output_of

ROOT = Path(__file__).resolve().parents[4]


def test_importing_headwater_loads_nothing_else() -> None:
    """Of the standard library no more than typing: the import is a matter of a few milliseconds."""
    printed = output_of(
        """
        import sys, typing
        before = set(sys.modules)
        import headwater
        print(sorted(set(sys.modules) - before))
        """
    )
    assert ast.literal_eval(printed) == ["headwater"]


def test_a_consumer_is_loaded_without_producer_broker_or_arrow() -> None:
    printed = output_of(
        """
        import sys
        import headwater
        headwater.Consumer
        print(sorted(sys.modules))
        """
    )
    loaded = set(ast.literal_eval(printed))
    assert "headwater.client.consumer.consumer" in loaded
    others = ("headwater.client.producer.producer", "headwater.client.admin", "headwater.broker", "pyarrow", "typer")
    assert {name for name in loaded if name.startswith(others)} == set()


@pytest.mark.parametrize("module", [headwater, aio], ids=lambda module: module.__name__)
def test_every_public_name_is_there(module: ModuleType) -> None:
    for name in module.__all__:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'Streams'"):
        module.Streams  # noqa: B018


def writer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("blocking_admin_writer", ROOT / "scripts" / "blocking_admin.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_blocking_admin_is_what_its_script_makes_of_the_asyncio_one() -> None:
    script = writer()
    made = script.formatted(script.blocking_source(script.ASYNC_ADMIN.read_text("utf-8")))
    assert Path(inspect.getfile(blocking_admin)).read_text("utf-8") == made, "run scripts/blocking_admin.py"


def public(kind: type) -> dict[str, inspect.Signature | None]:
    return {
        name: inspect.signature(member) if callable(member) else None
        for name, member in inspect.getmembers(kind)
        if not name.startswith("_")
    }


@pytest.mark.parametrize("name", ["Producer", "Consumer", "Admin"])
def test_both_worlds_have_the_same_names_and_parameters(name: str) -> None:
    """What only one of them needs, or has as a plain attribute, is named here."""
    ours, theirs = public(getattr(headwater, name)), public(getattr(aio, name))
    apart = {"start", "pending_records", "statistics", "wait_for_topic"}
    assert ours.keys() - apart == theirs.keys() - apart
    for method in (ours.keys() & theirs.keys()) - apart:
        here, there = ours[method], theirs[method]
        assert (here is None) == (there is None), method
        if here is not None and there is not None:
            assert list(here.parameters) == list(there.parameters), method
