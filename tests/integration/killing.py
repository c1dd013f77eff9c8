"""A broker under load that is killed again and again, and what must hold of its data each time: for tests and soak.

The n-th record for a partition is always the same, and one idempotent producer with several requests in flight sends
them. So nothing is lost, doubled or out of order as long as the record with offset n is the n-th.
"""

import contextlib
import os
import random
import shutil
import signal
import threading
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import confluent_kafka
from confluent_kafka import OFFSET_INVALID
from kio.schema.errors import ErrorCode

from conformance.actions import EARLIEST, Topic, create_topic, eventually, fetch, list_offsets
from conformance.batches import read_batches, read_records
from conformance.raw_groups import committed, offsets_to_commit, wait_for_group_coordinator
from conformance.wire import Wire
from headwater.broker.services.storage import Storage
from headwater.config import BrokerConfig
from headwater.log.filesystem import FileSystem
from headwater.log.inspection.verify import Verification
from integration.cli_runner import Cli
from integration.copying_group import IMPATIENT
from peers.headwater import HeadwaterProcess
from peers.readiness import BrokerNotReadyError

PARTITIONS = 2
KEYS = 40
GROUP = "reader"
LONGEST_START_S = 15
MOST_UNACKNOWLEDGED = 3000
# Everything that happens in the background happens all the time.
SETTINGS = {
    "log.flush.offset.checkpoint.interval.ms": "150",
    "log.flush.scheduler.interval.ms": "20",
    "log.retention.check.interval.ms": "100",
    "log.cleaner.backoff.ms": "20",
    "offsets.topic.num.partitions": "1",
    "num.recovery.threads.per.data.dir": "2",
}
_SMALL = {"internal.segment.bytes": "65536", "index.interval.bytes": "1024", "file.delete.delay.ms": "100"}
_COMPACTED = {**_SMALL, "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "100"}
TOPICS = {
    "kept": {**_SMALL, "flush.messages": "1"},
    "retained": {**_SMALL, "retention.bytes": "200000", "flush.ms": "20"},
    "compacted": {**_COMPACTED, "cleanup.policy": "compact", "flush.messages": "1"},
    "both": {**_COMPACTED, "cleanup.policy": "compact,delete", "retention.bytes": "150000", "flush.ms": "20"},
}


def record(number: int) -> tuple[bytes, bytes | None]:
    """Key and value of a record; every tenth is a tombstone."""
    text = b"%d" % number
    return b"%d" % (zlib.crc32(text) % KEYS), text + bytes(number * 37 % 300) if number % 10 else None


@dataclass(slots=True)
class Lane:
    """One partition: what was sent, what was acknowledged, and what was seen in it."""

    topic: Topic
    partition: int
    compacts: bool
    sent: int = 0
    acknowledged: int = 0
    start: int = 0
    checked: int = 0
    newest: dict[bytes, int] = field(default_factory=dict)

    def check(self, wire: Wire, promised: int) -> None:
        """Everything that was promised is there, and nothing but what was sent: once, in order, without a gap."""
        found: list[int] = []
        for offset, key, value in self._read(wire):
            assert (key, value) == record(offset), f"{self}: not the record that was sent"
            assert self.compacts or not found or offset == found[-1] + 1, f"{self}: a gap before {offset}"
            found.append(offset)
        assert self.checked >= promised, f"{self}: {promised} records were acknowledged"
        if self.compacts:
            lost = {number for number in self.newest.values() if number % 10 and number >= self.start} - set(found)
            assert not lost, f"{self}: the newest of their keys are gone: {sorted(lost)}"

    def _read(self, wire: Wire) -> Iterator[tuple[int, bytes | None, bytes | None]]:
        self._find_start(wire)
        offset = self.start if self.compacts else max(self.checked, self.start)
        while True:
            answer = fetch(wire, self.topic, offset, partition=self.partition)
            if answer.error_code is ErrorCode.offset_out_of_range and offset < self._find_start(wire):
                # Retention was faster.
                offset = self.start
                continue
            assert answer.error_code is ErrorCode.none, f"{self}: {answer.error_code}"
            batches = read_batches(answer.records)
            if not batches:
                break
            for each in read_records(answer.records):
                if each.offset >= offset:
                    yield each.offset, each.key, each.value
            offset = batches[-1].last_offset + 1
        for number in range(self.checked, offset):
            self.newest[record(number)[0]] = number
        assert offset >= self.checked, f"{self}: it ended at {self.checked} before"
        self.checked = offset

    def _find_start(self, wire: Wire) -> int:
        found: int = list_offsets(wire, self.topic.name, {self.partition: EARLIEST})[self.partition].offset
        assert found >= self.start, f"{self}: the start moved back to {found}"
        self.start = found
        return found


class Load:
    """A producer in a thread that never stops to send, not even while the broker is down."""

    def __init__(self, bootstrap: str, lanes: list[Lane], seed: int) -> None:
        self.problems: list[str] = []
        self._lanes = lanes
        self._chance = random.Random(seed)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "max.in.flight.requests.per.connection": 5,
                "batch.num.messages": 50,
                "linger.ms": 1,
                **IMPATIENT,
            }
        )

    @property
    def acknowledged(self) -> int:
        """How many records, all in all."""
        return sum(lane.acknowledged for lane in self._lanes)

    def _run(self) -> None:
        while not self._stopping.is_set():
            for lane in self._lanes if len(self._producer) < MOST_UNACKNOWLEDGED else ():
                for _ in range(self._chance.randrange(30)):
                    self._send(lane)
            self._producer.poll(0)
            self._stopping.wait(0.015)

    def _send(self, lane: Lane) -> None:
        number = lane.sent
        key, value = record(number)

        def on_delivery(error: Any, message: Any) -> None:
            # A repeated batch may be acknowledged without its offset.
            if error is not None or message.offset() not in (number, OFFSET_INVALID):
                self.problems.append(f"{lane}, record {number}: {error or message.offset()}")
            lane.acknowledged = max(lane.acknowledged, number + 1)

        self._producer.produce(lane.topic.name, value, key, partition=lane.partition, on_delivery=on_delivery)
        lane.sent += 1

    def wait_for(self, more: int) -> None:
        """Returns when so many more records are acknowledged."""
        target = self.acknowledged + more
        eventually(lambda: self.problems or self.acknowledged >= target, f"{more} more acknowledged records")
        assert not self.problems, self.problems[:5]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        self._stopping.set()
        self._thread.join()
        if error is None:
            assert self._producer.flush(60) == 0
            assert not self.problems, self.problems[:5]
        else:
            self._producer.purge()


