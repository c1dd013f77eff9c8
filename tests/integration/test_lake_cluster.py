"""Loads on a real Spark cluster, a master and two workers, whatever becomes of a worker in the middle."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from background import in_background
from headwater import Admin, LocalBroker, Producer
from headwater.lake import Lake
from headwater.lake.java import find_java
from headwater.lake.load.request import LoadReport
from peers.postgresql import Postgresql
from peers.postgresql import postgresql as postgresql
from peers.presence import require
from peers.processes import dies_with_parent, end
from peers.spark import pyspark_leaves_sockets, running_lake
from peers.spark_cluster import SparkCluster

if TYPE_CHECKING:
    from pyspark.core.status import SparkStageInfo

pytestmark = [pyspark_leaves_sockets, pytest.mark.timeout(300)]

PARTITIONS = 32
RECORDS = 96_000
FILE_TASKS = 8
DRIVER = 1
_PATIENCE_S = 120.0


class Bench:
    """A broker, a cluster with two workers, a catalog in a process of its own, and a lake on top of them."""

    def __init__(
        self, broker: LocalBroker, cluster: SparkCluster, catalog: subprocess.Popen[bytes], lake: Lake
    ) -> None:
        self.broker = broker
        self.cluster = cluster
        self.catalog = catalog
        self.lake = lake
        self.tracker = lake.spark.sparkContext.statusTracker()

    def produce(self, topic: str, *, keys: int | None = None) -> None:
        """So many records over all partitions, each key always in the same one."""
        with Admin(self.broker.bootstrap) as admin:
            admin.create_topic(topic, partitions=PARTITIONS)
        with Producer(self.broker.bootstrap) as producer:
            for number in range(RECORDS):
                key = number % (keys or RECORDS)
                value = json.dumps({"id": number, "key": key, "price": number % 1000 / 4}).encode()
                producer.send(topic, value, key=str(key), partition=key % PARTITIONS)

    def load(self, topic: str, **how: Any) -> LoadReport:
        return self.lake.load(f"topic:{topic}", into=f"shop.{topic}", bootstrap=self.broker.bootstrap, **how)

    def load_and_meanwhile(
        self, load: Callable[[], LoadReport], meanwhile: Callable[["SparkStageInfo"], None], *, tasks: int = PARTITIONS
    ) -> LoadReport:
        """Does something in the middle of the second pass: some of its tasks are done, most of them are not."""
        self.wait_until(lambda: self.executors() == 2, "two executors")
        before = self.tracker.getJobIdsForGroup(None)
        loading = in_background(load)

        def middle() -> "SparkStageInfo | None":
            assert not loading.done(), f"it has ended too soon: {loading.result()}"
            jobs = sorted({*self.tracker.getJobIdsForGroup(None)} - {*before})
            # The first job is the first pass.
            running = [stage for job in jobs[1:2] for stage in self.stages(job)]
            return running[0] if running and running[0].numCompletedTasks >= tasks // 8 else None

        stage = self.wait_until(middle, "a load that is half done")
        assert (stage.numTasks, stage.numCompletedTasks < tasks) == (tasks, True)
        meanwhile(stage)
        return loading.result(_PATIENCE_S)

    def kill_a_worker(self, _: object = None) -> None:
        self.cluster.kill_worker(self.cluster.workers[0])
        self.wait_until(lambda: self.executors() == 1, "the loss of an executor")

    def executors(self) -> int:
        context: Any = self.lake.spark.sparkContext._jsc
        return int(context.sc().getExecutorMemoryStatus().size()) - DRIVER

    def stages(self, job: int) -> "list[SparkStageInfo]":
        found = self.tracker.getJobInfo(job)
        stages = [self.tracker.getStageInfo(number) for number in sorted(found.stageIds)] if found else []
        return [stage for stage in stages if stage is not None]

    def completed_tasks(self, stage: int) -> int:
        found = self.tracker.getStageInfo(stage)
        return found.numCompletedTasks if found else 0

    def row(self, statement: str) -> tuple[Any, ...]:
        (only,) = self.lake.sql(statement).to_pylist()
        return tuple(only.values())

    def wait_until(self, condition: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + _PATIENCE_S
        while not (value := condition()):
            assert time.monotonic() < deadline, f"{what} did not come within {_PATIENCE_S:.0f} s"
            time.sleep(0.02)
        return value


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    require(None if find_java() else "no Java 17 or newer: run scripts/get_peers.py")
    folder = tmp_path_factory.mktemp("cluster")
    with (
        LocalBroker() as broker,
        catalog_process(folder / "warehouse") as (catalog, uri),
        SparkCluster(folder / "spark") as cluster,
        running_lake(folder, cluster.settings(), catalog=uri) as lake,
    ):
        yield Bench(broker, cluster, catalog, lake)


@pytest.fixture
def bench(shared: Bench) -> Bench:
    """With two workers again."""
    shared.cluster.add_workers(2 - len(shared.cluster.workers))
    return shared


@contextmanager
def catalog_process(warehouse: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    command = [str(Path(sys.executable).with_name("headwater")), "catalog", "serve", "--json"]
    command += ["--warehouse", str(warehouse), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(dies_with_parent(command), stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield process, json.loads(process.stdout.readline())["uri"]
        finally:
            end(process)


def test_a_load_ends_right_when_a_worker_dies_in_the_middle(bench: Bench) -> None:
    bench.produce("killed")
    report = bench.load_and_meanwhile(partial(bench.load, "killed"), bench.kill_a_worker)
    assert (report.counts.rows, report.counts.rescued, report.counts.corrupt) == (RECORDS, 0, 0)
    assert report.attempts == 1
    whole = (RECORDS, RECORDS, sum(range(RECORDS)), sum(number % 1000 / 4 for number in range(RECORDS)))
    statement = "select count(*), count(distinct id), sum(id), sum(price) from shop.killed"
    assert bench.row(statement) == whole
    assert bench.load("killed").load_id is None
    assert bench.row(statement) == whole


def test_what_a_dead_worker_had_made_for_others_is_made_again_and_counted_once(bench: Bench) -> None:
    keys = RECORDS // 2
    bench.produce("merged", keys=keys)
    report = bench.load_and_meanwhile(partial(bench.load, "merged", mode="upsert"), bench.kill_a_worker)
    newest = range(keys, RECORDS)
    assert bench.row("select count(*), count(distinct key), sum(id) from shop.merged") == (keys, keys, sum(newest))
    assert (report.counts.rows, report.counts.rescued, report.counts.corrupt) == (RECORDS, 0, 0)
    assert bench.lake.catalog.load(report.load_id or "").rows == RECORDS


def test_only_the_driver_needs_the_catalog(bench: Bench) -> None:
    bench.produce("alone")

    def without_catalog(stage: "SparkStageInfo") -> None:
        bench.catalog.send_signal(signal.SIGSTOP)
        try:
            bench.wait_until(lambda: bench.completed_tasks(stage.stageId) == PARTITIONS, "the last task")
        finally:
            bench.catalog.send_signal(signal.SIGCONT)

    assert bench.load_and_meanwhile(partial(bench.load, "alone"), without_catalog).counts.rows == RECORDS
    assert bench.row("select count(*), sum(id) from shop.alone") == (RECORDS, sum(range(RECORDS)))


def test_files_are_loaded_once_when_a_worker_dies_in_the_middle(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One large file, of which each task has a piece."""
    notes = tmp_path / "notes"
    notes.mkdir()
    monkeypatch.setattr("headwater.lake.sources.files.new_folder", lambda: (notes, os.open(notes, os.O_RDONLY)))
    incoming = tmp_path / "incoming"
    incoming.mkdir()
    with (incoming / "orders.json").open("w") as file:
        for number in range(RECORDS):
            record = {"id": number, "price": number % 1000 / 4, "words": f"order {number} " * 6}
            file.write(json.dumps(record) + "\n")

    def load() -> LoadReport:
        return bench.lake.load(f"files:{incoming}", into="shop.pieces", partition_by=())

    def kill_a_worker(_: object) -> None:
        # What is to be read is written down on the driver's machine, where no other may look.
        assert list(notes.iterdir())
        notes.rename(tmp_path / "gone")
        bench.kill_a_worker()

    report = bench.load_and_meanwhile(load, kill_a_worker, tasks=FILE_TASKS)
    assert (report.counts.rows, report.counts.rescued, report.counts.corrupt) == (RECORDS, 0, 0)
    assert report.attempts == 1
    (tmp_path / "gone").rename(notes)
    whole = (RECORDS, RECORDS, sum(range(RECORDS)), sum(number % 1000 / 4 for number in range(RECORDS)))
    statement = "select count(*), count(distinct id), sum(id), sum(price) from shop.pieces"
    assert bench.row(statement) == whole
    assert load().load_id is None


