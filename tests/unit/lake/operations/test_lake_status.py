"""The status of a lake: how far each source is, what is left, what the last loads did; asked without Spark."""

import time
from pathlib import Path

import pytest

from headwater import Admin, LocalBroker, Producer
from headwater.admin import NewTopic
from headwater.lake import Lake, LakeUsageError
from headwater.lake.operations.status import SourceStatus, StatusQuestion, lake_status
from headwater.types import TopicPartition
from loads_without_spark import load_files, load_offsets


def produce(
    broker: LocalBroker, topic: str, count: int, *, partition: int = 0, timestamp_ms: int | None = None
) -> None:
    with Producer(broker.bootstrap) as producer:
        for number in range(count):
            producer.send(topic, b"{}", partition=partition, timestamp_ms=timestamp_ms, key=b"%d" % number)


def only(lake: Lake, table: str, bootstrap: str | None = None) -> SourceStatus:
    (status,) = lake_status(lake.catalog, table, StatusQuestion(bootstrap=bootstrap))
    (source,) = status.sources
    return source


def test_a_topic_is_behind_by_records_and_by_the_age_of_the_first_unread_one(
    lake: Lake, broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.lake.lake.start_spark", None)  # whoever starts it now fails
    hour_ago_ms = int(time.time() * 1000) - 3_600_000
    produce(broker, "behind", 5)
    produce(broker, "behind", 3, timestamp_ms=hour_ago_ms)
    load_offsets(lake, "s.behind", "behind", {0: 5}, bootstrap=broker.bootstrap)
    found = only(lake, "s.behind")
    assert found.position == {"topics": {"behind": {"0": 5}}}
    assert found.lag.records == 3
    assert found.lag.seconds is not None
    assert 3600 <= found.lag.seconds < 3700


def test_a_topic_that_is_read_to_its_end_is_behind_by_nothing(lake: Lake, broker: LocalBroker) -> None:
    produce(broker, "done", 2)
    load_offsets(lake, "s.done", "done", {0: 2}, bootstrap=broker.bootstrap)
    lag = only(lake, "s.done").lag
    assert (lag.records, lag.seconds, lag.words) == (0, 0.0, None)


def test_the_age_is_that_of_the_first_record_behind_a_gap(lake: Lake, broker: LocalBroker) -> None:
    with Producer(broker.bootstrap, transactional_id="gap") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for _ in range(3):
            producer.send("gap", b"{}", partition=0)
        producer.flush()
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send("gap", b"{}", partition=0, timestamp_ms=1_000)
        producer.commit_transaction()
    load_offsets(lake, "s.gap", "gap", {0: 0}, bootstrap=broker.bootstrap)
    (partition,) = only(lake, "s.gap").lag.partitions
    assert (partition.start, partition.end, partition.first_unread_ms) == (0, 6, 1_000)


def test_what_the_log_lost_before_it_was_loaded_is_told(lake: Lake, broker: LocalBroker) -> None:
    produce(broker, "lossy", 10)
    load_offsets(lake, "s.lossy", "lossy", {0: 2}, bootstrap=broker.bootstrap)
    with Admin(broker.bootstrap) as admin:
        admin.delete_records({TopicPartition("lossy", 0): 6})
    lag = only(lake, "s.lossy").lag
    assert lag.records == 4
    assert lag.words is not None
    assert "lost 4 offsets of lossy-0" in lag.words


def test_a_topic_that_was_made_anew_is_told(lake: Lake, broker: LocalBroker) -> None:
    produce(broker, "anew", 1)
    load_offsets(lake, "s.anew", "anew", {0: 100}, bootstrap=broker.bootstrap)
    lag = only(lake, "s.anew").lag
    assert lag.words is not None
    assert "behind the end of anew-0" in lag.words


def test_partitions_that_were_added_count_from_their_beginning(lake: Lake, broker: LocalBroker) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topics([NewTopic("grown", partitions=2)])
    produce(broker, "grown", 4, partition=0)
    produce(broker, "grown", 3, partition=1)
    load_offsets(lake, "s.grown", "grown", {0: 4}, bootstrap=broker.bootstrap)
    assert only(lake, "s.grown").lag.records == 3


def test_brokers_that_are_away_cost_one_sentence_and_another_address_can_be_named(
    lake: Lake, broker: LocalBroker
) -> None:
    produce(broker, "moved", 3)
    load_offsets(lake, "s.moved", "moved", {0: 1}, bootstrap="127.0.0.1:1")
    lag = only(lake, "s.moved").lag
    assert lag.records is None
    assert lag.words is not None
    assert "127.0.0.1:1" in lag.words
    assert only(lake, "s.moved", bootstrap=broker.bootstrap).lag.records == 2


def test_a_folder_is_behind_by_its_new_files(lake: Lake, tmp_path: Path) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    for path in (old, new):
        path.write_text("{}")
    known = {str(old): (old.stat().st_mtime_ns, 2)}
    load_files(lake, "s.files", str(tmp_path), known)
    found = only(lake, "s.files")
    assert found.lag.files == 1
    load_files(lake, "s.files", str(tmp_path), known | {str(new): (new.stat().st_mtime_ns, 2)})
    assert only(lake, "s.files").lag.files == 0


def test_the_last_loads_and_the_version_of_the_schema_are_told(lake: Lake, broker: LocalBroker) -> None:
    ids = [load_offsets(lake, "s.loads", "loads", {0: end}, bootstrap=broker.bootstrap) for end in (2, 5)]
    failed = lake.catalog.begin_load(table="s.loads", source="topic:loads")
    lake.catalog.fail_load(failed, "the disk is full")
    (status,) = lake_status(lake.catalog, "s.loads")
    loads = status.sources[0].loads
    assert [(load.load_id, load.state, load.rows) for load in loads] == [
        (failed, "failed", None),
        (ids[1], "committed", 3),
        (ids[0], "committed", 2),
    ]
    assert (status.schema_version, status.schema_changes) == (0, 1)


def test_all_tables_are_told_but_those_that_were_dropped(lake: Lake, broker: LocalBroker) -> None:
    load_offsets(lake, "all.kept", "kept", {0: 1}, bootstrap=broker.bootstrap)
    load_offsets(lake, "all.dropped", "dropped", {0: 1}, bootstrap=broker.bootstrap)
    lake.iceberg.drop_table("all.dropped")
    lake.catalog.begin_load(table="all.first_try", source="topic:kept", details={"bootstrap": broker.bootstrap})
    tables = [status.table for status in lake_status(lake.catalog) if status.table.startswith("all.")]
    assert tables == ["all.first_try", "all.kept"]


def test_a_table_that_never_was_is_an_error(lake: Lake) -> None:
    with pytest.raises(LakeUsageError, match=r"there is no table s\.never"):
        lake_status(lake.catalog, "s.never")