class KillLoop:
    """A broker, its load, and its deaths; `seed` decides when they come."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.kills = 0
        self.starts_s: list[float] = []
        self._folder = folder
        self._chance = random.Random(seed)
        self._seed = seed
        self._broker = HeadwaterProcess(folder / "broker", SETTINGS)
        self._lanes: list[Lane] = []
        self._committed: dict[int, int] = {}

    @property
    def records(self) -> int:
        """How many were sent."""
        return sum(lane.sent for lane in self._lanes)

    def run(self, kills: int) -> None:
        """Kills it so many times, sometimes before it is up, and checks everything after each; then the end of it all.

        AssertionError when something is not as it was promised.
        """
        with self._broker:
            self._make_topics()
            with Load(self._broker.bootstrap, self._lanes, self._seed) as load:
                while self.kills < kills:
                    load.wait_for(self._chance.randrange(100, 4000))
                    promised = [lane.acknowledged for lane in self._lanes]
                    self._kill()
                    check_recovery_of_a_copy(self._broker.data_dir, self._folder / "copy")
                    if self._chance.random() < 0.3:
                        self._start_and_kill()
                    self._start()
                    self._check(promised)
            self._check([lane.sent for lane in self._lanes])
            assert self._broker.stop() == 0
        Cli(self._broker.bootstrap).ok("log", "verify", str(self._broker.data_dir))

    def _make_topics(self) -> None:
        with Wire(self._broker.bootstrap) as wire:
            for name, configs in TOPICS.items():
                topic = create_topic(wire, name=name, partitions=PARTITIONS, configs=configs)
                compacts = "compact" in configs.get("cleanup.policy", "")
                self._lanes += [Lane(topic, partition, compacts) for partition in range(PARTITIONS)]

    def _kill(self) -> None:
        self._broker.kill()
        self.kills += 1

    def _start(self) -> None:
        began_s = time.monotonic()
        self._broker.start()
        self.starts_s.append(time.monotonic() - began_s)
        assert self.starts_s[-1] < LONGEST_START_S

    def _start_and_kill(self) -> None:
        """Kills it somewhere between its first breath and its first requests."""

        def kill() -> None:
            with contextlib.suppress(AssertionError):  # there is no process yet
                os.kill(self._broker.pid, signal.SIGKILL)

        killing = threading.Timer(self._chance.uniform(0, max(self.starts_s, default=0.5)), kill)
        killing.start()
        try:
            self._broker.start()
        except BrokerNotReadyError as error:
            if f"ended with {-signal.SIGKILL}:" not in str(error):
                raise
        killing.join()
        self._kill()

    def _check(self, promised: list[int]) -> None:
        with Wire(self._broker.bootstrap) as wire:
            wait_for_group_coordinator(wire, GROUP)
            if self._committed:
                assert self._fetch_committed(wire) == self._committed
            for lane, at_least in zip(self._lanes, promised, strict=True):
                lane.check(wire, at_least)
            self._commit(wire)

    def _fetch_committed(self, wire: Wire) -> dict[int, int]:
        found = committed(wire, GROUP, self._lanes[0].topic, range(PARTITIONS))
        return {partition: entry.committed_offset for partition, entry in found.items()}

    def _commit(self, wire: Wire) -> None:
        """Notes how far the first topic was read, as a group does; each death must leave that too."""
        kept = self._lanes[:PARTITIONS]
        self._committed = {lane.partition: lane.checked for lane in kept}
        topics = offsets_to_commit(kept[0].topic, self._committed)
        (answer,) = wire.send("offset_commit", group_id=GROUP, topics=topics).topics
        assert {each.error_code for each in answer.partitions} == {ErrorCode.none}, answer


def check_recovery_of_a_copy(data: Path, copy: Path) -> None:
    """What the next start will make of a folder has no fault, neither in the records nor in what is around them."""
    shutil.copytree(data, copy)
    storage = Storage(BrokerConfig.from_values({**SETTINGS, "log.dirs": str(copy)}))
    storage.store.close()
    storage.log_dirs.abandon()
    faults = [str(fault) for fault in Verification(FileSystem(), str(copy)).faults()]
    assert not faults, faults[:5]
    shutil.rmtree(copy)
