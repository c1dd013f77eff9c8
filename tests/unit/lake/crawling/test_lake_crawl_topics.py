"""Topics become tables: what their values are is told by a few of them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater import Admin, LocalBroker, Producer
from headwater.lake.crawling import topics
from headwater.lake.crawling.places import crawl
from headwater.lake.crawling.proposals import Proposal, lake_toml
from headwater.lake.crawling.topics import crawl_cluster
from headwater.lake.datasource.brokers import Brokers
from headwater.lake.datasource.topic_offsets import TopicRange
from headwater.lake.datasource.topic_reader import read_range
from headwater.lake.lake_file import parse_lake_file


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker() as broker, Admin(broker.bootstrap) as admin, Producer(broker.bootstrap) as producer:
        admin.create_topic("customers", partitions=1, configs={"cleanup.policy": "compact"})
        admin.create_topic("empty", partitions=1)
        admin.create_topic("__tool", partitions=1)
        for number in range(500):
            order = {"id": number, "event_time": "2026-01-01T00:00:00Z", "total": 1.5}
            producer.send("orders", json.dumps(order).encode())
        producer.send("customers", b'{"name": "ann"}', key=b"1")
        producer.send("customers", None, key=b"2")
        producer.send("mixed", b'{"id": 1}')
        producer.send("mixed", b'{"id": 2}')
        producer.send("mixed", b"nope")
        producer.send("lines", "it is höt".encode())
        producer.send("lines", b"42")
        producer.send("bytes", b"\xff\xfe")
        producer.send("avro", b"\x00\x00\x00\x00\x07rest of it")
        producer.flush()
        yield broker


@pytest.fixture(scope="module")
def found(broker: LocalBroker) -> dict[str, Proposal]:
    return {each.source: each for each in crawl_cluster(broker.bootstrap).proposals}


def test_values_are_json_text_or_bytes(found: dict[str, Proposal]) -> None:
    assert {source: dict(each.options) for source, each in found.items()} == {
        "topic:orders": {},
        "topic:customers": {},
        "topic:mixed": {},
        "topic:lines": {"value": "text"},
        "topic:bytes": {"value": "raw"},
        "topic:avro": {"value": "raw"},
    }
    assert "2 of 3 sampled values are JSON" in found["topic:mixed"].reasons[0]
    assert "schema registry" in found["topic:avro"].reasons[0]


def test_the_time_of_an_event_is_found_by_type_and_name(found: dict[str, Proposal]) -> None:
    assert found["topic:orders"].event_time == "event_time"
    assert found["topic:customers"].event_time is None


def test_a_compacted_topic_is_upserted_by_its_key(found: dict[str, Proposal]) -> None:
    assert (found["topic:customers"].mode, found["topic:customers"].key) == ("upsert", ("_key",))
    assert (found["topic:orders"].mode, found["topic:orders"].key) == ("append", ())


def test_topics_of_tools_and_without_records_are_left_out(broker: LocalBroker) -> None:
    words = "\n".join(crawl(broker.bootstrap).left_out)
    assert "topic empty: it has no records yet" in words
    assert "topic __tool" in words


def test_a_sample_is_small(broker: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def watched(brokers: Brokers, wanted: TopicRange, **how: Any) -> Iterator[pa.RecordBatch]:
        read.append(wanted.offsets)
        return read_range(brokers, wanted, **how)

    monkeypatch.setattr(topics, "read_range", watched)
    (orders,) = [each for each in crawl_cluster(broker.bootstrap).proposals if each.source == "topic:orders"]
    assert max(read) <= topics.SAMPLED_RECORDS
    assert "500 offsets" in orders.reasons[0]


def test_the_proposal_is_a_lake_file_that_can_be_run(broker: LocalBroker, tmp_path: Path) -> None:
    jobs = parse_lake_file(lake_toml(crawl_cluster(broker.bootstrap)), folder=tmp_path).jobs
    assert {job.bootstrap for job in jobs} == {broker.bootstrap}
    assert {job.request.table for job in jobs} >= {"topics.orders", "topics.customers"}