def test_csv_files_are_shared_among_the_workers(bench: Bench, tmp_path: Path) -> None:
    for part in range(8):
        rows = "".join(f"{number},{number / 4},2026-01-{part + 1:02}\n" for number in range(part, RECORDS, 8))
        (tmp_path / f"part-{part}.csv").write_text(f"id,price,day\n{rows}")
    report = bench.lake.load(f"files:{tmp_path}", into="shop.parts", partition_by=())
    assert (report.counts.rows, report.counts.rescued, report.counts.corrupt) == (RECORDS, 0, 0)
    statement = "select count(*), count(distinct id), sum(id), sum(price), count(distinct day) from shop.parts"
    whole = sum(range(RECORDS))
    assert bench.row(statement) == (RECORDS, RECORDS, whole, whole / 4, 8)


def test_a_table_of_a_database_is_read_by_the_workers(bench: Bench, postgresql: Postgresql) -> None:
    database = postgresql.new_database()
    source = postgresql.jdbc(database, "orders")
    statement = "select count(*), count(distinct id), sum(id), sum(price) from shop.tables"
    with postgresql.connect(database) as connection:
        connection.execute("create table orders (id serial primary key, price numeric(10, 2))")
        connection.execute(f"insert into orders (price) select i / 4.0 from generate_series(1, {RECORDS}) i")
        assert bench.lake.load(source, into="shop.tables").counts.rows == RECORDS
        # The driver has no core of its own: as many pieces as there are workers.
        assert bench.row("select count(*) from shop.tables.files") == (2,)
        (wanted,) = connection.execute(
            "select count(*), count(distinct id), sum(id), sum(price) from orders"
        ).fetchall()
        assert bench.row(statement) == wanted
        assert bench.lake.load(source, into="shop.tables").load_id is None
        connection.execute("insert into orders (price) values (7)")
    assert bench.lake.load(source, into="shop.tables").counts.rows == 1
    assert bench.row(statement) == (RECORDS + 1, RECORDS + 1, wanted[2] + RECORDS + 1, wanted[3] + 7)
