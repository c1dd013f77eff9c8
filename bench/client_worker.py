"""One client under one load in a process of its own: rate and peak memory are that client's alone.

Started by `clients.py` with a JSON task as its only argument; prints a JSON result as its last line. All producers get
the same settings as far as they have them, all consumers read the same log, and every value is looked at.
"""

import asyncio
import json
import sys
import time
import warnings
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

LINGER_MS = 20
BATCH_BYTES = 256 * 1024
BUFFER_BYTES = 64 * 1024 * 1024
RECORDS_A_POLL = 500
ROWS_A_TABLE = 100_000
PATIENCE_S = 60.0

OURS_IN: dict[str, Any] = {"linger_ms": LINGER_MS, "batch_size": BATCH_BYTES, "buffer_memory": BUFFER_BYTES}
OURS_OUT: dict[str, Any] = {"max_poll_records": RECORDS_A_POLL, "auto_offset_reset": "earliest"}


class Clock:
    """Times what comes after the first records: connecting is not part of it."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._first = 0
        self._records = 0
        self._began_s = 0.0
        self._seen_s = time.perf_counter()

    def saw(self, records: int) -> bool:
        """Notes records; False once all have come."""
        now_s = time.perf_counter()
        if records:
            self._seen_s = now_s
            if not self._records:
                self._first, self._began_s = records, now_s
            self._records += records
        elif now_s - self._seen_s > PATIENCE_S:
            raise TimeoutError(f"{self._records:,} of {self._wanted:,} records came, then none for {PATIENCE_S:.0f} s")
        return self._records < self._wanted

    def rate(self) -> float:
        """Records a second."""
        return (self._records - self._first) / (self._seen_s - self._began_s)


def timed(send: Callable[[], None], records: int) -> float:
    """Records a second of something that sends so many and waits until all are acknowledged."""
    began_s = time.perf_counter()
    send()
    return records / (time.perf_counter() - began_s)


def headwater_rows_in(bootstrap: str, topic: str, value: bytes, records: int) -> float:
    """`Producer.send` in a loop."""
    import headwater

    with headwater.Producer(bootstrap, **OURS_IN) as producer:
        producer.send(topic, value).result()

        def send() -> None:
            put = producer.send
            for _ in range(records):
                put(topic, value)
            producer.flush()

        return timed(send, records)


def headwater_arrow_in(bootstrap: str, topic: str, value: bytes, records: int) -> float:
    """`Producer.send_arrow` with tables of 100,000 rows."""
    import headwater

    table = _table_of(value, min(ROWS_A_TABLE, records))
    with headwater.Producer(bootstrap, **OURS_IN) as producer:
        producer.send(topic, value).result()

        def send() -> None:
            for begin in range(0, records, ROWS_A_TABLE):
                producer.send_arrow(topic, table.slice(0, records - begin), value="value")
            producer.flush()

        return timed(send, records)


def _table_of(value: bytes, rows: int) -> Any:
    """A table of this value, in no more memory than it needs: what counts is the producer's."""
    import pyarrow

    ends = array("i", range(0, (rows + 1) * len(value), len(value)))
    buffers = [None, pyarrow.py_buffer(ends), pyarrow.py_buffer(value * rows)]
    return pyarrow.table({"value": pyarrow.Array.from_buffers(pyarrow.binary(), rows, buffers, 0)})


def confluent_rows_in(bootstrap: str, topic: str, value: bytes, records: int) -> float:
    """confluent-kafka's `produce` in a loop; where its queue is full it polls, as its documentation says."""
    from confluent_kafka import Producer

    settings = {
        "bootstrap.servers": bootstrap,
        "linger.ms": LINGER_MS,
        "batch.size": BATCH_BYTES,
        "queue.buffering.max.kbytes": BUFFER_BYTES // 1024,
        "queue.buffering.max.messages": 10_000_000,
        "enable.idempotence": True,
    }
    producer = Producer(settings)
    producer.produce(topic, value)
    producer.flush()

    def send() -> None:
        put = producer.produce
        for _ in range(records):
            while True:
                try:
                    put(topic, value)
                    break
                except BufferError:
                    producer.poll(0.01)
        producer.flush()

    return timed(send, records)


def kafka_python_rows_in(bootstrap: str, topic: str, value: bytes, records: int) -> float:
    """kafka-python's `send` in a loop."""
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        linger_ms=LINGER_MS,
        batch_size=BATCH_BYTES,
        acks="all",
        enable_idempotence=True,
    )
    producer.send(topic, value).get(PATIENCE_S)

    def send() -> None:
        for _ in range(records):
            producer.send(topic, value)
        producer.flush()

    rate = timed(send, records)
    producer.close()
    return rate


async def headwater_aio_rows_in(bootstrap: str, topic: str, value: bytes, records: int) -> float:
    """`aio.Producer.send`, awaited in a loop."""
    from headwater import aio

    async with aio.Producer(bootstrap, **OURS_IN) as producer:
        await (await producer.send(topic, value))
        began_s = time.perf_counter()
        for _ in range(records):
            await producer.send(topic, value)
        await producer.flush()
        return records / (time.perf_counter() - began_s)


