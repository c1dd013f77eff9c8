"""A rewind says what will be loaded again, goes back only, and sets the position in one commit."""

import time
from pathlib import Path

import pytest

from headwater import Admin, LocalBroker, Producer
from headwater.lake import Lake, LakeBusyError, LakeUsageError
from headwater.lake.operations.rewinding import carry_out
from headwater.types import TopicPartition
from loads_without_spark import load_files, load_offsets, load_up_to


def produce(broker: LocalBroker, topic: str, timestamps_ms: list[int]) -> None:
    with Producer(broker.bootstrap) as producer:
        for timestamp_ms in timestamps_ms:
            producer.send(topic, b"{}", partition=0, timestamp_ms=timestamp_ms)


def offsets(lake: Lake, table: str, topic: str) -> dict[str, int] | None:
    position = lake.catalog.position(table, f"topic:{topic}")
    return None if position is None else dict(position["topics"][topic])


def test_a_topic_goes_back_to_named_offsets_and_other_partitions_stay(lake: Lake) -> None:
    load_offsets(lake, "r.named", "named", {0: 10, 1: 20})
    plan = lake.plan_rewind("r.named", "topic:named", '{"named": {"1": 15}}')
    assert plan.again == "5 offsets in 1 partitions"
    assert "will be there twice" in plan.rows
    assert offsets(lake, "r.named", "named") == {"0": 10, "1": 20}
    load = carry_out(lake, plan)
    assert (load.mode, load.state) == ("rewind", "committed")
    assert offsets(lake, "r.named", "named") == {"0": 10, "1": 15}
    assert lake.iceberg.load_table("r.named").scan().count() == 30


def test_the_beginning_of_a_topic_is_where_its_log_begins_now(lake: Lake, broker: LocalBroker) -> None:
    produce(broker, "earliest", [1_000] * 10)
    with Admin(broker.bootstrap) as admin:
        admin.delete_records({TopicPartition("earliest", 0): 4})
    load_offsets(lake, "r.earliest", "earliest", {0: 10}, bootstrap=broker.bootstrap)
    assert lake.plan_rewind("r.earliest", "topic:earliest", "earliest").again == "6 offsets in 1 partitions"
    lake.rewind("r.earliest", "topic:earliest", "earliest")
    assert offsets(lake, "r.earliest", "earliest") == {"0": 4}


def test_a_rewind_to_earliest_passes_over_what_the_log_has_lost(lake: Lake, broker: LocalBroker) -> None:
    produce(broker, "lost", [1_000] * 10)
    load_offsets(lake, "r.lost", "lost", {0: 2}, bootstrap=broker.bootstrap)
    with Admin(broker.bootstrap) as admin:
        admin.delete_records({TopicPartition("lost", 0): 6})
    plan = lake.plan_rewind("r.lost", "topic:lost", "earliest")
    assert "4 that the log has lost are passed over" in plan.again
    carry_out(lake, plan)
    assert offsets(lake, "r.lost", "lost") == {"0": 6}


@pytest.mark.parametrize("to", ["ts:3000", "1970-01-01T00:00:03Z", "1970-01-01T00:00:02.500"])
def test_a_topic_goes_back_to_the_first_record_of_a_time(lake: Lake, broker: LocalBroker, to: str) -> None:
    if lake.catalog.table_state("r.time") is None:
        produce(broker, "time", [1_000, 2_000, 3_000, 4_000, 5_000])
    load_offsets(lake, "r.time", "time", {0: 5}, bootstrap=broker.bootstrap)
    lake.rewind("r.time", "topic:time", to)
    assert offsets(lake, "r.time", "time") == {"0": 2}


def test_a_topic_goes_back_before_a_load_and_before_the_first_to_where_that_began(lake: Lake) -> None:
    first = load_offsets(lake, "r.load", "load", {0: 4}, starts={0: 1})
    second = load_offsets(lake, "r.load", "load", {0: 9})
    lake.rewind("r.load", "topic:load", f"load:{second[:12]}")
    assert offsets(lake, "r.load", "load") == {"0": 4}
    lake.rewind("r.load", "topic:load", f"load:{first}")
    assert offsets(lake, "r.load", "load") == {"0": 1}
    with pytest.raises(LakeUsageError, match="a rewind only goes back"):
        lake.rewind("r.load", "topic:load", f"load:{second}")


