"""The pytest plugin: `headwater_broker` is a broker for the whole test session, on a free port, with temporary data.

    def test_orders(headwater_broker):
        producer = confluent_kafka.Producer({"bootstrap.servers": headwater_broker.bootstrap})

Topics are created when first used. Override the fixture `headwater_broker_config` for other settings.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from headwater.broker.local import LocalBroker


@pytest.fixture(scope="session")
def headwater_broker_config() -> Mapping[str, str | int | bool | float]:
    """Settings of the session's broker, by Kafka's names; none of your own by default."""
    return {}


@pytest.fixture(scope="session")
def headwater_broker(
    headwater_broker_config: Mapping[str, str | int | bool | float],
) -> "Iterator[LocalBroker]":
    """A running broker; `headwater_broker.bootstrap` is its address."""
    from headwater.broker.local import LocalBroker

    with LocalBroker(config=headwater_broker_config) as broker:
        yield broker
