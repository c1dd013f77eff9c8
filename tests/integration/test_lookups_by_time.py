"""Look-ups by time: the first after a start reads a little of every segment, and nobody else waits for it."""

import threading
from pathlib import Path

import pytest

from conformance.actions import LATEST, Topic, create_topic, list_offset, produce_ok
from conformance.batches import Record, batch
from conformance.wire import Wire
from headwater import LocalBroker
from headwater.log.log import Log

SEGMENTS = 20
START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def a_segment_an_hour(bootstrap: str) -> Topic:
    with Wire(bootstrap) as wire:
        topic = create_topic(wire, configs={"segment.ms": "60000", "retention.ms": "-1"})
        for hour in range(SEGMENTS):
            produce_ok(wire, topic, batch(Record(timestamp_ms=START_MS + hour * HOUR_MS)))
        return topic


def test_the_first_look_up_after_a_start_keeps_nobody_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalBroker(data=tmp_path / "data") as broker:
        topic = a_segment_an_hour(broker.bootstrap)
    learn_times, may_read, reading = Log.learn_times, threading.Event(), threading.Event()

    def slow_disk(log: Log) -> None:
        reading.set()
        may_read.wait(20)
        learn_times(log)

    monkeypatch.setattr(Log, "learn_times", slow_disk)
    found: list[int] = []
    with LocalBroker(data=tmp_path / "data") as broker, Wire(broker.bootstrap) as wire:

        def look_up() -> None:
            with Wire(broker.bootstrap) as other:
                times = (START_MS + hour * HOUR_MS - 1 for hour in range(SEGMENTS))
                found.extend(list_offset(other, topic, time_ms).offset for time_ms in times)

        looking = threading.Thread(target=look_up)
        looking.start()
        assert reading.wait(20)
        assert list_offset(wire, topic, LATEST).offset == SEGMENTS, "it needs no disk, and was not answered meanwhile"
        assert not found
        may_read.set()
        looking.join(20)
    assert found == list(range(SEGMENTS))
