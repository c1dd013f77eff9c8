"""`FlakyProxy` forwards what it is not told to lose, and loses exactly what it is told to."""

import time
from collections.abc import Iterator

import pytest

from conformance.actions import create_topic, unique_name
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


def test_an_api_that_the_broker_does_not_have_is_refused(network: FlakyProxy) -> None:
    with pytest.raises(ValueError, match="'produse' is no API of the broker"):
        network.lose_answers("produse")
