"""Fetch in every version that headwater's consumer speaks: either broker understands it and is understood."""

import asyncio

import confluent_kafka
import pytest

from headwater.client.client import Client
from headwater.client.consumer.fetch_lane import (
    NEWEST_VERSION,
    OLDEST_VERSION,
    FetchAnswer,
    FetchPartition,
    decode_fetch,
    encode_fetch,
)
from headwater.client.consumer.records import FetchedBatches

from .actions import create_topic, unique_name
from .conftest import Broker
from .isolation import settle
from .wire import Wire

FETCH_KEY = 1
READ_COMMITTED = 1
VERSIONS = range(OLDEST_VERSION, NEWEST_VERSION + 1)


@pytest.fixture
def topic(broker: Broker) -> str:
    """One partition: a record without a transaction, an aborted transaction of two, and a committed one."""
    with Wire(broker.bootstrap) as wire:
        created = create_topic(wire)
        transactional = {"transactional.id": unique_name("lane"), "log_level": 0, "linger.ms": 0}
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, **transactional})
        plain = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        plain.produce(created.name, b"plain", b"key", partition=0, headers={"h": b"x"})
        assert plain.flush(20) == 0
        producer.init_transactions(20)
        for value, end in ((b"aborted", producer.abort_transaction), (b"committed", producer.commit_transaction)):
            producer.begin_transaction()
            producer.produce(created.name, value, partition=0)
            producer.produce(created.name, value, partition=0)
            assert producer.flush(20) == 0
            end(20)
        settle(wire, created)
        return created.name


async def fetch(client: Client, topic: str, version: int, offset: int, session: tuple[int, int]) -> FetchAnswer:
    """One fetch of committed records; with an offset of -1 the partition leaves the session."""
    leader = client.leader_of(topic, 0)
    topic_id = client.topic_id(topic)
    assert leader is not None
    assert topic_id is not None
    name = topic_id.bytes if version >= 13 else topic
    connection = await client.connection(leader.node_id)
    oldest, newest = connection.supported(FETCH_KEY)
    assert oldest <= version <= newest
    body = encode_fetch(
        version,
        [] if offset < 0 else [(name, [FetchPartition(0, leader.epoch, offset, -1, -1, 1 << 20)])],
        max_wait_ms=500,
        min_bytes=0,
        max_bytes=1 << 20,
        isolation_level=READ_COMMITTED,
        session_id=session[0],
        session_epoch=session[1],
        forgotten=[(name, [0])] if offset < 0 else [],
        rack_id="here",
    )
    answer = await connection.submit_raw(FETCH_KEY, version, body, flexible=version >= 12, timeout_s=20)
    return decode_fetch(version, answer)


def test_what_was_committed_is_read_in_every_version(broker: Broker, topic: str) -> None:
    async def read() -> None:
        async with Client(broker.bootstrap) as client:
            await client.topic(topic)
            for version in VERSIONS:
                answer = await fetch(client, topic, version, 0, (0, -1))
                (found,) = answer.partitions
                assert found.topic == (topic if version < 13 else getattr(client.topic_id(topic), "bytes", None))
                assert (answer.error_code, answer.session_id, found.partition, found.error_code) == (0, 0, 0, 0)
                assert (found.high_watermark, found.last_stable_offset) == (7, 7)
                assert found.log_start_offset == (0 if version >= 5 else -1)
                assert found.aborted is not None
                assert [first_offset for _, first_offset in found.aborted] == [1]
                assert found.preferred_read_replica == -1
                batches = FetchedBatches(topic, 0, found.records, 0, len(found.records), 0, found.aborted)
                records = batches.take(100)
                values = [(record.offset, record.value) for record in records]
                assert values == [(0, b"plain"), (4, b"committed"), (5, b"committed")], f"version {version}"
                assert (records[0].key, records[0].headers) == (b"key", (("h", b"x"),))
                assert (batches.exhausted, batches.next_offset) == (True, 7)

    asyncio.run(asyncio.wait_for(read(), 60))


def test_a_session_is_opened_goes_on_and_is_left_in_every_version_that_has_them(broker: Broker, topic: str) -> None:
    async def read() -> None:
        async with Client(broker.bootstrap) as client:
            await client.topic(topic)
            for version in (version for version in VERSIONS if version >= 7):
                opened = await fetch(client, topic, version, 0, (0, 0))
                assert opened.session_id > 0
                assert len(opened.partitions) == 1
                at_the_end = await fetch(client, topic, version, 7, (opened.session_id, 1))
                assert (at_the_end.session_id, at_the_end.error_code) == (opened.session_id, 0)
                assert all(len(partition.records) == 0 for partition in at_the_end.partitions)
                left = await fetch(client, topic, version, -1, (opened.session_id, 2))
                assert (left.error_code, left.partitions) == (0, []), f"version {version}"

    asyncio.run(asyncio.wait_for(read(), 60))
