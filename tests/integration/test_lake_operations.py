"""Operating loads with Spark behind them: jobs beside a failing one, and a rewind that deletes in its commit."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from headwater import LocalBroker, Producer
from headwater.lake import Lake
from headwater.lake.jobs import Job
from headwater.lake.load.request import LoadRequest
from headwater.lake.operations.explanations import Verdict
from headwater.lake.operations.rewinding import carry_out
from headwater.lake.sources.topics import offsets_of
from peers.spark import lake as lake
from peers.spark import pyspark_leaves_sockets

pytestmark = pyspark_leaves_sockets


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker() as broker:
        yield broker


def produce(broker: LocalBroker, topic: str, *values: Any) -> None:
    with Producer(broker.bootstrap) as producer:
        for value in values:
            producer.send(topic, json.dumps(value).encode(), partition=0)


def job(broker: LocalBroker, topic: str, **how: Any) -> Job:
    request = LoadRequest(table=f"shop.{topic}", **how)
    return Job(source=f"topic:{topic}", request=request, bootstrap=broker.bootstrap)


def numbers(lake: Lake, table: str) -> list[int]:
    return sorted(row["id"] for row in lake.sql(f"select id from {table}").to_pylist())


def test_jobs_run_beside_one_that_fails_and_tell_how_they_stand(lake: Lake, broker: LocalBroker) -> None:
    produce(broker, "orders", {"id": 1}, {"id": 2})
    produce(broker, "visits", {"id": 7})
    jobs = [job(broker, "orders"), job(broker, "absent"), job(broker, "visits", mode="upsert", key=("id",))]
    orders, absent, visits = lake.run(jobs)
    assert (orders.failure, visits.failure) == (None, None)
    assert (orders.loaded, visits.loaded) == (True, True)
    assert absent.failure is not None
    assert "absent" in absent.failure

    produce(broker, "orders", {"id": 3})
    (status,) = lake.status("shop.orders")
    (source,) = status.sources
    assert (source.lag.records, offsets_of(source.position)) == (1, {"orders": {"0": 2}})
    assert [(load.state, load.rows) for load in source.loads] == [("committed", 2)]
    assert source.loads[0].details["bootstrap"] == broker.bootstrap

    loaded = lake.explain_offset("shop.orders", "orders:0:1")
    assert (loaded.verdict, loaded.loads[0].load_id) == (Verdict.LOADED, source.loads[0].load_id)
    assert lake.explain_offset("shop.orders", "orders:0:2").verdict is Verdict.NOT_YET
    assert [change.kind for change in lake.history("shop.orders")][:1] == ["create"]


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_rewind_deletes_rows_in_the_commit_that_sets_the_position_back(
    lake: Lake, broker: LocalBroker, mode: str
) -> None:
    topic, table = f"rewound_{mode}", f"shop.rewound_{mode}"
    produce(broker, topic, *({"id": number} for number in range(6)))
    again = job(broker, topic, mode=mode, key=("id",) if mode == "upsert" else ())
    lake.run([again])
    snapshots = len(lake.iceberg.load_table(table).snapshots())
    plan = lake.plan_rewind(table, f"topic:{topic}", '{"0": 2}', delete=True)
    load = carry_out(lake, plan)
    assert (load.mode, load.state, load.details) == ("rewind", "committed", {"deleted": True})
    assert len(lake.iceberg.load_table(table).snapshots()) == snapshots + 1
    assert offsets_of(lake.catalog.position(table, f"topic:{topic}")) == {topic: {"0": 2}}
    assert numbers(lake, table) == [0, 1]
    assert "its rows were deleted" in "\n".join(lake.explain_offset(table, f"{topic}:0:4").reasons)
    lake.run([again])
    assert numbers(lake, table) == [0, 1, 2, 3, 4, 5]


def test_a_rewind_over_whole_files_deletes_them_and_one_over_nothing_only_goes_back(
    lake: Lake, broker: LocalBroker
) -> None:
    produce(broker, "whole", {"id": 1}, {"id": 2})
    lake.run([job(broker, "whole")])
    lake.rewind("shop.whole", "topic:whole", "earliest", delete=True)
    assert numbers(lake, "shop.whole") == []
    assert offsets_of(lake.catalog.position("shop.whole", "topic:whole")) == {"whole": {"0": 0}}
    lake.run([job(broker, "whole")])
    lake.sql("delete from shop.whole where id = 2")
    load = lake.rewind("shop.whole", "topic:whole", '{"0": 1}', delete=True)
    assert load.state == "committed"
    assert numbers(lake, "shop.whole") == [1]
    assert offsets_of(lake.catalog.position("shop.whole", "topic:whole")) == {"whole": {"0": 1}}


def test_a_rewind_that_a_load_overtakes_changes_nothing(lake: Lake, broker: LocalBroker) -> None:
    produce(broker, "raced", {"id": 1}, {"id": 2})
    lake.run([job(broker, "raced")])
    plan = lake.plan_rewind("shop.raced", "topic:raced", "earliest", delete=True)
    produce(broker, "raced", {"id": 3})
    lake.run([job(broker, "raced")])
    with pytest.raises(Exception, match="has moved since"):
        carry_out(lake, plan)
    assert numbers(lake, "shop.raced") == [1, 2, 3]
