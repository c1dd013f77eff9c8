"""The metadata journal of a running broker stays short, and what it must not forget stays in it."""

import asyncio
import errno
from pathlib import Path

from headwater.broker.broker import Broker
from headwater.cluster.changes import ProducerIdsReserved
from headwater.cluster.embedded import FILE_NAME
from headwater.config import BrokerConfig
from headwater.testing import FaultyFileSystem


def config(*dirs: Path) -> BrokerConfig:
    return BrokerConfig.from_values(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": ",".join(map(str, dirs)),
            "log.segment.delete.delay.ms": 60_000,
        }
    )


def lines(folder: Path) -> list[str]:
    return (folder / FILE_NAME).read_text().splitlines()


async def fill(broker: Broker) -> None:
    """A topic that stays, one that goes, and what makes the journal worth rewriting."""
    await broker.topics.create("kept", 2, {"retention.ms": "5000"})
    gone = await broker.topics.create("gone", 2, {})
    await broker.topics.delete(gone)
    many = [ProducerIdsReserved(next_producer_id=number) for number in range(1000)]
    await asyncio.to_thread(broker.failures.journal.append, *many)


def test_it_is_rewritten_while_the_broker_runs(tmp_path: Path) -> None:
    async def run() -> None:
        broker = Broker(config(tmp_path))
        await broker.start()
        try:
            await fill(broker)
            async with asyncio.timeout(20):
                while len(lines(tmp_path)) > 100:
                    await asyncio.sleep(0.05)
            assert not [line for line in lines(tmp_path) if "topic-deleted" in line]
            await broker.topics.create("later", 1, {})
        finally:
            await broker.stop()
        again = Broker(config(tmp_path))
        await again.start()
        try:
            assert {"kept", "later"} == set(again.topics.by_name)
            assert again.topics.by_name["kept"].overrides == {"retention.ms": "5000"}
        finally:
            await again.stop()

    asyncio.run(run())


def test_it_is_left_alone_while_a_log_dir_is_offline(tmp_path: Path) -> None:
    async def run() -> None:
        first, second = tmp_path / "a", tmp_path / "b"
        broker = Broker(config(first, second))
        await broker.start()
        try:
            await fill(broker)
            broker.log_dirs.dirs[1].failed = "taken away"
            before = lines(first)
            await asyncio.to_thread(broker.failures.journal.compact, broker.log_dirs)
            assert lines(first) == before
            broker.log_dirs.dirs[1].failed = None
            await asyncio.to_thread(broker.failures.journal.compact, broker.log_dirs)
            assert len(lines(first)) < 10
        finally:
            await broker.stop()

    asyncio.run(run())


def test_a_topic_whose_folders_may_come_back_is_not_forgotten(tmp_path: Path) -> None:
    async def run() -> None:
        fs = FaultyFileSystem(str(tmp_path))
        broker = Broker(config(tmp_path), fs=fs)
        await broker.start()
        try:
            topic = await broker.topics.create("gone", 1, {})
            fs.fail("rename", errno.ENOSPC, path_part="gone-0")
            await broker.topics.delete(topic)
            many = [ProducerIdsReserved(next_producer_id=number) for number in range(1200)]
            await asyncio.to_thread(broker.failures.journal.append, *many)
            await asyncio.to_thread(broker.failures.journal.compact, broker.log_dirs)
            assert len(lines(tmp_path)) < 10
            assert [line for line in lines(tmp_path) if str(topic.topic_id) in line]
        finally:
            await broker.stop()

    asyncio.run(run())
