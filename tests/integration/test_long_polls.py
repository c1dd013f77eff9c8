"""Long polls: waiting costs nothing, and the append that satisfies a fetch wakes it."""

import os
import resource
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.testing import LocalBroker
from integration.raw_client import RawClient, batch_of, fetch_body, fetched, produce_body, produced
from peers.headwater import HeadwaterProcess


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with LocalBroker(config={"num.partitions": 1}) as broker:
        create_topic(broker.bootstrap)
        yield broker


def create_topic(bootstrap: str) -> None:
    """The topic `poll`, by a Metadata request (v4) that allows auto-creation."""
    with RawClient(bootstrap) as client:
        client.ask(struct.pack(">hhih", 3, 4, 1, -1) + struct.pack(">ih", 1, 4) + b"poll" + b"\1")


def cpu_s(pid: int) -> float:
    """The CPU time that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_fetch_is_woken_by_the_append_that_satisfies_it(broker: LocalBroker) -> None:
    with RawClient(broker.bootstrap) as consumer, RawClient(broker.bootstrap) as producer:
        consumer.send(fetch_body("poll", 0, max_wait_ms=20_000))
        time.sleep(0.1)
        before = time.monotonic()
        assert produced(producer.ask(produce_body("poll", batch_of(b"wake up"))))[0] == 0
        error_code, high_watermark, data = fetched(consumer.receive())
        assert time.monotonic() - before < 1
        assert (error_code, high_watermark) == (0, 1)
        assert b"wake up" in data


def test_a_fetch_waits_for_min_bytes_and_then_gets_everything(broker: LocalBroker) -> None:
    batch = batch_of(b"x" * 100)
    with RawClient(broker.bootstrap) as consumer, RawClient(broker.bootstrap) as producer:
        consumer.send(fetch_body("poll", 0, max_wait_ms=20_000, min_bytes=2 * len(batch) + 1))
        for _ in range(3):
            consumer.sock.settimeout(0.1)
            with pytest.raises(TimeoutError):
                consumer.receive()
            producer.ask(produce_body("poll", batch))
        consumer.sock.settimeout(5)
        assert len(fetched(consumer.receive())[2]) == 3 * len(batch)


def test_a_fetch_that_finds_nothing_answers_when_its_time_is_up(broker: LocalBroker) -> None:
    with RawClient(broker.bootstrap) as consumer:
        before = time.monotonic()
        assert fetched(consumer.ask(fetch_body("poll", 0, max_wait_ms=300))) == (0, 0, b"")
        assert 0.25 < time.monotonic() - before < 2


def test_deleting_the_topic_ends_the_wait(broker: LocalBroker) -> None:
    with RawClient(broker.bootstrap) as consumer, RawClient(broker.bootstrap) as admin:
        consumer.send(fetch_body("poll", 0, max_wait_ms=20_000))
        time.sleep(0.1)
        admin.ask(struct.pack(">hhih", 20, 1, 1, -1) + struct.pack(">ih", 1, 4) + b"poll" + struct.pack(">i", 5000))
        assert fetched(consumer.receive())[0] == 3


def test_ten_thousand_waiting_fetches_cost_nothing_and_are_all_woken(headwater: HeadwaterProcess) -> None:
    count = 10_000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard > count + 500, f"the machine allows {hard} open files, too few for {count} connections"
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    create_topic(headwater.bootstrap)
    clients: list[RawClient] = []
    try:
        body = fetch_body("poll", 0, max_wait_ms=120_000)
        for _ in range(count):
            clients.append(RawClient(headwater.bootstrap))
            clients[-1].send(body)
        time.sleep(1.0)
        before_s = cpu_s(headwater.pid)
        time.sleep(1.0)
        # A whole second with ten thousand requests waiting: the broker all but sleeps.
        assert cpu_s(headwater.pid) - before_s <= 0.05
        with RawClient(headwater.bootstrap) as producer:
            assert produced(producer.ask(produce_body("poll", batch_of(b"all"))))[0] == 0
            for client in clients:
                assert b"all" in fetched(client.receive())[2]
    finally:
        for client in clients:
            client.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
