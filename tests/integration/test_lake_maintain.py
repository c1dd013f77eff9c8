"""Maintenance leaves the rows and the positions of loads as they are, whatever it packs, lets go and removes."""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import LocalBroker, Producer
from headwater.lake import Lake, LakeError, LakeUsageError
from headwater.lake.operations.maintenance import DAY_S, Care, Maintenance, MaintenanceReport, tables_of
from headwater.lake.operations.races import ATTEMPTS, despite_races
from headwater.lake.operations.replaying import ReplayJob
from headwater.lake.operations.snapshots import Figures, table_history
from headwater.lake.sources.topics import offsets_of
from peers.spark import lake as lake
from peers.spark import pyspark_leaves_sockets

pytestmark = pyspark_leaves_sockets

Load = Callable[..., Any]
AT_ONCE = Care(older_than_s=0)


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker() as broker:
        yield broker


@pytest.fixture
def load(lake: Lake, broker: LocalBroker) -> Load:
    def load(topic: str, *values: Any, key: Callable[[Any], bytes] | None = None, **how: Any) -> Any:
        """Produces the values and loads them."""
        with Producer(broker.bootstrap) as producer:
            for value in values:
                producer.send(topic, json.dumps(value).encode(), key=key(value) if key else None, partition=0)
        return lake.load(f"topic:{topic}", into=f"shop.{topic}", bootstrap=broker.bootstrap, **how)

    return load


def rows(lake: Lake, statement: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in lake.sql(statement).to_pylist()]


def figures(lake: Lake, table: str) -> Figures:
    return table_history(lake.spark, table).figures


def touched(report: MaintenanceReport) -> dict[str, int]:
    return {step.step: step.touched for step in report.steps}


def insert(lake: Lake, table: str, *numbers: int) -> None:
    """What a person does: a file and a snapshot each."""
    for number in numbers:
        lake.spark.sql(f"insert into {table} (id) values ({number})")


def test_small_files_are_packed_and_the_position_outlives_all_snapshots(lake: Lake, load: Load) -> None:
    load("packed", {"id": 0}, partition_by=())
    insert(lake, "shop.packed", 1, 2, 3, 4, 5)
    position = lake.catalog.position("shop.packed", "topic:packed")
    before = figures(lake, "shop.packed")
    (planned,) = lake.maintain(["shop.packed"], Care(older_than_s=0, dry_run=True))
    assert figures(lake, "shop.packed") == before
    assert (touched(planned)["compact"], touched(planned)["expire"]) == (6, 5)
    (report,) = lake.maintain(["shop.packed"], AT_ONCE)
    after = figures(lake, "shop.packed")
    assert (before.data_files, after.data_files, after.snapshots) == (6, 1, 1)
    assert (report.steps[0].before, report.steps[-1].after) == (before, after)
    assert offsets_of(position) == {"packed": {"0": 1}}
    assert lake.catalog.position("shop.packed", "topic:packed") == position
    assert load("packed").load_id is None
    assert load("packed", {"id": 6}).counts.rows == 1
    assert rows(lake, "select count(*), count(distinct id), sum(id) from shop.packed") == [(7, 7, 21)]


def test_deletes_of_upserts_are_worked_in_and_rows_stay(lake: Lake, load: Load) -> None:
    for turn in range(2):
        people = [{"id": number, "turn": turn} for number in range(5)]
        load("upserted", *people, key=lambda value: str(value["id"]).encode(), mode="upsert")
    assert figures(lake, "shop.upserted").delete_files > 0
    lake.maintain(["shop.upserted"], AT_ONCE)
    assert figures(lake, "shop.upserted").delete_files == 0
    assert rows(lake, "select id, turn from shop.upserted order by id") == [(number, 1) for number in range(5)]
    assert offsets_of(lake.catalog.position("shop.upserted", "topic:upserted")) == {"upserted": {"0": 10}}


def test_a_snapshot_can_be_read_for_a_while_after_it_was_replaced(lake: Lake) -> None:
    lake.spark.sql("create namespace if not exists shop")
    lake.spark.sql("create table shop.kept (id int)")
    insert(lake, "shop.kept", 1, 2, 3)
    first = table_history(lake.spark, "shop.kept").snapshots[0].snapshot_id
    lake.maintain(["shop.kept"])
    assert rows(lake, f"select count(*) from shop.kept version as of {first}") == [(1,)]
    lake.maintain(["shop.kept"], Care(older_than_s=0, keep=2))
    assert figures(lake, "shop.kept").snapshots == 2


