"""The commands that operate loads, run in this process without Spark: what they print, ask and refuse."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headwater import LocalBroker, Producer
from headwater.cli.lake import app
from headwater.cli.lake_signals import StopAfterLoad
from headwater.lake import Lake, LakeUsageError
from loads_without_spark import load_files, load_offsets

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker() as broker:
        yield broker


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory, broker: LocalBroker) -> Path:
    folder = tmp_path_factory.mktemp("warehouse")
    with Producer(broker.bootstrap) as producer:
        for _ in range(7):
            producer.send("orders", b"{}", partition=0)
    with Lake(folder) as lake:
        load_offsets(lake, "shop.orders", "orders", {0: 5}, bootstrap=broker.bootstrap)
    return folder


@pytest.fixture
def run(warehouse: Path) -> Run:
    def run(*arguments: str, place: Path | None = warehouse) -> Result:
        where = [] if place is None else ["--warehouse", str(place)]
        return CliRunner().invoke(app, [*arguments, *where])

    return run


def test_status_tells_position_lag_and_loads_in_lines(run: Run) -> None:
    done = run("status")
    assert done.exit_code == 0
    table, source, load = done.output.splitlines()
    assert table == "shop.orders: schema version 0, 1 changes of it"
    assert source.startswith('  topic:orders: at {"topics":{"orders":{"0":5}}}, 2 records behind, the first of ')
    assert "committed  5 rows, 0.5 s (load " in load


def test_status_is_a_document_for_machines(run: Run, warehouse: Path) -> None:
    (table,) = json.loads(run("status", "shop.orders", "--json").output)
    (source,) = table["sources"]
    assert (source["source"], source["lag"]["records"]) == ("topic:orders", 2)
    assert source["lag"]["partitions"][0]["next_offset"] == 5
    assert source["loads"][0]["rows"] == 5


def test_an_empty_lake_says_so(run: Run, tmp_path: Path) -> None:
    with Lake(tmp_path):
        pass
    assert run("status", place=tmp_path).output.startswith(f"nothing was loaded into {tmp_path} yet")


@pytest.mark.parametrize(
    "arguments",
    [
        ("status",),
        ("history", "shop.orders"),
        ("explain", "shop.orders", "--offset", "orders:0:6"),
        ("rewind", "shop.orders", "topic:orders", "--to", "earliest", "--yes"),
        ("maintain",),
        ("replay-rescued", "shop.orders"),
        ("sql", "select 1"),
    ],
)
@pytest.mark.parametrize("folder", [".", "mistyped/lake"])
def test_who_asks_for_a_lake_that_is_not_there_hears_so_and_makes_none(
    run: Run, tmp_path: Path, folder: str, arguments: tuple[str, ...]
) -> None:
    done = run(*arguments, place=tmp_path / folder)
    assert done.exit_code == 2
    words = " ".join(done.output.split())
    assert f"there is no lake in {tmp_path / folder}" in words
    assert "with --warehouse, or make one with `headwater lake load`" in words
    assert not list(tmp_path.iterdir())


def test_a_catalog_that_is_not_there_is_not_made_either(run: Run, tmp_path: Path) -> None:
    for catalog in (tmp_path / "catalog.db", f"sqlite:///{tmp_path}/catalog.db"):
        done = run("status", "--catalog", str(catalog), place=tmp_path)
        assert done.exit_code == 2
        assert "Name another with --catalog" in " ".join(done.output.split())
        assert not list(tmp_path.iterdir())


def test_a_load_makes_the_lake(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    done = run("load", f"files:{tmp_path / 'in'}", "--into", "a.b", place=tmp_path / "lake")
    assert "nothing new" in done.output
    assert run("status", place=tmp_path / "lake").exit_code == 0


def test_a_plan_makes_none(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    done = run("load", f"files:{tmp_path / 'in'}", "--into", "a.b", "--plan", place=tmp_path / "lake")
    assert done.exit_code == 0
    assert "nothing new" in done.output
    assert [each.name for each in tmp_path.iterdir()] == ["in"]


def test_a_plan_for_s3_wants_its_catalog_too(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["load", f"files:{tmp_path}", "--into", "a.b", "--plan", "-w", "s3://bucket/lake"])
    assert done.exit_code == 2
    assert "needs a database" in " ".join(done.output.split())


def test_from_python_a_lake_is_made_unless_told_otherwise(tmp_path: Path) -> None:
    with pytest.raises(LakeUsageError, match="there is no lake in"):
        Lake(tmp_path / "lake", create=False)
    assert not list(tmp_path.iterdir())
    with Lake(tmp_path / "lake"), Lake(tmp_path / "lake", create=False) as lake:
        assert lake.status() == []


def test_explain_gives_a_verdict_and_reasons(run: Run) -> None:
    done = run("explain", "shop.orders", "--offset", "orders:0:6")
    assert done.output.splitlines() == [
        "offset 6 of orders-0: not yet loaded",
        "  the position is offset 5 and the log has it: the next load brings it",
    ]
    (found,) = json.loads(run("explain", "shop.orders", "--row", "id = 3", "--json").output)
    assert (found["subject"], found["verdict"]) == ("offset 3 of orders-0", "loaded")
    assert found["loads"][0]["state"] == "committed"


def test_explain_wants_one_thing_to_explain(run: Run) -> None:
    for given in ([], ["--offset", "a:0:1", "--file", "b"]):
        done = run("explain", "shop.orders", *given)
        assert done.exit_code == 2
        assert "one of --file, --offset and --row" in done.output


def test_history_tells_each_change_with_what_made_it(run: Run) -> None:
    done = run("history", "shop.orders")
    heading, change = done.output.splitlines()
    assert heading.split()[:3] == ["WHEN", "CHANGE", "COLUMN"]
    assert "create" in change
    assert "topic:orders" in change
    assert json.loads(run("history", "shop.orders", "--json").output)[0]["kind"] == "create"
    assert run("history", "shop.absent").exit_code == 2


def test_a_rewind_is_confirmed_before_it_happens(run: Run, tmp_path: Path) -> None:
    with Lake(tmp_path) as lake:
        load_files(lake, "shop.files", "/in", {"/in/a.json": (1, 1)})
    arguments = ("rewind", "shop.files", "files:file:///in", "--to", "earliest")
    refused = run(*arguments, place=tmp_path)
    assert refused.exit_code == 2
    assert "1 file of files:file:///in will be loaded into shop.files again" in " ".join(refused.output.split())
    with Lake(tmp_path) as lake:
        assert lake.catalog.position("shop.files", "files:file:///in") is not None
    done = run(*arguments, "--yes", place=tmp_path)
    assert done.exit_code == 0, done.output
    assert "the rows that are in the table stay, so they will be there twice" in done.output
    with Lake(tmp_path) as lake:
        assert lake.catalog.position("shop.files", "files:file:///in") is None


def lake_toml(folder: Path, text: str) -> str:
    path = folder / "lake.toml"
    path.write_text(text)
    return str(path)


def test_run_tells_mistakes_of_the_file_before_anything_starts(run: Run, tmp_path: Path) -> None:
    path = lake_toml(tmp_path, '[[load]]\nsource = "topic:a"\ninto = "b.c"\nmodes = "append"\n')
    done = run("run", path, place=None)
    assert done.exit_code == 2
    assert "did you mean mode?" in done.output
    assert not (tmp_path / "lake").exists()


def test_run_goes_on_after_a_failure_and_exits_with_1(run: Run, tmp_path: Path, broker: LocalBroker) -> None:
    # Nothing here has news, so that no Spark is started: what fails is the look at the brokers.
    with Producer(broker.bootstrap) as producer:
        producer.send("read", b"{}", partition=0)
    with Lake(tmp_path / "lake") as lake:
        load_offsets(lake, "b.read", "read", {0: 1})
    text = f'[lake]\nwarehouse = "lake"\nbootstrap = "{broker.bootstrap}"\n'
    for topic in ("absent", "read"):
        text += f'[[load]]\nsource = "topic:{topic}"\ninto = "b.{topic}"\n'
    path = lake_toml(tmp_path, text)
    done = run("run", path, place=None)
    assert done.exit_code == 1
    assert "headwater: b.absent: " in done.output
    assert "topic:read → b.read: nothing new" in done.output
    absent, read = json.loads(run("run", path, "--json", place=None).stdout)
    assert absent["error"] is not None
    assert (read["error"], read["load_id"]) == (None, None)
    assert run("run", path, "--only", "b.read", place=None).exit_code == 0


def test_the_first_signal_is_remembered_and_the_second_would_end_the_process() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with StopAfterLoad() as stop:
        assert not stop.wait(0)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(60)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) is before
