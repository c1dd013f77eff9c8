"""`FlakyProxy` forwards what it is not told to lose, and loses exactly what it is told to."""

import socket
import struct
import time
from collections.abc import Iterator

import pytest

from conformance.actions import create_topic, eventually, unique_name
from conformance.wire import ConnectionClosedError, Wire
from headwater.testing import FlakyProxy, LocalBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker() as running:
        yield running


@pytest.fixture
def network(broker: LocalBroker) -> Iterator[FlakyProxy]:
    with FlakyProxy(broker.port) as proxy:
        yield proxy


def create(wire: Wire, name: str) -> None:
    wire.send("create_topics", topics=[{"name": name, "num_partitions": 1, "replication_factor": 1}])


# Metadata version 1 for no topics: length, key 3, version 1, correlation id 1, no client id, an empty list.
METADATA = struct.pack(">ihhihi", 14, 3, 1, 1, -1, 0)


def read_answer(client: socket.socket) -> bytes:
    length = client.recv(4, socket.MSG_WAITALL)
    return length + client.recv(int.from_bytes(length), socket.MSG_WAITALL)


def exists(broker: LocalBroker, name: str) -> bool:
    with Wire(broker.bootstrap) as direct:
        return name in {topic.name for topic in direct.send("metadata", topics=None).topics}


def test_it_forwards_what_it_is_not_told_to_lose(network: FlakyProxy) -> None:
    with Wire(network.address) as wire:
        network.lose_answers("produce")
        create_topic(wire, partitions=3)
    assert network.lost == 0


def test_a_lost_answer_is_to_a_request_that_was_carried_out(broker: LocalBroker, network: FlakyProxy) -> None:
    network.lose_answers("create_topics")
    name = unique_name()
    with Wire(network.address) as wire, pytest.raises((ConnectionClosedError, ConnectionError)):
        create(wire, name)
    assert (network.lost, exists(broker, name)) == (1, True)


def test_a_lost_request_is_not_carried_out(broker: LocalBroker, network: FlakyProxy) -> None:
    network.lose_requests("create_topics")
    name = unique_name()
    with Wire(network.address) as wire, pytest.raises((ConnectionClosedError, ConnectionError)):
        create(wire, name)
    assert (network.lost, exists(broker, name)) == (1, False)
    with Wire(network.address) as wire:
        create(wire, name)
    assert (network.lost, exists(broker, name)) == (1, True)


def test_answers_can_take_longer(network: FlakyProxy) -> None:
    with Wire(network.address) as wire:
        network.delay_answers(0.2)
        begin = time.monotonic()
        wire.send("metadata", topics=[])
        assert time.monotonic() - begin >= 0.2
        network.delay_answers(0)
        wire.send("metadata", topics=[])


def test_connections_are_cut_and_can_be_made_again(network: FlakyProxy) -> None:
    with Wire(network.address) as first:
        first.send("metadata", topics=[])
        network.cut()
        assert first.is_closed_by_peer()
    with Wire(network.address) as second:
        second.send("metadata", topics=[])


def test_requests_can_take_longer(network: FlakyProxy) -> None:
    with Wire(network.address) as wire:
        network.delay_requests(0.2)
        begin = time.monotonic()
        wire.send("metadata", topics=[])
        assert time.monotonic() - begin >= 0.2
        network.delay_requests(0)
        wire.send("metadata", topics=[])


def test_an_answer_is_cut_in_the_middle(network: FlakyProxy) -> None:
    with socket.create_connection(("127.0.0.1", network.port), timeout=10) as client:
        client.sendall(METADATA)
        whole = read_answer(client)
        network.cut_answers("metadata")
        client.sendall(METADATA)
        assert client.recv(1 << 16, socket.MSG_WAITALL) == whole[: len(whole) // 2]
    assert network.lost == 1
    with Wire(network.address) as wire:
        wire.send("metadata", topics=[])


def test_a_connection_whose_answer_is_silenced_stays_open_and_says_nothing_more(
    broker: LocalBroker, network: FlakyProxy
) -> None:
    network.silence_answers("create_topics")
    name = unique_name()
    with Wire(network.address, timeout_s=0.3) as wire:
        with pytest.raises(TimeoutError):
            create(wire, name)
        with pytest.raises(TimeoutError):
            wire.send("metadata", topics=[])
    assert (network.lost, exists(broker, name)) == (1, True)


def test_all_connections_of_now_fall_silent_and_new_ones_work(broker: LocalBroker, network: FlakyProxy) -> None:
    name = unique_name()
    with Wire(network.address, timeout_s=0.3) as old:
        old.send("metadata", topics=[])
        network.silence()
        with pytest.raises(TimeoutError):
            create(old, name)
        with Wire(network.address) as new:
            new.send("metadata", topics=[])
    assert not exists(broker, name)


def test_a_request_is_overtaken_by_a_later_one_of_another_connection(broker: LocalBroker, network: FlakyProxy) -> None:
    network.overtake_requests("create_topics")
    overtaken, later = unique_name(), unique_name()
    with Wire(network.address) as wire, pytest.raises((ConnectionClosedError, ConnectionError)):
        create(wire, overtaken)
    assert not exists(broker, overtaken)
    with Wire(network.address) as wire:
        wire.send("metadata", topics=[])
        assert not exists(broker, overtaken)
        create(wire, later)
    eventually(lambda: network.overtaken == 1, "the request that was held back")
    assert exists(broker, overtaken)
    assert exists(broker, later)
    assert network.lost == 0


def test_an_api_that_the_broker_does_not_have_is_refused(network: FlakyProxy) -> None:
    with pytest.raises(ValueError, match="'produse' is no API of the broker"):
        network.lose_answers("produse")
