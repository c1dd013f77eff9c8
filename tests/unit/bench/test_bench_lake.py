"""The lake's benchmark: its records are what its page says, and both sides find all of them."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lake
import lake_data
import metrics
import procstat
import report
from headwater.lake import Lake
from headwater.lake.jars import jar_folder
from lake_jobs import CONNECTOR, LOAD_JSON, OURS, SCAN, Side, sides
from lake_sides import PeakMemory, check
from peers.presence import require
from peers.spark import pyspark_leaves_sockets, quick_spark, running_lake
from servers import Headwater, Running
from shapes import ShapeError, topic

pytestmark = pyspark_leaves_sockets

RECORDS = 1_000


def test_the_sums_of_orders_are_those_of_their_fields() -> None:
    made = lake_data.json_records(10, 500)
    orders = [json.loads(value) for value in made.values]
    assert made.sums == (
        sum(order["id"] for order in orders),
        sum(round(order["amount"] * 100) for order in orders),
        sum(order["items"][0]["pieces"] for order in orders),
        sum(len(order["customer"]["name"]) for order in orders),
    )
    assert 200 <= sum(map(len, made.values)) / len(made.values) <= 300


def test_plain_values_have_100_bytes() -> None:
    made = lake_data.plain_records(0, 100)
    assert {len(value) for value in made.values} == {lake_data.VALUE_BYTES}
    assert made.sums == (sum(map(len, made.keys)), sum(map(len, made.values)))


def test_a_side_that_missed_a_record_has_no_figure() -> None:
    check("a side", (2, 1), (2, 1))
    with pytest.raises(ShapeError, match=r"\(1, 0\) and must be \(2, 1\)"):
        check("a side", (1, 0), (2, 1))


def test_memory_and_time_of_children_count() -> None:
    spend = "x = bytearray(64 << 20); sum(range(3_000_000)); print('spent', flush=True); input()"
    shell = f'"{sys.executable}" -c "{spend}"; true'
    process = subprocess.Popen(["/bin/sh", "-c", shell], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        process.stdout.readline()
        with PeakMemory(process.pid) as memory:
            pass
        cpu_seconds = procstat.tree_cpu_seconds(process.pid)
        process.stdin.close()
    assert memory.peak_bytes > 64 << 20
    assert cpu_seconds > 0


def test_a_process_that_has_ended_holds_nothing() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert procstat.resident_bytes(process.pid) == 0


def test_the_page_has_a_place_for_every_figure(tmp_path: Path) -> None:
    samples = metrics.Samples(metrics.LAKE)
    for metric in metrics.LAKE:
        samples.add({metric.key: 2.0}, {metric.key: 1.0})
    summaries = samples.summaries(lake.SHAPES)
    assert len(summaries) == len(metrics.LAKE)
    setting = report.Setting(names=("ours", "theirs"), versions=("1", "2"), rounds="one round", warming="nothing")
    report.write(tmp_path, report.LAKE, summaries, setting)
    page = (tmp_path / "lake.md").read_text()
    assert all(f"| {metric.label} |" in page for metric in metrics.LAKE)
    assert (tmp_path / "lake.png").stat().st_size > 0


def test_every_case_has_its_metrics() -> None:
    assert {case.key for case in lake.CASES} == {
        metric.key for metric in metrics.LAKE if not metric.key.endswith(("_cpu", "_mb"))
    }


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    started = Headwater().start(tmp_path_factory.mktemp("bench") / "broker")
    try:
        started.wait_until_it_answers()
        yield started
    finally:
        started.kill()


@pytest.fixture(scope="module")
def spark_lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    absent = [jar.file_name for jar in CONNECTOR if not (jar_folder() / jar.file_name).exists()]
    require(f"no {', '.join(absent)}: run scripts/get_peers.py" if absent else None)
    folder = tmp_path_factory.mktemp("lake")
    with running_lake(folder, quick_spark()) as started:
        yield started


@pytest.fixture(scope="module")
def all_sides(spark_lake: Lake, broker: Running) -> dict[str, Side]:
    return sides(spark_lake, f"127.0.0.1:{broker.port}")


ONE_OF_EACH_JOB = [case for case in lake.CASES if case.key in ("scan_tuned", "load", "json")]


@pytest.mark.parametrize("case", ONE_OF_EACH_JOB, ids=lambda case: case.key)
def test_both_sides_find_what_was_written(all_sides: dict[str, Side], broker: Running, case: lake.Case) -> None:
    make = lake_data.json_records if case.job == LOAD_JSON else lake_data.plain_records
    with topic(broker, partitions=case.partitions) as name:
        bootstrap = f"127.0.0.1:{broker.port}"
        written = lake_data.write(bootstrap, name, make, records=RECORDS, partitions=case.partitions)
        for who in (OURS, case.peer):
            table = f"bench.{case.key}_{who.replace(' ', '_')}"
            found = getattr(all_sides[who], case.job)(name, table)
            assert (found if case.job == SCAN else all_sides[who].totals(case.job, table)) == written.totals
