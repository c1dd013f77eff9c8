"""How long a Produce takes while the log cleaner works, against a broker at rest: the answer is printed as JSON.

    .venv/bin/python bench/cleaning_latency.py                   seven cleanings of 1 GB each
    .venv/bin/python bench/cleaning_latency.py --megabytes 200   less

One record after the other is sent at a fixed pace, in turn to a topic that is not cleaned and to the very partition
that is. Windows at rest and windows of cleaning alternate, each cleaning as long as its log needs. What counts is the
ratio.
"""

import argparse
import gc
import json
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from confluent_kafka.cimpl import NewTopic

import wire
from headwater.protocol.records import encode_batch
from log_life_data import cleaned_up_to, put_in, write_changes
from log_life_shapes import begin_cleaning
from servers import Headwater, Running
from shapes import admin, settle

RATIO = "min.cleanable.dirty.ratio"
RATE_PER_S = 1000
OTHER_TOPIC = "other"
_LOOK_EVERY = 50


class Pace:
    """Sends a record every so often and times the answers.

    A request that has to wait for the one before counts from the moment when it was due: a broker that stalls must not
    stop the clock. Our own late waking does not count.
    """

    def __init__(self, port: int) -> None:
        self._connection = socket.create_connection(("127.0.0.1", port))
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def run(self, topics: list[str], is_over: Callable[[], bool]) -> dict[str, list[float]]:
        """The times of answers in milliseconds, by topic."""
        batch = bytes(encode_batch([(b"key", bytes(100), (), int(time.time() * 1000))]))
        requests = [wire.produce_request(topic, 0, batch) for topic in topics]
        times_ms: dict[str, list[float]] = {topic: [] for topic in topics}
        due_s = answered_s = time.perf_counter()
        number = 0
        while number % _LOOK_EVERY or not is_over():
            due_s += 1 / RATE_PER_S
            if answered_s < due_s:
                time.sleep(max(due_s - time.perf_counter(), 0))
            began_s = time.perf_counter() if answered_s < due_s else due_s
            slot = number % len(topics)
            self._connection.sendall(requests[slot])
            answer = wire.read_frame(self._connection)
            answered_s = time.perf_counter()
            position = wire.produce_error_position(topics[slot]) - 4
            if answer[position : position + 2] != b"\0\0":
                raise ConnectionError(f"a record for {topics[slot]} was refused: {answer!r}")
            times_ms[topics[slot]].append((answered_s - began_s) * 1000)
            number += 1
        return times_ms


def prepare(data: Path, work: Path, *, cleanings: int, megabytes: int) -> tuple[Running, list[str]]:
    """A broker with so many topics that wait to be cleaned, each with the same log."""
    settings = {"log.cleaner.backoff.ms": 50}
    print(f"writing a log of {megabytes} MB", file=sys.stderr)
    log = write_changes(work, size_bytes=megabytes * 1_000_000, compression=0)
    topics = [f"cleaned-{number}" for number in range(cleanings)]
    broker = Headwater(settings=settings).start(data)
    broker.wait_until_it_answers()
    client = admin(broker)
    never = {"cleanup.policy": "compact", RATIO: "1"}
    new = [NewTopic(topic, num_partitions=1, replication_factor=1, config=never) for topic in topics]
    settle(broker, client.create_topics([*new, NewTopic(OTHER_TOPIC, num_partitions=1, replication_factor=1)]))
    broker.stop()
    for topic in topics:
        put_in(log, data / f"{topic}-0")
    broker = Headwater(settings=settings).start(data)
    broker.wait_until_it_answers()
    return broker, topics


def measure(broker: Running, topics: list[str], megabytes: int, idle_s: float) -> dict[str, object]:
    """Windows in turn; the figures of both kinds and their ratios."""
    pace = Pace(broker.port)
    idle, cleaning, rates = [], [], []
    for topic in topics:
        ends_s = time.perf_counter() + idle_s
        idle.append(pace.run([OTHER_TOPIC, topic], partial(_is_past, ends_s)))
        begin_cleaning(broker, topic)
        began_s = time.perf_counter()
        cleaning.append(pace.run([OTHER_TOPIC, topic], partial(_is_cleaned, broker, topic)))
        rates.append(megabytes / (time.perf_counter() - began_s))
        print(f"{topic}: idle {figures(idle[-1])}, cleaning {figures(cleaning[-1])}", file=sys.stderr)
    quiet, busy = ([figures(window)["p99_ms"] for window in kind] for kind in (idle, cleaning))
    return {
        "requests_per_s": RATE_PER_S,
        "cleaned_mb_per_s": round(statistics.median(rates), 1),
        "idle": figures(*idle),
        "cleaning": figures(*cleaning),
        "idle_p99_ms_by_window": quiet,
        "cleaning_p99_ms_by_window": busy,
        # Of the windows' figures the middle ones: whatever else runs on the machine hits some windows and not others.
        "p99_ratio": round(statistics.median(busy) / statistics.median(quiet), 2),
    }


def _is_past(time_s: float) -> bool:
    return time.perf_counter() > time_s


def _is_cleaned(broker: Running, topic: str) -> bool:
    return cleaned_up_to(broker.data, topic) > 0


def figures(*windows: dict[str, list[float]]) -> dict[str, float]:
    """How long the answers of some windows took."""
    ordered = sorted(time_ms for window in windows for times_ms in window.values() for time_ms in times_ms)
    return {
        "requests": len(ordered),
        "p50_ms": round(ordered[len(ordered) // 2], 3),
        "p99_ms": round(ordered[len(ordered) * 99 // 100], 3),
        "longest_ms": round(ordered[-1], 3),
    }


def main() -> None:
    """Runs it all in a folder that is removed afterwards."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1000, help="size of each log that is cleaned")
    parser.add_argument("--cleanings", type=int, default=7)
    parser.add_argument("--idle-seconds", type=float, default=2.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        broker, topics = prepare(work / "data", work / "prepared", cleanings=asked.cleanings, megabytes=asked.megabytes)
        try:
            gc.disable()
            print(json.dumps(measure(broker, topics, asked.megabytes, asked.idle_seconds), indent=2))
        finally:
            broker.kill()


if __name__ == "__main__":
    main()
