"""`broker` is headwater in one run of a case and Apache Kafka in the other; `wire` is a connection to it."""

from collections.abc import Iterator

import pytest

from peers.apache import ApacheKafka
from peers.headwater import HeadwaterProcess

from .wire import Wire

Broker = ApacheKafka | HeadwaterProcess


@pytest.fixture(params=["headwater", "apache"])
def broker(request: pytest.FixtureRequest) -> Broker:
    """Each case runs once against either."""
    found: Broker = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def brokers(headwater: HeadwaterProcess, apache: ApacheKafka) -> tuple[Broker, Broker]:
    """Ours and theirs, for cases that compare what both say."""
    return headwater, apache


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    """A raw connection to the broker of this run."""
    with Wire(broker.bootstrap) as connection:
        yield connection