def test_a_folder_goes_back_before_a_load_to_a_time_or_to_nothing(lake: Lake, tmp_path: Path) -> None:
    source, table = f"files:file://{tmp_path}", "r.files"
    load_files(lake, table, str(tmp_path), {"/a": (1, 1)})
    between_ms = int(time.time() * 1000)
    while int(time.time() * 1000) == between_ms:
        pass
    second = load_files(lake, table, str(tmp_path), {"/b": (1, 1), "/c": (1, 1)})
    third = load_files(lake, table, str(tmp_path), {"/d": (1, 1)})

    def known() -> list[str]:
        return sorted(lake.catalog.known_files(table, source).column("path").to_pylist())

    assert lake.plan_rewind(table, f"files:{tmp_path}/../{tmp_path.name}", f"load:{second}").again == "3 files"
    assert lake.plan_rewind(table, source, "earliest").again == "4 files"
    lake.rewind(table, source, f"load:{third}")
    assert known() == ["/a", "/b", "/c"]
    lake.rewind(table, source, str(between_ms))
    assert known() == ["/a"]
    lake.rewind(table, source, "earliest")
    assert known() == []


def test_a_database_table_goes_back_before_a_load_to_a_value_or_to_its_beginning(lake: Lake) -> None:
    source, table = "jdbc:postgresql://host:5432/shop#public.orders", "r.jdbc"
    load_up_to(lake, table, source, 10)
    second = load_up_to(lake, table, source, 20)
    lake.rewind(table, source, f"load:{second}")
    assert lake.catalog.position(table, source) == {"column": "id", "value": "10"}
    lake.rewind(table, source, '{"column": "id", "value": "5"}')
    assert lake.catalog.position(table, source) == {"column": "id", "value": "5"}
    with pytest.raises(LakeUsageError, match="is no position of jdbc:"):
        lake.plan_rewind(table, source, '{"0": 5}')
    assert lake.plan_rewind(table, source, "earliest").again == "all rows"
    lake.rewind(table, source, "earliest")
    assert lake.catalog.position(table, source) is None


@pytest.mark.parametrize(
    ("to", "words"),
    [
        ('{"0": 11}', "ahead of the position in wrong-0 at 11"),
        ('{"7": 1}', "its partitions are 0"),
        ('{"other": {"0": 1}}', "has no offsets of wrong"),
        ('{"0": "x"}', "is no offset of wrong"),
        ('{"0": ', "is no JSON"),
        ("load:", "there is no load"),
        ("load:abc", "there is no load"),
        ("yesterday", "is no place to go back to"),
    ],
)
def test_what_is_no_way_back_is_told(lake: Lake, to: str, words: str) -> None:
    load_offsets(lake, "r.wrong", "wrong", {0: 10})
    with pytest.raises(LakeUsageError, match=words):
        lake.plan_rewind("r.wrong", "topic:wrong", to)


def test_a_source_that_the_table_does_not_have_is_told_with_those_that_it_has(lake: Lake) -> None:
    load_offsets(lake, "r.sources", "sources", {0: 1})
    with pytest.raises(LakeUsageError, match="its sources are topic:sources"):
        lake.plan_rewind("r.sources", "topic:other", "earliest")
    with pytest.raises(LakeUsageError, match=r"no table r\.absent"):
        lake.plan_rewind("r.absent", "topic:other", "earliest")


def test_a_plan_is_void_once_a_load_has_moved_the_position(lake: Lake) -> None:
    load_offsets(lake, "r.moved", "moved", {0: 5})
    plan = lake.plan_rewind("r.moved", "topic:moved", '{"0": 2}')
    load_offsets(lake, "r.moved", "moved", {0: 8})
    with pytest.raises(LakeBusyError, match="has moved since"):
        carry_out(lake, plan)
    assert offsets(lake, "r.moved", "moved") == {"0": 8}


def test_rows_go_only_where_they_can_be_told_apart(lake: Lake, tmp_path: Path) -> None:
    load_files(lake, "r.rows", str(tmp_path), {"/a": (1, 1)})
    with pytest.raises(LakeUsageError, match="only rows of topics"):
        lake.plan_rewind("r.rows", f"files:file://{tmp_path}", "earliest", delete=True)
    load_offsets(lake, "r.two", "one", {0: 1})
    load_offsets(lake, "r.two", "two", {0: 1})
    with pytest.raises(LakeUsageError, match="rows of topic:two too"):
        lake.plan_rewind("r.two", "topic:one", '{"0": 0}', delete=True)
