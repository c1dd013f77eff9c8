"""A broker with two log dirs, one of which can be made to fail."""

import errno
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kio.schema.errors import ErrorCode

from conformance.actions import (
    Topic,
    create_topic,
    describe_topic,
    produce,
    produce_ok,
)
from conformance.batches import batch
from conformance.wire import Wire
from headwater.testing import FaultyFileSystem, LocalBroker

OFFLINE = ErrorCode.kafka_storage_error
ALWAYS = 1_000_000
SETTINGS = {"offsets.topic.num.partitions": 2, "transaction.state.log.num.partitions": 2}


@dataclass(frozen=True)
class Place:
    """A broker with two log dirs on a file system that can be made to fail, and a topic with a partition in each."""

    folder: Path
    fs: FaultyFileSystem
    wire: Wire
    topic: Topic
    good: int
    bad: int

    def break_dir(self, name: str = "b") -> None:
        """Nothing in the dir can be written any more."""
        self.fs.fail(None, errno.EIO, path_part=f"/{name}/", times=ALWAYS)

    def fail_dir(self) -> None:
        """Lets the broker notice that the dir of the bad partition is broken."""
        self.break_dir()
        assert produce(self.wire, self.topic, batch(b"lost"), partition=self.bad).error_code is OFFLINE


def dirs_of(folder: Path) -> str:
    return f"{folder}/a,{folder}/b"


def folders(log_dir: Path) -> set[str]:
    return {path.name for path in log_dir.iterdir() if path.is_dir()}


@contextmanager
def two_dirs(
    folder: Path, settings: Mapping[str, str | int] | None = None, configs: Mapping[str, str] | None = None
) -> Iterator[Place]:
    fs = FaultyFileSystem(str(folder))
    config = {"log.dirs": dirs_of(folder), **SETTINGS, **(settings or {})}
    with LocalBroker(config=config, fs=fs) as broker, Wire(broker.bootstrap) as wire:
        topic = create_topic(wire, name="orders", partitions=2, configs=configs)
        for partition in (0, 1):
            for value in (b"1", b"2", b"3"):
                produce_ok(wire, topic, batch(value), partition=partition)
        good, bad = (0, 1) if "orders-0" in folders(folder / "a") else (1, 0)
        yield Place(folder, fs, wire, topic, good, bad)


def is_offline(wire: Wire, topic: Topic, partition: int) -> bool:
    found = {part.partition_index: part for part in describe_topic(wire, topic.name).partitions}[partition]
    return bool(found.leader_id == -1)
