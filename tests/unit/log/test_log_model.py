"""Whatever is done to a log, in whatever order, it answers as a plain list of records would."""

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headwater.log.producer_state import REMEMBERED_BATCHES, ProducerStateError
from headwater.protocol.records import decode_records, scan_headers

from .building import NOW_MS, all_records, append, batch, open_log, topic_config

CONFIG = topic_config(segment_bytes=700, index_interval_bytes=120)


@dataclass
class Written:
    """A batch of the model: offsets, values, times and who sent it."""

    first: int
    values: list[bytes]
    timestamp_ms: int
    producer: tuple[int, int, int] | None

    @property
    def next(self) -> int:
        return self.first + len(self.values)


@dataclass
class Model:
    batches: list[Written] = field(default_factory=list)
    start: int = 0
    end: int = 0

    def records(self) -> list[tuple[int, bytes, int]]:
        return [
            (each.first + index, value, each.timestamp_ms + index)
            for each in self.batches
            for index, value in enumerate(each.values)
            if each.first + index >= self.start
        ]

    def of_producer(self, producer_id: int) -> list[Written]:
        return [each for each in self.batches if each.producer and each.producer[0] == producer_id]


class LogAgainstList(RuleBasedStateMachine):
    """One log, and a list that does the same."""

    @initialize()
    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="log-model-"))
        self.log = open_log(self.folder, CONFIG)
        self.model = Model()
        self.epoch = 0

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.abandon()
            shutil.rmtree(self.folder)

    @rule(
        sizes=st.lists(st.integers(0, 150), min_size=1, max_size=4),
        time=st.integers(0, 2000),
        producer_id=st.sampled_from([None, 1, 2]),
    )
    def append_next(self, sizes: list[int], time: int, producer_id: int | None) -> None:
        values = [b"%d" % (self.model.end + index) + bytes(size) for index, size in enumerate(sizes)]
        producer = None
        if producer_id is not None:
            before = self.model.of_producer(producer_id)
            last = before[-1] if before else None
            sequence = last.producer[2] + len(last.values) if last and last.producer else 0
            producer = (producer_id, 0, sequence)
        written = Written(self.model.end, values, NOW_MS + time, producer)
        info = append(self.log, self.encoded(written), leader_epoch=self.epoch)
        assert (info.first_offset, info.last_offset) == (written.first, written.next - 1)
        self.model.batches.append(written)
        self.model.end = written.next

    @staticmethod
    def encoded(written: Written) -> bytearray:
        return batch(written.values, timestamp_ms=written.timestamp_ms, producer=written.producer)

    @rule(producer_id=st.sampled_from([1, 2]), back=st.integers(1, 7))
    def append_again(self, producer_id: int, back: int) -> None:
        before = self.model.of_producer(producer_id)
        if len(before) < back:
            return
        repeated = before[-back]
        remembered = self.log._producers.entries[producer_id].batches
        assert 1 <= len(remembered) <= REMEMBERED_BATCHES
        try:
            info = append(self.log, self.encoded(repeated), leader_epoch=self.epoch)
        except ProducerStateError:
            assert back > len(remembered)
        else:
            assert info.duplicate
            assert (info.first_offset, info.last_offset) == (repeated.first, repeated.next - 1)

    @rule(offset=st.integers(0, 400), max_bytes=st.integers(0, 2000), ahead=st.integers(0, 12))
    def read(self, offset: int, max_bytes: int, ahead: int) -> None:
        if not self.model.start <= offset <= self.model.end:
            return
        following = [each for each in self.model.batches if each.next > offset]
        up_to = following[min(ahead, len(following) - 1)].first if following else self.model.end
        up_to = max(up_to, offset)
        piece = self.log.read(offset, max_bytes, up_to_offset=up_to)
        content = piece.read()
        visible = [each for each in following if each.next <= up_to]
        assert (piece.size > 0) == bool(visible)
        whole = scan_headers(content, 0, len(content))
        assert [header.base_offset for header in whole] == [each.first for each in visible[: len(whole)]]
        if visible:
            assert whole
            assert piece.size <= max(max_bytes, whole[0].size)
            assert [record.value for record in decode_records(content, whole[0])] == visible[0].values

    @rule(time=st.integers(-5, 2010))
    def look_up_time(self, time: int) -> None:
        found = self.log.offset_for_timestamp(NOW_MS + time, self.model.end)
        expected = next(((t, offset) for offset, _, t in self.model.records() if t >= NOW_MS + time), None)
        assert (found and found[:2]) == expected

    @rule()
    def look_up_largest_time(self) -> None:
        records = self.model.records()
        found = self.log.offset_of_max_timestamp()
        if not records:
            assert found is None
            return
        largest = max(t for _, _, t in records)
        assert found is not None
        assert found[:2] == next((t, offset) for offset, _, t in records if t == largest)

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW_MS)

    @rule()
    def next_leader(self) -> None:
        self.epoch += 1
        self.log.leader_epochs.assign(self.epoch, self.model.end)
        assert self.log.end_offset_for_epoch(self.epoch) == (self.epoch, self.model.end)

    @rule(data=st.data())
    @precondition(lambda self: self.model.batches)
    def truncate(self, data: st.DataObject) -> None:
        cut = data.draw(st.sampled_from(self.model.batches))
        if cut.first < self.model.start:
            return
        self.log.truncate_to(cut.first, now_ms=NOW_MS)
        self.model.batches = [each for each in self.model.batches if each.first < cut.first]
        self.model.end = cut.first

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        # A producer whose records all went may be forgotten at a restart, so the model keeps the newest
        # batches.
        newest = [self.model.of_producer(producer_id)[-1:] for producer_id in (1, 2)]
        limit = min([each.first for last in newest for each in last] + [self.model.end])
        if limit < self.model.start:
            return
        offset = data.draw(st.integers(self.model.start, limit))
        assert self.log.delete_records_before(offset) == offset
        self.model.start = offset

    @rule(up_to=st.integers(0, 400))
    def flush(self, up_to: int) -> None:
        self.log.flush(up_to)
        assert self.log.recovery_point <= self.model.end

    @rule()
    def stop_and_start(self) -> None:
        self.log.close()
        self.log = open_log(self.folder, CONFIG, log_start_offset=self.model.start)

    @rule(torn=st.binary(max_size=80))
    def crash_and_start(self, torn: bytes) -> None:
        point = self.log.recovery_point
        self.log.abandon()
        with open(self.log.segments[-1].path, "ab") as file:
            file.write(torn)
        self.log = open_log(self.folder, CONFIG, clean=False, recovery_point=point, log_start_offset=self.model.start)

    @invariant()
    def same_records(self) -> None:
        if hasattr(self, "log"):
            assert (self.log.log_start_offset, self.log.log_end_offset) == (self.model.start, self.model.end)
            assert all_records(self.log) == [(offset, value) for offset, value, _ in self.model.records()]


TestLogAgainstList = LogAgainstList.TestCase
TestLogAgainstList.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
