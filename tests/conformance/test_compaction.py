"""What Apache's cleaner leaves of a log, ours leaves too: the same records, batches and segments, at the same offsets.

Random histories of keys, tombstones and transactions are written to Apache. Before each of its cleanings the folder is
copied, and our cleaner cleans the copy.
"""

import random
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer

from headwater.config import BrokerConfig, TopicConfig
from headwater.log.checkpoints import CLEANER_OFFSETS, read_offsets
from headwater.log.cleaning.cleanable import find_cleanable
from headwater.log.cleaning.cleaner import CleanerLimits, clean
from headwater.log.filesystem import FileSystem
from headwater.log.log import Log
from headwater.log.throttle import Throttle
from headwater.protocol.records import Record, decode_records, scan_headers
from headwater.types import TopicPartition
from peers.apache import QUICK_START, ApacheKafka
from peers.presence import require_apache

from .actions import LATEST, SET, Topic, alter_incrementally, create_topic, eventually, list_offset, wait_for_config
from .wire import Wire

pytestmark = pytest.mark.peer

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KEYS = [f"key-{number}".encode() for number in range(12)]
SEGMENT_BYTES = "1500"
ROUNDS = 3


@pytest.fixture(scope="module")
def eager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """Apache with a cleaner that looks for work all the time."""
    require_apache()
    settings = {"log.cleaner.backoff.ms": "50", "log.cleaner.dedupe.buffer.size": "2097152"}
    with ApacheKafka(tmp_path_factory.mktemp("eager"), settings, jvm_options=QUICK_START) as broker:
        yield broker


class WrittenBatch(NamedTuple):
    """Everything about a batch but how it is encoded."""

    offsets: tuple[int, int]
    producer: tuple[int, int, int]
    flags: tuple[bool, bool, bool]
    codec: int
    leader_epoch: int
    max_timestamp_ms: int
    records: list[Record]


def content(folder: Path) -> dict[str, list[WrittenBatch]]:
    """The batches of each segment, by the segment's name."""
    return {file.name: batches_of(file.read_bytes()) for file in sorted(folder.glob("*.log"))}


def batches_of(data: bytes) -> list[WrittenBatch]:
    return [
        WrittenBatch(
            offsets=(header.base_offset, header.last_offset),
            producer=(header.producer_id, header.producer_epoch, header.base_sequence),
            flags=(header.is_control, header.is_transactional, header.delete_horizon_ms is not None),
            codec=header.compression,
            leader_epoch=header.leader_epoch,
            max_timestamp_ms=header.max_timestamp_ms,
            records=decode_records(data, header),
        )
        for header in scan_headers(data, 0, len(data))
    ]


def aborted_transactions(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.glob("*.txnindex") if file.stat().st_size}


class History:
    """Writes at random, by producers with and without transactions, whose batches mix."""

    def __init__(self, bootstrap: str, topic: Topic, seed: int) -> None:
        self._chance = random.Random(seed)
        self._topic = topic.name
        self._plain = [self._producer(bootstrap, {"enable.idempotence": idempotent}) for idempotent in (False, True)]
        self._transactional = [
            self._producer(bootstrap, {"transactional.id": f"{topic.name}-{number}"}) for number in range(3)
        ]
        for producer in self._transactional:
            producer.init_transactions(30)

    def _producer(self, bootstrap: str, settings: dict[str, object]) -> Producer:
        codec = self._chance.choice(CODECS)
        common = {"bootstrap.servers": bootstrap, "linger.ms": 1, "log_level": 0, "compression.type": codec}
        return Producer({**common, **settings})

    def write(self, batches: int) -> None:
        """So many batches; in the end no transaction is open."""
        chance, begun = self._chance, set[Producer]()
        for _ in range(batches):
            producer = chance.choice([*self._plain, *self._transactional])
            if producer in self._transactional and producer not in begun:
                producer.begin_transaction()
                begun.add(producer)
            for _ in range(chance.randint(1, 5)):
                value = None if chance.random() < 0.25 else bytes([chance.randrange(256)]) * chance.randrange(120)
                producer.produce(self._topic, value, key=chance.choice(KEYS), partition=0)
            assert producer.flush(30) == 0
            if producer in begun and chance.random() < 0.5:
                self._end(producer)
                begun.discard(producer)
        for producer in begun:
            self._end(producer)

    def _end(self, producer: Producer) -> None:
        if self._chance.random() < 0.5:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)