def test_files_that_nobody_knows_go_when_no_load_can_need_them(lake: Lake) -> None:
    lake.spark.sql("create namespace if not exists shop")
    lake.spark.sql("create table shop.littered (id int)")
    insert(lake, "shop.littered", 1)
    state = lake.catalog.table_state("shop.littered")
    assert state is not None
    data = Path(state.location.removeprefix("file://")) / "data"
    now = time.time()
    ages = {"old": 3 * DAY_S, "young": 3600}
    for name, age_s in ages.items():
        path = data / f"{name}.parquet"
        path.write_bytes(b"?")
        os.utime(path, (now - age_s, now - age_s))
    (report,) = lake.maintain(["shop.littered"])
    assert touched(report)["orphans"] == 1
    assert [name for name in ages if (data / f"{name}.parquet").exists()] == ["young"]
    assert rows(lake, "select id from shop.littered") == [(1,)]


def test_loads_and_maintenance_at_the_same_time_lose_nothing(lake: Lake, load: Load) -> None:
    def upsert(turn: int) -> None:
        people = [{"id": number, "turn": turn} for number in range(20)]
        load("raced", *people, key=lambda value: str(value["id"]).encode(), mode="upsert")

    def go_on_loading() -> None:
        try:
            upsert(1)
            upsert(2)
        except Exception as error:
            errors.append(error)

    errors: list[Exception] = []
    upsert(0)
    loading = threading.Thread(target=go_on_loading)
    loading.start()
    for _ in range(2):
        lake.maintain(["shop.raced"], AT_ONCE)
    loading.join()
    assert not errors
    assert rows(lake, "select count(*), count(distinct id), min(turn), max(turn) from shop.raced") == [(20, 20, 2, 2)]
    assert offsets_of(lake.catalog.position("shop.raced", "topic:raced")) == {"raced": {"0": 60}}


def test_a_lost_race_is_run_again_and_another_error_is_told() -> None:
    tries: list[str] = []

    def lose(times: int, words: str) -> Callable[[], str]:
        def work() -> str:
            tries.append(words)
            if len(tries) <= times:
                raise RuntimeError(words)
            return "done"

        return work

    assert despite_races("it", lose(2, "ValidationException: found conflicting files")) == "done"
    assert len(tries) == 3
    tries.clear()
    with pytest.raises(Exception, match="it failed and changed nothing: no space left"):
        despite_races("it", lose(1, "no space left\nat x.y"))
    assert len(tries) == 1
    tries.clear()
    with pytest.raises(Exception, match="quicker"):
        despite_races("it", lose(100, "CommitFailedException"))
    assert len(tries) == ATTEMPTS


def test_without_names_all_tables_are_looked_after(lake: Lake) -> None:
    lake.spark.sql("create namespace if not exists deep")
    lake.spark.sql("create table deep.`odd-name` (id int)")
    assert "deep.odd-name" in tables_of(lake.spark)
    (report,) = lake.maintain(["deep.odd-name"])
    assert touched(report) == {"compact": 0, "deletes": 0, "manifests": 0, "expire": 0, "orphans": 0}
    with pytest.raises(LakeUsageError, match=r"no table shop\.absent"):
        lake.maintain(["shop.absent"])


def test_what_cannot_be_looked_at_is_named(lake: Lake) -> None:
    """A table that goes, or a catalog that dies, in the middle of it."""
    with pytest.raises(LakeError, match=r"looking at the snapshots of shop\.gone failed and changed nothing: .*gone"):
        Maintenance(spark=lake.spark, catalog=lake.catalog, table="shop.gone").run()
    with pytest.raises(LakeError, match=r"reading what was rescued in shop\.gone failed and changed nothing: .*gone"):
        ReplayJob(spark=lake.spark, catalog=lake.catalog, table="shop.gone").run()


def test_a_statement_that_is_wrong_is_told_in_sparks_words_without_its_plan(lake: Lake) -> None:
    with pytest.raises(LakeError, match=r"Syntax error at or near 'selec'(.|\n)*\^\^\^$"):
        lake.sql("selec 1")
    with pytest.raises(LakeError, match=r"^\[UNRESOLVED_COLUMN[^\n]*`nothing`[^\n]*; line 1 pos 7$") as told:
        lake.sql("select nothing from (select 1 as one)")
    assert type(told.value.__cause__).__name__ == "AnalysisException"
