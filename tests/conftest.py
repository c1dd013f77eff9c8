"""What all tests share: the peers, each started once and only for tests that ask for it."""

from collections.abc import Iterator

import pytest

from peers.apache import QUICK_START, ApacheKafka
from peers.headwater import HeadwaterProcess
from peers.presence import require_apache

# Both brokers get these, so that a case may rely on them.
SHARED_SETTINGS = {
    "node.id": "1",
    "auto.create.topics.enable": "true",
    "num.partitions": "2",
    # Groups are spread over several coordinators, form at once and notice soon what happens to their members.
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.max.size": "10",
    "group.consumer.max.size": "10",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "1000",
    # The same for transactions: one that has timed out is aborted within a blink.
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}

# Warnings of clients about their own code, which no change of ours can silence.
FOREIGN_WARNINGS = (
    "ignore:(read_text|contents|open_text) is deprecated:DeprecationWarning",  # kafka-python, at import
)


def pytest_configure(config: pytest.Config) -> None:
    for line in FOREIGN_WARNINGS:
        config.addinivalue_line("filterwarnings", line)


@pytest.fixture(scope="session")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """Apache Kafka, one for the whole run: use topic names of your own."""
    require_apache()
    folder = tmp_path_factory.mktemp("apache")
    with ApacheKafka(folder, SHARED_SETTINGS, jvm_options=QUICK_START) as broker:
        yield broker


@pytest.fixture(scope="session")
def headwater(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadwaterProcess]:
    """headwater as a process, one for the whole run: use topic names of your own."""
    with HeadwaterProcess(tmp_path_factory.mktemp("headwater"), SHARED_SETTINGS) as broker:
        yield broker