async def aiokafka_rows_in(bootstrap: str, topic: str, value: bytes, records: int) -> float:
    """aiokafka's `send`, awaited in a loop."""
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, linger_ms=LINGER_MS, max_batch_size=BATCH_BYTES, enable_idempotence=True
    )
    await producer.start()
    await producer.send_and_wait(topic, value)
    began_s = time.perf_counter()
    for _ in range(records):
        await producer.send(topic, value)
    await producer.flush()
    rate = records / (time.perf_counter() - began_s)
    await producer.stop()
    return rate


def headwater_rows_out(bootstrap: str, topic: str, records: int) -> float:
    """`Consumer.poll`."""
    import headwater

    clock = Clock(records)
    with headwater.Consumer(bootstrap, **OURS_OUT) as consumer:
        consumer.assign([headwater.TopicPartition(topic, 0)])
        while clock.saw(len([record.value for record in consumer.poll(timeout=1.0)])):
            pass
    return clock.rate()


def headwater_arrow_out(bootstrap: str, topic: str, records: int) -> float:
    """`Consumer.poll_arrow`."""
    import headwater

    clock = Clock(records)
    with headwater.Consumer(bootstrap, **OURS_OUT) as consumer:
        consumer.assign([headwater.TopicPartition(topic, 0)])
        while clock.saw(len(consumer.poll_arrow(timeout=1.0)["value"])):
            pass
    return clock.rate()


def confluent_rows_out(bootstrap: str, topic: str, records: int) -> float:
    """confluent-kafka's `consume`, which is faster than its `poll`, with settings that let it read ahead."""
    # By default it rests for a second whenever 100,000 records wait: at 100 B that is most of the time.
    return _confluent_out(bootstrap, topic, records, {"queued.min.messages": 1_000_000, "fetch.queue.backoff.ms": 1})


def confluent_default_rows_out(bootstrap: str, topic: str, records: int) -> float:
    """The same with its defaults."""
    return _confluent_out(bootstrap, topic, records, {})


def _confluent_out(bootstrap: str, topic: str, records: int, tuned: dict[str, Any]) -> float:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False, **tuned})
    consumer.assign([TopicPartition(topic, 0, 0)])
    clock = Clock(records)
    while clock.saw(len([message.value() for message in consumer.consume(RECORDS_A_POLL, 1.0)])):
        pass
    consumer.close()
    return clock.rate()


def kafka_python_rows_out(bootstrap: str, topic: str, records: int) -> float:
    """kafka-python's `poll`."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False)
    consumer.assign([TopicPartition(topic, 0)])
    clock = Clock(records)
    while clock.saw(_values(consumer.poll(1000, max_records=RECORDS_A_POLL))):
        pass
    consumer.close()
    return clock.rate()


async def headwater_aio_rows_out(bootstrap: str, topic: str, records: int) -> float:
    """`aio.Consumer.poll`."""
    from headwater import TopicPartition, aio

    clock = Clock(records)
    async with aio.Consumer(bootstrap, **OURS_OUT) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        while clock.saw(len([record.value for record in await consumer.poll(1.0)])):
            pass
    return clock.rate()


async def aiokafka_rows_out(bootstrap: str, topic: str, records: int) -> float:
    """aiokafka's `getmany`."""
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False)
    await consumer.start()
    consumer.assign([TopicPartition(topic, 0)])
    clock = Clock(records)
    while clock.saw(_values(await consumer.getmany(timeout_ms=1000, max_records=RECORDS_A_POLL))):
        pass
    await consumer.stop()
    return clock.rate()


def _values(batches: dict[Any, list[Any]]) -> int:
    return sum(len([record.value for record in records]) for records in batches.values())


LOADS: dict[str, Callable[..., Any]] = {
    load.__name__: load
    for load in (
        headwater_rows_in,
        headwater_arrow_in,
        headwater_aio_rows_in,
        headwater_rows_out,
        headwater_arrow_out,
        headwater_aio_rows_out,
        confluent_rows_in,
        confluent_rows_out,
        confluent_default_rows_out,
        kafka_python_rows_in,
        kafka_python_rows_out,
        aiokafka_rows_in,
        aiokafka_rows_out,
    )
}


def main() -> None:
    """Runs the task and prints rate and memory."""
    # kio would import it, at the price of a third of a second and memory that is none of the client's.
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    warnings.simplefilter("ignore")
    task: dict[str, Any] = json.loads(sys.argv[1])
    load = LOADS[task.pop("load")]
    value_bytes = task.pop("value_bytes")
    if load.__name__.endswith("_in"):
        task["value"] = bytes(range(256))[:100] * (value_bytes // 100) + bytes(value_bytes % 100)
    if asyncio.iscoroutinefunction(load):
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            rate = runner.run(load(**task))
    else:
        rate = load(**task)
    print(json.dumps({"rate": rate, "peak_mb": peak_memory_bytes() / 1e6}))


def peak_memory_bytes() -> int:
    """The largest resident set so far. Not getrusage's, which outlives exec and so is never below the parent's."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("this kernel does not tell the largest resident set")


if __name__ == "__main__":
    main()
