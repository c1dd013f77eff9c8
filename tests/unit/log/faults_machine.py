"""A log on a disk that fails, and a list of batches that says what must be there: the machines of the fault tests.

Whatever happens, in whatever order, these hold: a call that met an error of the disk raises; after an error the log
goes on as if the call had not been made; after a death or a loss of power the log is what it was at some moment since
the last flush, never less than what was flushed, but for a deletion that was cut short: it is done, in part or not;
indexes, producers and epochs are those of the records that are there.

To add a deed, write a rule that calls `self.attempt` and says what the model does when it is done.
"""

import errno
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headwater.config import TopicConfig
from headwater.log.checkpoints import CLEAN_SHUTDOWN, LEADER_EPOCHS
from headwater.log.log_dirs import LogDirError, LogDirs
from headwater.log.producer_state import ProducerStates
from headwater.log.recovery import replay_batch
from headwater.log.retention import count_old_segments, delete_old_segments
from headwater.log.segment import Segment
from headwater.log.txn_index import AbortedTxn
from headwater.protocol.records import BatchHeader, check_batches
from headwater.testing.faulty_filesystem import Call, FaultyFileSystem, MachineStoppedError
from headwater.types import TopicPartition

from .building import NOW_MS, all_records, batch, marker, topic_config

PARTITION = TopicPartition("events", 0)
PLAIN, TRANSACTIONAL = (1, 2), (8, 9)
"""Producer ids."""
MARKER_VALUE = bytes(6)

CALLS: tuple[Call | None, ...] = (None, "open", "pwrite", "truncate", "rename", "remove", "sync", "sync_dir", "pread")


class Trouble(NamedTuple):
    """What happens during a deed: a call fails, or the power goes when `error` is None; after `skip` calls."""

    call: Call | None
    error: int | None
    skip: int


FAILURES = st.builds(Trouble, st.sampled_from(CALLS), st.sampled_from([errno.EIO, errno.ENOSPC]), st.integers(0, 6))
POWER_LOSSES = st.builds(Trouble, st.none(), st.none(), st.integers(0, 25))
TROUBLES = st.none() | FAILURES | POWER_LOSSES


class Written(NamedTuple):
    """A batch as it was written: its bytes with offset and epoch, and what of it is asked for again."""

    first: int
    next: int
    content: bytes
    values: tuple[bytes, ...]
    timestamp_ms: int


@dataclass
class Model:
    """What the log holds, and what else a crash may bring back."""

    batches: list[Written] = field(default_factory=list)
    start: int = 0
    asked_start: int = 0
    """Where the log would begin if a deletion that was cut short were done; `start` when there is none."""
    largest_start: int = 0
    """Before it the leader epochs may be forgotten, although the records come back in a crash."""
    earlier: list[list[Written]] = field(default_factory=list)
    """Contents after each append, whether it was done or not, and before each restart."""
    ever: dict[bytes, Written] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.batches[-1].next if self.batches else self.start

    def records(self) -> list[tuple[int, bytes, int]]:
        return [
            (each.first + index, value, each.timestamp_ms + index)
            for each in self.batches
            for index, value in enumerate(each.values)
            if each.first + index >= self.start
        ]


class Producer:
    """Where a producer is; told anew by the log after each restart."""

    def __init__(self) -> None:
        self.sequence = 0
        self.epoch = 0
        self.in_transaction = False


