"""Spark does with this catalog all that it does with any, and whatever it does keeps the position of a load."""

from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from headwater.catalog.client import CatalogClient, CatalogError
from headwater.catalog.entries import COMMITTED
from headwater.catalog.positions import Position, canonical
from headwater.lake import Lake
from headwater.lake.operations.maintenance import tables_of
from headwater.lake.operations.table_rows import matching_rows
from peers.spark import lake as lake
from peers.spark import pyspark_leaves_sockets

pytestmark = pyspark_leaves_sockets

SOURCE = "topic:orders"


@pytest.fixture
def spark(lake: Lake) -> SparkSession:
    return lake.spark


@pytest.fixture
def rest(lake: Lake) -> Iterator[RestCatalog]:
    with closing(RestCatalog("lake", uri=lake.uri, token=str(lake.token))) as catalog:
        yield catalog


def offset(number: int) -> Position:
    return {"topics": {"orders": {"0": number}}}


def rows(spark: SparkSession, query: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in spark.sql(query).collect()]


def append(lake: Lake, table: str, data: DataFrame, expect: Position | None, after: Position) -> str:
    """A load as the job makes it: the position goes with the data."""
    load_id = lake.catalog.begin_load(table=table, source=SOURCE, before=expect, after=after)
    data.writeTo(table).option("snapshot-property.headwater.load", load_id).option(
        "snapshot-property.headwater.expect", canonical({SOURCE: expect})
    ).option("snapshot-property.headwater.offsets", canonical({SOURCE: after})).append()
    return load_id


