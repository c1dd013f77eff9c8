"""One measurement in a process of its own, so that nothing else of the benchmark shares its interpreter.

Started by `shapes.py` with a JSON task as its only argument; prints a JSON result as its last line.
"""

import ctypes
import gc
import json
import os
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

import wire


def main() -> None:
    """Runs the task and prints what it measured."""
    task: dict[str, Any] = json.loads(sys.argv[1])
    compiled_folder = task.pop("compiled")
    if compiled_folder:
        sys.path.insert(0, compiled_folder)
    kind = task.pop("kind")
    gc.disable()
    print(json.dumps(TASKS[kind](**task)))


def produce(**task: Any) -> dict[str, float]:
    """Shape (a)."""
    import rdkafka

    return rdkafka.produce(**task)


def fetch(**task: Any) -> dict[str, float]:
    """Shape (b)."""
    import rdkafka

    return rdkafka.fetch(**task)


def group(shape: str, **task: Any) -> dict[str, float]:
    """The shapes of groups.py."""
    # kio would import it, at the price of a second at every start.
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    import group_shapes

    return group_shapes.run(shape, **task)


def percentile_ms(sorted_ns: list[int], share: float) -> float:
    """The latency in ms that `share` of the requests stayed within."""
    return sorted_ns[min(len(sorted_ns) - 1, int(len(sorted_ns) * share))] / 1e6


def small_requests(
    port: int, topic: str, partitions: int, connections: int, value_bytes: int, warm_s: float, run_s: float
) -> dict[str, float]:
    """Shape (c)."""
    import loadgen

    batch = wire.record_batch(os.urandom(value_bytes), int(time.time() * 1000))
    requests = [wire.produce_request(topic, number % partitions, batch) for number in range(connections)]
    count, seconds, latencies = loadgen.closed_loop(port, requests, wire.produce_error_position(topic), warm_s, run_s)
    ordered = sorted(latencies)
    return {
        "rate": count / seconds,
        "p50_ms": percentile_ms(ordered, 0.5),
        "p99_ms": percentile_ms(ordered, 0.99),
    }


def end_to_end(port: int, topic: str, rate: int, value_bytes: int, warm_s: float, run_s: float) -> dict[str, float]:
    """Shape (d)."""
    import loadgen

    batch = wire.record_batch(os.urandom(value_bytes), int(time.time() * 1000))
    request, offset_position = wire.fetch_request(topic, max_wait_ms=500)
    latencies = loadgen.end_to_end(
        port,
        wire.produce_request(topic, 0, batch),
        wire.produce_error_position(topic),
        request,
        offset_position,
        wire.fetch_error_position(topic),
        ticking_timer(1 / rate),
        int(rate * (warm_s + run_s)),
    )
    ordered = sorted(latencies[int(rate * warm_s) :])
    return {"p50_ms": percentile_ms(ordered, 0.5), "p99_ms": percentile_ms(ordered, 0.99)}


def lookups(
    port: int, topic: str, first_ms: int, records: int, connections: int, warm_s: float, run_s: float, seed: int
) -> dict[str, float]:
    """Look-ups by time, for log_life.py: one at a time, then over several connections."""
    import lookups as by_time

    log = {"first_ms": first_ms, "records": records}
    _, ordered = by_time.run(port, topic, connections=1, warm_s=warm_s, run_s=run_s, seed=seed, **log)
    rate, _ = by_time.run(port, topic, connections=connections, warm_s=0.2, run_s=run_s, seed=seed + 1, **log)
    return {
        "p50_ms": percentile_ms(list(ordered), 0.5),
        "p99_ms": percentile_ms(list(ordered), 0.99),
        "rate": rate,
    }


def ticking_timer(interval_s: float) -> int:
    """A timerfd that ticks at this interval: epoll's own timeout knows whole milliseconds only."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor: int = libc.timerfd_create(time.CLOCK_MONOTONIC, 0)
    interval = struct.pack("qq", 0, int(interval_s * 1e9))
    if descriptor < 0 or libc.timerfd_settime(descriptor, 0, interval * 2, None):
        raise OSError(ctypes.get_errno(), "no timer could be made")
    return descriptor


TASKS: dict[str, Callable[..., dict[str, float]]] = {
    "produce": produce,
    "fetch": fetch,
    "small_requests": small_requests,
    "end_to_end": end_to_end,
    "group": group,
    "lookups": lookups,
}

if __name__ == "__main__":
    main()