class UnderFaults(RuleBasedStateMachine):
    """One partition in one log dir, through errors, deaths and losses of power; what is written is another's part."""

    config: TopicConfig

    @initialize(seed=st.integers(0, 2**32), sector_bytes=st.sampled_from([16, 64, 512]), in_order=st.booleans())
    def begin(self, seed: int, sector_bytes: int, in_order: bool) -> None:
        self.fs = FaultyFileSystem(seed=seed, sector_bytes=sector_bytes, names_in_order=in_order)
        self.flushed = 0
        """What is before this offset is promised."""
        self.checkpointed_start = 0
        self.serial = 0
        self.offline = False
        """After an error that a broker does not go on from without a restart."""
        self.open_dir()

    def teardown(self) -> None:
        if hasattr(self, "dirs"):
            self.dirs.abandon()
            shutil.rmtree(self.fs.folder)

    def open_dir(self) -> None:
        self.dirs = LogDirs.open(self.fs, [f"{self.fs.folder}/data"], node_id=1)
        try:
            self.dirs.load(lambda topic: self.config, now_ms=NOW_MS)
            self.log = self.dirs.create(PARTITION, topic_id=None, config=self.config, now_ms=NOW_MS)
        except BaseException:
            self.dirs.abandon()
            raise

    def attempt(self, deed: Callable[[], object], trouble: Trouble | None, *, tells: bool = True) -> bool:
        """Do something to the log; False when the disk refused it or the machine went off in the middle.

        What `tells` raises when the disk refuses.
        """
        errors_before = self.fs.errors_given
        self.make(trouble)
        try:
            deed()
        except OSError as error:
            if error.errno not in (errno.EIO, errno.ENOSPC):
                raise
            self.offline = self.offline or not self.dirs.working
            return False
        except MachineStoppedError:
            self.restart(self.fs.lose_power())
            return False
        finally:
            self.fs.settle()
        # An index of an active segment can wait, as a crash has it rebuilt; so can the end of epochs on a full disk.
        if tells and not self.fs.last_refused.endswith((".txnindex", f"{LEADER_EPOCHS}.tmp")):
            assert self.fs.errors_given == errors_before, "the disk refused a call and nobody was told"
        return True

    def make(self, trouble: Trouble | None) -> None:
        if trouble is not None and trouble.error is not None:
            self.fs.fail(trouble.call, trouble.error, skip=trouble.skip)
        elif trouble is not None:
            self.fs.stop_after(trouble.skip)

    @precondition(lambda self: not self.offline)
    @rule(trouble=TROUBLES)
    def roll(self, trouble: Trouble | None) -> None:
        self.attempt(lambda: self.log.roll(NOW_MS), trouble)

    @precondition(lambda self: not self.offline)
    @rule(part=st.sampled_from([None, 0.5]), trouble=TROUBLES)
    def flush(self, part: float | None, trouble: Trouble | None) -> None:
        log = self.log
        up_to = None if part is None else int(self.log.log_end_offset * part)
        lives = self.fs
        if self.attempt(lambda: log.flush(up_to), trouble):
            assert log.recovery_point >= (self.log.log_end_offset if up_to is None else up_to)
            self.flushed = max(self.flushed, log.recovery_point)
        elif self.fs is lives:
            self.offline = True

    @precondition(lambda self: not self.offline)
    @rule(trouble=TROUBLES)
    def checkpoint(self, trouble: Trouble | None) -> None:
        start = self.log.log_start_offset
        if self.attempt(self.dirs.checkpoint, trouble):
            self.checkpointed_start = start

    @precondition(lambda self: not self.offline)
    @rule(trouble=TROUBLES)
    def remove_deleted_files(self, trouble: Trouble | None) -> None:
        self.attempt(self.log.remove_deleted_files, trouble)

    @rule(free_bytes=st.none() | st.integers(0, 600))
    def get_full(self, free_bytes: int | None) -> None:
        self.fs.free_bytes = free_bytes

    @rule(trouble=TROUBLES)
    def lose_power(self, trouble: Trouble | None) -> None:
        self.restart(self.fs.lose_power(), trouble)

    @rule(trouble=TROUBLES)
    def die(self, trouble: Trouble | None) -> None:
        self.restart(self.fs.kill(), trouble)

    @precondition(lambda self: not self.offline)
    @rule(trouble=TROUBLES, power_goes_then=st.booleans())
    def stop_and_start(self, trouble: Trouble | None, power_goes_then: bool) -> None:
        lives = self.fs
        # A log that cannot be closed costs its dir the mark of a clean stop, and the others nothing.
        if self.attempt(self.dirs.close, trouble, tells=False) and self.fs.exists(
            self.dirs.dirs[0].file(CLEAN_SHUTDOWN)
        ):
            self.flushed = self.log.log_end_offset
            self.checkpointed_start = self.log.log_start_offset
            self.restart(self.fs.lose_power() if power_goes_then else self.fs.kill())
        elif self.fs is lives:
            self.offline = True

    def restart(self, fs: FaultyFileSystem, trouble: Trouble | None = None) -> None:
        """Open the dir again; a start that fails is tried once more, as a person would."""
        self.dirs.abandon()
        self.fs = fs
        self.make(trouble)
        try:
            self.open_dir()
        except (OSError, LogDirError, MachineStoppedError) as error:
            self.fs = self.fs.lose_power() if isinstance(error, MachineStoppedError) else self.fs.kill()
            self.open_dir()
        self.fs.settle()
        self.after_restart()

    def after_restart(self) -> None:
        """Check that what is there may be there, and go on from it."""
        raise NotImplementedError


