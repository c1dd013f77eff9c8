"""A look-up by time finds the first record that is not older, across segments and with times out of order."""

import random
from pathlib import Path

import pytest

from headwater.log.log import Log

from .building import NOW_MS, append, batch, open_log, topic_config

SMALL = topic_config(segment_bytes=1200, index_interval_bytes=150)


def expect(times: list[int], start: int, target: int, up_to: int) -> tuple[int, int] | None:
    found = next(((t, offset) for offset, t in enumerate(times) if offset >= start and t >= target), None)
    return found if found and found[1] < up_to else None


def fill(log: Log, seed: int) -> list[int]:
    chance = random.Random(seed)
    times: list[int] = []
    for index in range(80):
        base = NOW_MS + 20 * index + chance.randint(-200, 200)
        size = chance.randint(1, 4)
        append(log, batch([bytes(chance.randint(0, 80)) for _ in range(size)], timestamp_ms=base))
        times += range(base, base + size)
    return times


@pytest.mark.parametrize("seed", range(5))
def test_every_time_finds_its_record(tmp_path: Path, seed: int) -> None:
    log = open_log(tmp_path, SMALL)
    times = fill(log, seed)
    assert len(log.segments) > 3
    for start in (0, 50):
        log.delete_records_before(start)
        for target in range(min(times) - 2, max(times) + 3, 7):
            found = log.offset_for_timestamp(target, len(times))
            assert (found and found[:2]) == expect(times, start, target, len(times)), target
        largest = log.offset_of_max_timestamp()
        assert largest is not None
        assert largest[:2] == expect(times, start, max(times[start:]), len(times))
    log.close()
    again = open_log(tmp_path, SMALL, log_start_offset=50)
    for target in range(min(times), max(times), 31):
        found = again.offset_for_timestamp(target, len(times))
        assert (found and found[:2]) == expect(times, 50, target, len(times))


def test_records_that_may_not_be_seen_yet_are_not_found(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(timestamp_ms=10))
    append(log, batch(timestamp_ms=20), leader_epoch=2)
    assert log.offset_for_timestamp(15, 1) is None
    assert log.offset_for_timestamp(15, 2) == (20, 1, 2)


def test_the_largest_timestamp_is_the_first_record_that_has_it(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert log.offset_of_max_timestamp() is None
    append(log, batch([b"a", b"b"], timestamp_ms=100))
    append(log, batch([b"c", b"d"], timestamp_ms=100))
    append(log, batch([b"e"], timestamp_ms=50))
    assert log.offset_of_max_timestamp() == (101, 1, 0)


def test_the_largest_timestamp_is_not_one_of_a_deleted_record(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch([b"a"], timestamp_ms=100))
    append(log, batch([b"b", b"c"], timestamp_ms=50))
    log.delete_records_before(1)
    assert log.offset_of_max_timestamp() == (51, 2, 0)
