"""A broker that comes back with another history than the one that was read: noticed, and nothing of it is skipped."""

import asyncio
import shutil
from pathlib import Path

import confluent_kafka
import pytest

from headwater.client.consumer.consumer import Consumer
from headwater.client.consumer.errors import LogTruncatedError
from headwater.types import TopicPartition
from peers.headwater import HeadwaterProcess

PATIENCE_S = 25


@pytest.mark.parametrize("policy", ["earliest", "none"])
def test_another_history_than_the_one_that_was_read_is_noticed(tmp_path: Path, policy: str) -> None:
    """A leader without our last 50 records took over and wrote 80 others: those must not be skipped over."""
    place, settings = TopicPartition("cut", 0), {"num.partitions": "1", "auto.create.topics.enable": "true"}
    broker = HeadwaterProcess(tmp_path / "broker", settings)

    def replace_the_history() -> None:
        broker.kill()
        shutil.rmtree(broker.data_dir)
        shutil.copytree(tmp_path / "copy", broker.data_dir)
        other = HeadwaterProcess(tmp_path / "other", settings, data_dir=broker.data_dir)
        # Each start after a kill is a new leader epoch; two make it newer than that of the history that goes.
        other.start()
        other.kill()
        with other:
            write(other.bootstrap, place.topic, range(1000, 1080))
        broker.start()

    async def read() -> list[bytes]:
        values: list[bytes] = []
        async with (
            asyncio.timeout(PATIENCE_S),
            Consumer(broker.bootstrap, auto_offset_reset=policy, fetch_max_wait_ms=50) as consumer,
        ):
            consumer.assign([place])
            consumer.seek(place, 0)
            while len(values) < 150:
                values += [record.value for record in await consumer.poll(1.0)]
            await asyncio.to_thread(replace_the_history)
            while not values or values[-1] != b"1079":
                try:
                    values += [record.value for record in await consumer.poll(1.0)]
                except LogTruncatedError as error:
                    values.append(b"cut from %d to %d" % (error.offset, error.diverged_offset or 0))
                    consumer.seek(place, error.diverged_offset or 0)
        return values

    with broker:
        write(broker.bootstrap, place.topic, range(100))
        broker.kill()
        shutil.copytree(broker.data_dir, tmp_path / "copy")
        broker.start()
        write(broker.bootstrap, place.topic, range(100, 150))
        values = asyncio.run(read())
    told = [b"cut from 150 to 100"] if policy == "none" else []
    assert values == [*numbers(range(150)), *told, *numbers(range(1000, 1080))]


def write(bootstrap: str, topic: str, values: range) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for value in numbers(values):
        producer.produce(topic, value)
    assert producer.flush(20) == 0


def numbers(values: range) -> list[bytes]:
    return [b"%d" % value for value in values]