class LogUnderFaults(UnderFaults):
    """A log of producers and transactions that is appended to, truncated and deleted from."""

    config = topic_config(segment_bytes=900, index_interval_bytes=150, retention_bytes=1500, retention_ms=-1)

    @initialize()
    def begin_model(self) -> None:
        self.model = Model()
        self.epoch = 0
        self.producers = {producer_id: Producer() for producer_id in PLAIN + TRANSACTIONAL}

    def put(
        self, content: bytearray, trouble: Trouble | None, values: tuple[bytes, ...], timestamp_ms: int = NOW_MS
    ) -> bool:
        buffer = memoryview(content)
        headers = check_batches(buffer, 0, len(buffer))
        first = self.model.end
        written: list[Written] = []

        def deed() -> None:
            try:
                info = self.log.append_as_leader(
                    buffer, 0, len(buffer), headers, leader_epoch=self.epoch, now_ms=NOW_MS
                )
            finally:
                # Offsets and epoch are in the buffer now, and so the batch may be in the file.
                last = first + headers[0].last_offset_delta
                written.append(Written(first, last + 1, bytes(buffer), values, timestamp_ms))
                self.model.ever[bytes(buffer)] = written[0]
                self.model.earlier.append([*self.model.batches, written[0]])
            assert (info.first_offset, info.last_offset, info.duplicate) == (first, last, False)

        done = self.attempt(deed, trouble)
        if done:
            self.model.batches.append(written[0])
        return done

    @precondition(lambda self: not self.offline)
    @rule(
        sizes=st.lists(st.integers(0, 150), min_size=1, max_size=4),
        time=st.integers(0, 2000),
        producer_id=st.sampled_from([None, *PLAIN]),
        trouble=TROUBLES,
    )
    def append(self, sizes: list[int], time: int, producer_id: int | None, trouble: Trouble | None) -> None:
        values = tuple(b"%d:%d" % (self.serial, size) + bytes(size) for size in sizes)
        self.serial += 1
        producer = None
        if producer_id is not None:
            state = self.producers[producer_id]
            producer = (producer_id, state.epoch, state.sequence)
        content = batch(values, timestamp_ms=NOW_MS + time, producer=producer)
        if self.put(content, trouble, values, NOW_MS + time) and producer:
            state.sequence += len(values)

    @precondition(lambda self: not self.offline)
    @rule(producer_id=st.sampled_from(TRANSACTIONAL), size=st.integers(0, 100), trouble=TROUBLES)
    def append_in_transaction(self, producer_id: int, size: int, trouble: Trouble | None) -> None:
        state = self.producers[producer_id]
        values = (b"%d:t" % self.serial + bytes(size),)
        self.serial += 1
        content = batch(values, producer=(producer_id, state.epoch, state.sequence), transactional=True)
        if self.put(content, trouble, values):
            state.sequence += 1
            state.in_transaction = True

    @precondition(lambda self: not self.offline)
    @rule(producer_id=st.sampled_from(TRANSACTIONAL), commit=st.booleans(), trouble=TROUBLES)
    def end_transaction(self, producer_id: int, commit: bool, trouble: Trouble | None) -> None:
        state = self.producers[producer_id]
        content = marker(producer_id, state.epoch, commit=commit)
        if state.in_transaction and self.put(content, trouble, (MARKER_VALUE,)):
            state.in_transaction = False

    @precondition(lambda self: not self.offline)
    @rule()
    def next_leader(self) -> None:
        self.epoch += 1

    @precondition(lambda self: not self.offline and self.model.batches)
    @rule(back=st.integers(1, 12), trouble=TROUBLES)
    def truncate(self, back: int, trouble: Trouble | None) -> None:
        cut = self.model.batches[-min(back, len(self.model.batches))].first
        if cut < self.model.start:
            return
        self.flushed = min(self.flushed, cut)
        lives = self.fs

        def deed() -> None:
            self.log.truncate_to(cut, now_ms=NOW_MS)
            # A broker does not go on before this is done.
            self.dirs.checkpoint()

        if self.attempt(deed, trouble):
            self.model.batches = [each for each in self.model.batches if each.first < cut]
            self.checkpointed_start = self.model.start
            self.learn_producers()
        elif self.fs is lives:
            self.offline = True

    @precondition(lambda self: not self.offline)
    @rule(tenths=st.integers(1, 10), trouble=TROUBLES)
    def delete_records(self, tenths: int, trouble: Trouble | None) -> None:
        offset = self.model.start + (self.newest_deletable() - self.model.start) * tenths // 10
        if offset > self.model.start:
            self.delete(lambda: self.log.delete_records_before(offset), offset, trouble)

    @precondition(lambda self: not self.offline)
    @rule(trouble=TROUBLES)
    def retain(self, trouble: Trouble | None) -> None:
        up_to = self.newest_deletable()
        ends = [*(segment.base_offset for segment in self.log.segments), self.log.log_end_offset]
        start = ends[count_old_segments(self.log, high_watermark=up_to, now_ms=NOW_MS)]
        self.delete(lambda: delete_old_segments(self.log, high_watermark=up_to, now_ms=NOW_MS), start, trouble)

    def newest_deletable(self) -> int:
        # A producer whose records all went may be forgotten at a restart, so the newest batches stay.
        newest = {header.producer_id: header.base_offset for header in self.headers() if header.producer_id >= 0}
        return min([self.log.last_stable_offset, *newest.values()])

    def delete(self, deed: Callable[[], object], start: int, trouble: Trouble | None) -> None:
        lives = self.fs
        self.model.asked_start = max(self.model.start, start)
        self.model.largest_start = max(self.model.largest_start, start)
        if self.attempt(deed, trouble):
            assert self.log.log_start_offset == self.model.asked_start
            self.model.start = self.model.asked_start
        elif self.fs is lives:
            self.offline = True

    def after_restart(self) -> None:
        """The model takes over what is there, once it is sure that this may be there."""
        log, model = self.log, self.model
        found = [model.ever[content] for content in self.contents()]
        first = found[0].first if found else log.log_end_offset
        possible = [[each for each in batches if each.first >= first] for batches in (model.batches, *model.earlier)]
        assert any(found == batches[: len(found)] for batches in possible), "what is there was never there so"
        assert log.log_end_offset >= self.flushed
        promised = [each for each in model.batches if model.asked_start < each.next <= self.flushed]
        # Deleted records may be back before them.
        kept = [each for each in found if promised and each.first >= promised[0].first]
        assert kept[: len(promised)] == promised, "something flushed is gone"
        assert self.checkpointed_start <= log.log_start_offset
        assert log.log_start_offset <= model.asked_start or not promised
        assert log.log_start_offset >= first or not found
        # What was cut or dropped now may come back with the next loss of power, unless it is synced by then.
        model.earlier.append(model.batches)
        model.batches = found
        model.start = model.asked_start = log.log_start_offset
        self.checkpointed_start = min(self.checkpointed_start, model.start)
        self.flushed = min(self.flushed, model.end)
        self.offline = False
        self.learn_producers()
        self.check_everything()

    def learn_producers(self) -> None:
        for producer_id, state in self.producers.items():
            entry = self.log._producers.entries.get(producer_id)
            state.sequence = entry.last_sequence + 1 if entry else 0
            state.in_transaction = self.log.has_open_transaction(producer_id)

    def headers(self) -> list[BatchHeader]:
        return [stored.header for segment in self.log.segments for stored in segment.batches()]

    def contents(self) -> list[bytes]:
        return [
            stored.buffer[stored.header.position : stored.header.position + stored.header.size]
            for segment in self.log.segments
            for stored in segment.batches()
        ]

    def check_everything(self) -> None:
        self.check_producers()
        self.check_times()
        for segment in self.log.segments:
            check_offset_index(segment)
            check_time_index(segment)
        for header in self.headers():
            if header.base_offset >= self.model.largest_start:
                assert self.log.leader_epochs.epoch_of(header.base_offset) == header.leader_epoch

    def check_producers(self) -> None:
        replayed = ProducerStates("replayed")
        aborted: list[AbortedTxn] = []
        ends = set()
        first = self.log.log_end_offset
        for segment in self.log.segments:
            for stored in segment.batches():
                ends.add(stored.header.last_offset)
                if stored.header.last_offset < self.log.log_start_offset:
                    continue
                first = min(first, stored.header.base_offset)
                txn = replay_batch(replayed, stored.buffer, stored.header)
                if txn is not None:
                    aborted.append(txn)
        known = self.log._producers.entries
        for producer_id, expected in replayed.entries.items():
            entry = known[producer_id]
            assert entry.epoch == expected.epoch
            if expected.batches:
                assert entry.last_sequence == expected.last_sequence
                assert entry.batches[-1] == expected.batches[-1]
        for entry in known.values():
            assert all(each.last_offset in ends or each.last_offset < first for each in entry.batches)
        # A transaction may have begun in a segment that is deleted, or lost, by now.
        ongoing = {producer_id: offset for offset, producer_id in self.log._producers.ongoing.items()}
        begun = {producer_id: offset for offset, producer_id in replayed.ongoing.items()}
        assert begun.keys() <= ongoing.keys()
        assert all(offset == begun.get(producer_id) or offset < first for producer_id, offset in ongoing.items())
        ended = {(txn.producer_id, txn.last_offset): txn.first_offset for txn in aborted}
        found = {
            (txn.producer_id, txn.last_offset): txn.first_offset
            for txn in self.log.aborted_transactions(0, self.log.log_end_offset)
        }
        assert ended.keys() <= found.keys()
        assert all(offset == ended.get(which) or offset < first for which, offset in found.items())

    def check_times(self) -> None:
        records = [(time, offset) for offset, _, time in self.model.records()]
        for time in (NOW_MS, NOW_MS + 700, NOW_MS + 1500):
            found = self.log.offset_for_timestamp(time, self.model.end)
            assert (found and found[:2]) == next((each for each in records if each[0] >= time), None)

    @invariant()
    def same_records(self) -> None:
        if hasattr(self, "model") and not self.offline:
            assert (self.log.log_start_offset, self.log.log_end_offset) == (self.model.start, self.model.end)
            assert all_records(self.log) == [(offset, value) for offset, value, _ in self.model.records()]


def check_offset_index(segment: Segment) -> None:
    """Every entry is the last offset and the position of a batch."""
    there = {stored.position: stored.header.last_offset for stored in segment.batches()}
    index = segment.offset_index
    assert list(index.offsets) == sorted(set(index.offsets))
    for relative_offset, position in zip(index.offsets, index.positions, strict=True):
        assert there.get(position) == segment.base_offset + relative_offset


def check_time_index(segment: Segment) -> None:
    """Every entry is the largest timestamp so far, with the last offset of the batch that brought it."""
    there = {stored.header.last_offset: stored.header.max_timestamp_ms for stored in segment.batches()}
    index = segment.time_index
    assert list(index.timestamps) == sorted(set(index.timestamps))
    for timestamp_ms, relative_offset in zip(index.timestamps, index.offsets, strict=True):
        assert there.get(segment.base_offset + relative_offset) == timestamp_ms
    assert segment.max_timestamp_ms == max(there.values(), default=-1)