def processes() -> Iterator[tuple[str, bytes, bytes]]:
    """Every process that we may look at: its number, its command line and its environment."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            yield folder.name, (folder / "cmdline").read_bytes(), (folder / "environ").read_bytes()


def test_the_token_of_a_job_is_on_no_command_line(lake: Lake, spark: SparkSession) -> None:
    assert lake.token is not None
    assert len(lake.token) >= 32
    with pytest.raises(CatalogError, match="token"), CatalogClient(lake.uri) as stranger:
        stranger.loads()
    # A process of Python that works for Spark is there while its rows come.
    assert spark.sparkContext.parallelize([1]).map(lambda number: number + 1).collect() == [2]
    found = list(processes())
    # An earlier test may have started Java, for a lake with a token of its own: so no token at all is looked for.
    java_id = str(spark.sparkContext._gateway.proc.pid)  # type: ignore[union-attr]
    (java,) = [line for number, line, _ in found if number == java_id]
    assert b"spark.sql.catalog.lake.uri" in java
    assert b"lake.token" not in java
    assert any(b"pyspark" in line and b"daemon" in line for _, line, _ in found)
    token = lake.token.encode()
    assert [number for number, line, environment in found if token in line or token in environment] == []
    # A session of its own has it too, and shows it to nobody.
    other = spark.newSession()
    other.sql("create namespace of_another_session")
    shown = other.sql("set").where("key like '%token'").collect()
    assert lake.token not in str(shown)


def test_sql_of_every_kind(spark: SparkSession, rest: RestCatalog) -> None:
    spark.sql("create namespace kinds")
    spark.sql("create table kinds.t (id bigint, name string, at timestamp) using iceberg partitioned by (days(at))")
    spark.sql("insert into kinds.t values (1, 'ann', timestamp '2026-01-01'), (2, 'bob', timestamp '2026-01-02')")
    spark.sql("update kinds.t set name = 'bo' where id = 2")
    spark.sql(
        "merge into kinds.t t using (select 3 as id) s on t.id = s.id when not matched then insert (id) values (3)"
    )
    spark.sql("delete from kinds.t where id = 1")
    assert rows(spark, "select id, name from kinds.t order by id") == [(2, "bo"), (3, None)]
    spark.sql("alter table kinds.t add column place struct<city: string>")
    spark.sql("alter table kinds.t add column place.zip int")
    spark.sql("alter table kinds.t rename column name to called")
    spark.sql("alter table kinds.t alter column place.zip type bigint")
    spark.sql("alter table kinds.t add partition field bucket(4, id)")
    spark.sql("alter table kinds.t write ordered by id")
    spark.sql("alter table kinds.t set tblproperties ('team' = 'lake')")
    spark.sql("alter table kinds.t unset tblproperties if exists ('team', 'absent')")
    spark.sql("create table kinds.copy using iceberg as select * from kinds.t")
    spark.sql("create or replace table kinds.copy using iceberg as select id from kinds.t")
    spark.sql("alter table kinds.copy rename to kinds.twin")
    assert rows(spark, "select id from kinds.twin order by id") == [(2,), (3,)]
    assert sorted(rest.list_tables("kinds")) == [("kinds", "t"), ("kinds", "twin")]
    assert rest.load_table("kinds.t").scan().to_arrow().num_rows == 2
    spark.sql("drop table kinds.twin purge")
    spark.sql("drop table kinds.t")
    spark.sql("drop namespace kinds")


def test_what_spark_asks_for_in_vain_it_is_told_in_words(spark: SparkSession) -> None:
    spark.sql("create namespace vain")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("select * from vain.nothing").collect()
    spark.sql("create table vain.t (id bigint) using iceberg")
    with pytest.raises(Exception, match="not empty"):
        spark.sql("drop namespace vain")
    with pytest.raises(Exception, match=r"(?i)variant"):
        spark.sql("create table vain.v (payload variant) using iceberg tblproperties ('format-version' = '3')")


def test_all_maintenance_keeps_the_position(lake: Lake, spark: SparkSession, rest: RestCatalog) -> None:
    table = "kept.orders"
    lake.catalog.evolve(table, pa.schema([("id", pa.int64())]))
    for number in range(3):
        expect = offset(number) if number else None
        append(lake, table, spark.range(number * 10, number * 10 + 10), expect, offset(number + 1))
    spark.sql(f"delete from {table} where id = 29")
    spark.sql(f"call lake.system.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))")
    spark.sql(f"call lake.system.rewrite_manifests('{table}')")
    spark.sql(f"call lake.system.compute_table_stats('{table}')")
    spark.sql(f"call lake.system.expire_snapshots(table => '{table}', older_than => now(), retain_last => 1)")
    spark.sql(f"call lake.system.remove_orphan_files(table => '{table}', dry_run => true)")
    assert len(rest.load_table(table).metadata.snapshots) == 1
    assert lake.catalog.position(table, SOURCE) == offset(3)
    append(lake, table, spark.range(30, 40), offset(3), offset(4))
    assert rows(spark, f"select count(*), count(distinct id), sum(id) from {table}") == [(39, 39, sum(range(40)) - 29)]
    assert [load.state for load in lake.catalog.loads(table=table)] == [COMMITTED] * 4


def test_branches_tags_and_a_way_back(lake: Lake, spark: SparkSession) -> None:
    table = "forked.orders"
    lake.catalog.evolve(table, pa.schema([("id", pa.int64())]))
    append(lake, table, spark.range(10), None, offset(1))
    spark.sql(f"alter table {table} create tag first")
    spark.sql(f"alter table {table} create branch audit")
    spark.sql(f"insert into {table}.branch_audit values (100)")
    spark.sql(f"call lake.system.fast_forward('{table}', 'main', 'audit')")
    assert lake.catalog.position(table, SOURCE) == offset(1)
    append(lake, table, spark.range(10, 20), offset(1), offset(2))
    assert rows(spark, f"select count(*) from {table}") == [(21,)]
    assert rows(spark, f"select count(*) from {table} version as of 'first'") == [(10,)]
    lake.catalog.rewind(table, SOURCE, offset(1))
    append(lake, table, spark.range(10, 20), offset(1), offset(2))
    assert rows(spark, f"select count(*) from {table}") == [(31,)]
    first = rows(spark, f"select snapshot_id from {table}.refs where name = 'first'")[0][0]
    spark.sql(f"call lake.system.rollback_to_snapshot('{table}', {first})")
    assert lake.catalog.position(table, SOURCE) == offset(1)


def test_a_late_load_is_refused_and_leaves_no_file(lake: Lake, spark: SparkSession, rest: RestCatalog) -> None:
    table = "late.orders"
    lake.catalog.evolve(table, pa.schema([("id", pa.int64())]))
    append(lake, table, spark.range(10), None, offset(1))
    with pytest.raises(Exception, match="another load was quicker"):
        append(lake, table, spark.range(10), None, offset(1))
    assert rows(spark, f"select count(*) from {table}") == [(10,)]
    files = {str(path) for path in rest.load_table(table).inspect.files().column("file_path").to_pylist()}
    folder = rest.load_table(table).location()
    written = rows(spark, f"select _metadata.file_path from parquet.`{folder}/data/*.parquet`")
    assert {str(path).replace("file:///", "file:/") for (path,) in written} == {
        path.replace("file:///", "file:/") for path in files
    }


def test_version_3_tables(spark: SparkSession, rest: RestCatalog) -> None:
    spark.sql("create namespace three")
    spark.sql("create table three.born (id bigint) using iceberg tblproperties ('format-version' = '3')")
    spark.sql("create table three.raised (id bigint) using iceberg tblproperties ('format-version' = '2')")
    spark.sql("insert into three.raised values (1), (2)")
    spark.sql("alter table three.raised set tblproperties ('format-version' = '3')")
    for name in ("born", "raised"):
        spark.sql(f"insert into three.{name} values (3), (4), (5)")
        spark.sql(f"delete from three.{name} where id = 4")
        assert rest.load_table(f"three.{name}").format_version == 3
    assert rows(spark, "select id from three.born order by id") == [(3,), (5,)]
    assert rows(spark, "select id from three.raised order by id") == [(1,), (2,), (3,), (5,)]
    assert rows(spark, "select count(distinct _row_id) from three.raised") == [(4,)]


def test_tables_of_any_name(lake: Lake, spark: SparkSession, rest: RestCatalog, tmp_path: Path) -> None:
    """Java writes a space in a path as `+`; our own statements quote what Spark would read otherwise."""
    spark.sql("create namespace `my db`")
    spark.sql("create table `my db`.`a/b c.d'e` (id bigint) using iceberg")
    spark.sql("insert into `my db`.`a/b c.d'e` values (1)")
    assert rest.list_tables("my db") == [("my db", "a/b c.d'e")]
    assert rest.load_table(("my db", "a/b c.d'e")).scan().to_arrow().to_pylist() == [{"id": 1}]
    lines = tmp_path / "rows.jsonl"
    for mode in ("append", "upsert"):
        lines.write_text('{"id": 2}\n')
        table = f"`v1.2`.my {mode}"
        lake.load(f"files:{lines}", into=table, mode=mode, key=("id",) if mode == "upsert" else ())
        lake.maintain([table])
        assert matching_rows(lake, table, "id = 2", limit=9).num_rows == 1
        assert rows(spark, f"select id from `v1.2`.`my {mode}`") == [(2,)]
    assert {"my db.`a/b c.d'e`", "`v1.2`.my append"} <= set(tables_of(spark))
    spark.sql("alter table `my db`.`a/b c.d'e` rename to `my db`.`x y`")
    spark.sql("drop table `my db`.`x y` purge")
    spark.sql("drop namespace `my db`")
