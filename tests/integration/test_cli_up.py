"""`headwater up`: one ready line, a clean stop, and refusals that say what to do."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .cli_runner import Cli, Done, Started

NOWHERE = Cli("127.0.0.1:1")


@contextmanager
def running(data: Path) -> Iterator[tuple[Started, Cli]]:
    """A broker, and the command line aimed at it."""
    with NOWHERE.started("up", "--port", "0", "--data", str(data)) as broker:
        line = broker.line()
        bootstrap = line.removeprefix("headwater is ready at ").partition(",")[0]
        assert line == f"headwater is ready at {bootstrap}, data in {data}\n"
        yield broker, Cli(bootstrap)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_it_listens_and_keeps_data_and_stops_with_0(tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path / "data") as (broker, cli):
        assert cli.ok("topics", "list").out == ""
        assert broker.finish(number) == Done(0, "", "")


def test_the_ready_line_as_json(tmp_path: Path) -> None:
    with NOWHERE.started("up", "--port", "0", "--data", str(tmp_path), "--json") as broker:
        ready = json.loads(broker.line())
        assert ready["data"] == str(tmp_path)
        assert Cli(ready["bootstrap"]).ok("cluster", "--json").json["brokers"][0]["endpoint"] == ready["bootstrap"]


def test_records_outlive_a_restart(tmp_path: Path) -> None:
    with running(tmp_path) as (broker, cli):
        topic = cli.new_topic("--partitions", "1")
        cli.ok("produce", topic, stdin="still here\n")
        assert broker.finish(signal.SIGTERM).code == 0
    with running(tmp_path) as (_, cli):
        assert cli.ok("consume", topic, "--from-beginning", "--until-end").out == "still here\n"


def test_a_port_or_a_data_dir_in_use_is_refused(tmp_path: Path) -> None:
    with running(tmp_path / "one") as (_, cli):
        port = cli.bootstrap.rpartition(":")[2]
        same_port = NOWHERE("up", "--port", port, "--data", str(tmp_path / "two"))
        same_data = NOWHERE("up", "--port", "0", "--data", str(tmp_path / "one"))
    for refused, names in ((same_port, port), (same_data, str(tmp_path / "one"))):
        assert (refused.code, refused.out, refused.err.count("\n")) == (1, "", 1)
        assert names in refused.err


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("num.partition=3", "num.partitions"),
        ("num.partitions=many", "num.partitions"),
        ("nonsense", "name=value"),
    ],
)
def test_a_config_that_cannot_be_is_refused(tmp_path: Path, setting: str, says: str) -> None:
    refused = NOWHERE("up", "--port", "0", "--data", str(tmp_path), "-o", setting)
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert says in refused.err