def wait_for_markers(wire: Wire, topic: Topic) -> None:
    """The markers of a transaction are written after its producer has heard that it ended."""
    eventually(
        lambda: (
            list_offset(wire, topic, LATEST, isolation_level=1).offset
            == list_offset(wire, topic, LATEST, isolation_level=0).offset
        ),
        "the end of all transactions",
    )


def active_segment(folder: Path) -> int:
    return max(int(file.stem) for file in folder.glob("*.log"))


def clean_by_apache(broker: ApacheKafka, wire: Wire, topic: Topic, folder: Path) -> None:
    """Lets Apache's cleaner come to the topic, and holds it off again."""
    up_to, partition = active_segment(folder), TopicPartition(topic.name, 0)
    set_policy(wire, topic, "compact")
    eventually(lambda: cleaned_offsets(broker).get(partition) == up_to, f"cleaning up to {up_to}")
    set_policy(wire, topic, "delete")


def cleaned_offsets(broker: ApacheKafka) -> dict[TopicPartition, int]:
    checkpoint = broker.data_dir / CLEANER_OFFSETS
    # Apache makes an empty one at its first start.
    return read_offsets(FileSystem(), str(checkpoint)) if checkpoint.stat().st_size else {}


def set_policy(wire: Wire, topic: Topic, policy: str) -> None:
    alter_incrementally(wire, topic.name, ("cleanup.policy", SET, policy))
    wait_for_config(wire, topic.name, "cleanup.policy", policy)


def clean_by_us(folder: Path, configs: dict[str, str], first_dirty: int, now_ms: int) -> None:
    config = TopicConfig.from_values({**configs, "cleanup.policy": "compact"}, BrokerConfig.from_values({}))
    log = Log.open(FileSystem(), str(folder), config=config, now_ms=now_ms)
    log.cleaned_until = first_dirty
    cleanable = find_cleanable(log, stable_offset=log.last_stable_offset, now_ms=now_ms)
    assert cleanable is not None
    stopped = threading.Event()
    limits = CleanerLimits(
        map_bytes=1 << 20,
        map_load=0.9,
        chunk_bytes=1 << 17,
        throttle=Throttle(lambda: 1e12, stopped),
        stopped=stopped,
    )
    clean(log, cleanable, limits, now_ms=now_ms)
    log.close()


@pytest.mark.parametrize("seed", range(4))
def test_random_histories_come_out_the_same(eager: ApacheKafka, tmp_path: Path, seed: int) -> None:
    configs = {
        "internal.segment.bytes": SEGMENT_BYTES,
        "min.cleanable.dirty.ratio": "0",
        # Either the second cleaning removes what the first has marked, or nothing is ever old enough.
        "delete.retention.ms": str([0, 86_400_000][seed % 2]),
        "retention.ms": "-1",
    }
    with Wire(eager.bootstrap) as wire:
        topic = create_topic(wire, configs={**configs, "cleanup.policy": "delete"})
        folder = eager.data_dir / f"{topic.name}-0"
        history = History(eager.bootstrap, topic, seed)
        first_dirty = 0
        for number in range(ROUNDS):
            history.write(50)
            wait_for_markers(wire, topic)
            copy = tmp_path / str(number) / f"{topic.name}-0"
            shutil.copytree(folder, copy)
            clean_by_apache(eager, wire, topic, folder)
            clean_by_us(copy, configs, first_dirty, int(time.time() * 1000))
            first_dirty = active_segment(folder)
            assert content(copy) == content(folder)
            assert aborted_transactions(copy) == aborted_transactions(folder)
