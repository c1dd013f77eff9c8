"""What all tests share: the peers, each started once and only for tests that ask for it."""

import faulthandler
import os
import signal
from collections.abc import Generator, Iterator

import pytest
from hypothesis import settings

from peers.apache import QUICK_START, ApacheKafka
from peers.headwater import HeadwaterProcess
from peers.presence import require_apache

# Both brokers get these, so that a case may rely on them.
SHARED_SETTINGS = {
    "node.id": "1",
    "auto.create.topics.enable": "true",
    "num.partitions": "2",
    # Records of tests are as old as they like: retention must not come in the middle of one.
    "log.retention.check.interval.ms": "86400000",
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


# A run finds what the run before it found; FRESH=1 looks further.
settings.register_profile("same", derandomize=True, print_blob=True)
if not os.environ.get("FRESH"):
    settings.load_profile("same")

# The limit of a test ends with the test: what hangs behind it, in the end of a fixture, has only this one.
LONGEST_S = 700
# Where the run itself is told of; pytest makes a file of descriptor 2 while a test runs.
TOLD = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    for line in FOREIGN_WARNINGS:
        config.addinivalue_line("filterwarnings", line)
    config.stash[TOLD] = os.dup(2)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # So a shell starts what is to run in its background, and tests of Ctrl-C would wait in vain.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Workers leave that to who gathers what they report.
    if "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(TellingFailures(config.stash[TOLD]))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A worker that hangs shows where and ends; the test has failed, and the run is over soon."""
    watch(item.config)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """pytest ends every such watch when a test fails; fixtures have yet to end."""
    watch(node.config)


def watch(config: pytest.Config) -> None:
    faulthandler.dump_traceback_later(LONGEST_S, exit=True, file=config.stash[TOLD])


class TellingFailures:
    """A failure is told at once: a run that is cut short has said what it knew."""

    def __init__(self, told: int) -> None:
        self._told = told

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            words = f"\n{report.nodeid} failed in its {report.when}:\n{report.longreprtext}\n"
            os.write(self._told, words.encode())


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
