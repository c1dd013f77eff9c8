"""Cleaning holds nobody up: its long pieces run beside the event loop and without the interpreter's lock.

How much longer a Produce takes meanwhile is measured by bench/cleaning_latency.py; here only what cannot depend on how
busy a machine is.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path

from conformance.actions import SET, alter_incrementally, create_topic, produce_ok
from conformance.batches import Record, batch
from conformance.wire import Wire
from headwater.log.cleaning.offset_map import OffsetMap
from headwater.protocol.records import encode_batch, scan_headers
from log_life_data import cleaned_up_to, put_in, write_changes
from peers.headwater import HeadwaterProcess

TURNS = 5
TRIES = 10


def turns_of_another_thread_during(work: Callable[[], object]) -> int:
    """How often another thread that sleeps and wakes comes to run while `work` does; none if that keeps the lock."""
    turns, ended = [0], threading.Event()

    def take_turns() -> None:
        while not ended.is_set():
            turns[0] += 1
            time.sleep(0.0005)

    other = threading.Thread(target=take_turns)
    other.start()
    try:
        before = turns[0]
        work()
        return turns[0] - before
    finally:
        ended.set()
        other.join()


def test_other_threads_run_while_keys_are_mapped_and_records_filtered() -> None:
    one = encode_batch([(b"key-%d" % number, bytes(20), (), 0) for number in range(20_000)])
    chunk = memoryview(bytes(one) * 100)
    headers = scan_headers(chunk, 0, len(chunk))
    keys = OffsetMap(slots=30_000, limit=30_000, secret=bytes(16))
    nobody, verdicts = bytearray(len(headers)), bytearray(len(headers))
    assert (
        max(turns_of_another_thread_during(lambda: keys.add(chunk, headers, nobody, 0)) for _ in range(TRIES)) > TURNS
    )
    found = [turns_of_another_thread_during(lambda: keys.filter(chunk, headers, verdicts[:], 0)) for _ in range(TRIES)]
    assert max(found) > TURNS


def test_a_broker_answers_all_the_time_while_it_cleans(tmp_path: Path) -> None:
    prepared = write_changes(tmp_path / "prepared", size_bytes=150_000_000, compression=0)
    with HeadwaterProcess(tmp_path / "broker", {"log.cleaner.backoff.ms": "10"}) as broker:
        with Wire(broker.bootstrap) as wire:
            topic = create_topic(wire, configs={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1"})
        broker.stop()
        put_in(prepared, broker.data_dir / f"{topic.name}-0")
        broker.start()
        answers = 0
        with Wire(broker.bootstrap) as wire:
            alter_incrementally(wire, topic.name, ("min.cleanable.dirty.ratio", SET, "0"))
            while cleaned_up_to(broker.data_dir, topic.name) < prepared.active_offset:
                produce_ok(wire, topic, batch(Record(key=b"k", value=b"v")))
                answers += 1
    # It has two segments to clean, in ten steps or so: a loop that waited for these would answer once for each.
    assert answers > 40
