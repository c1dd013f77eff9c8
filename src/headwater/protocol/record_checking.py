"""Whether the records of a batch are what its header promises and what a topic's rules allow, without making any.

Compiled by Cython (pure Python mode) and correct without it. It walks with `record_reading`, as everything does that
decodes records: what passes here can be read.
"""
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headwater.protocol.batches import BatchHeader, octets
from headwater.protocol.record_reading import DECOMPRESSED_LIMIT_BYTES

try:
    import cython
except ImportError:
    from headwater.protocol import without_cython as cython

if cython.compiled:
    from cython.cimports.headwater.protocol.record_reading import RecordReader, open_batch
else:
    from headwater.protocol.record_reading import RecordReader, open_batch

if TYPE_CHECKING:
    from typing_extensions import Buffer

MOST_PROBLEMS: Final = 100
"""Of so many records it is said what is wrong with them; of more, that there are more."""

# Declared so, a name is a C variable: quick, and invisible from Python.
_MOST_PROBLEMS = cython.declare(cython.longlong, MOST_PROBLEMS)
_WITHOUT_KEY = cython.declare(cython.int, 1)
_OUT_OF_TIME = cython.declare(cython.int, 2)
_NO_TIME = cython.declare(cython.int, 2)
_EARLIEST_MS = cython.declare(cython.longlong, 1 - 2**63)
_LATEST_MS = cython.declare(cython.longlong, 2**63 - 1)
_FARTHEST_TIME_MS = cython.declare(cython.longlong, 2**62)
# A larger batch is walked without the interpreter's lock: for a smaller one, giving it away costs more than the walk.
_WORTH_UNLOCKING_BYTES = cython.declare(cython.longlong, 1 << 18)


class RecordProblem(NamedTuple):
    """Why the record at `batch_index` in its batch is refused; `reason` is 'null key' or 'timestamp'."""

    batch_index: int
    reason: str
    message: str


class RecordProblems(NamedTuple):
    """What the rules have against the records of a batch: the first few of them, and how many there are."""

    first: tuple[RecordProblem, ...]
    total: int
    has_timestamp: bool
    """Whether a timestamp is among them, perhaps not among the first."""


class RefusedRecordsError(Exception):
    """Records that can be read and break a topic's rules."""

    def __init__(self, problems: RecordProblems) -> None:
        super().__init__(problems)
        self.problems = problems


def check_records(
    buffer: Buffer,
    header: BatchHeader,
    require_keys: bool = False,
    min_timestamp_ms: int | None = None,
    max_timestamp_ms: int | None = None,
    limit_bytes: int = DECOMPRESSED_LIMIT_BYTES,
) -> int:
    """Walks the records of a producer's batch; the largest of their timestamps, -1 if none has one.

    CorruptBatchError unless all of them can be read and take one offset after the other, RefusedRecordsError when they
    break a rule. A record without a time passes. One whose time no clock will ever show breaks a rule in any case.
    """
    earliest_ms: cython.longlong = _EARLIEST_MS if min_timestamp_ms is None else min_timestamp_ms
    latest_ms: cython.longlong = _LATEST_MS if max_timestamp_ms is None else max_timestamp_ms
    needs_key: cython.bint = require_keys
    problem: cython.int
    base_ms: cython.longlong = header.base_timestamp_ms
    if base_ms > _FARTHEST_TIME_MS or base_ms < -_FARTHEST_TIME_MS:
        raise RefusedRecordsError(_impossible_time(0, base_ms))
    reader: RecordReader = open_batch(octets(buffer), header, limit_bytes)
    if reader.end > _WORTH_UNLOCKING_BYTES:
        with cython.nogil:
            problem = reader.find_problem(True, needs_key, earliest_ms, latest_ms)
    else:
        problem = reader.find_problem(True, needs_key, earliest_ms, latest_ms)
    if problem:
        _refuse(reader, problem, needs_key, earliest_ms, latest_ms)
    if reader.fault == _NO_TIME:
        raise RefusedRecordsError(_impossible_time(reader.records_count - reader.remaining, reader.timestamp_delta))
    reader.finish()
    largest_ms: int = reader.largest_ms
    return largest_ms


def check_stored_records(buffer: Buffer, header: BatchHeader, *, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES) -> int:
    """The same for a batch of a log, where compaction may have left gaps: CorruptBatchError if it cannot be read."""
    reader: RecordReader = open_batch(octets(buffer), header, limit_bytes)
    with cython.nogil:
        reader.find_problem(False, False, _EARLIEST_MS, _LATEST_MS)
    reader.finish()
    largest_ms: int = reader.largest_ms
    return largest_ms


@cython.cfunc
def _refuse(
    reader: RecordReader,
    problem: cython.int,
    needs_key: cython.bint,
    earliest_ms: cython.longlong,
    latest_ms: cython.longlong,
) -> cython.bint:
    """RefusedRecordsError for this problem and those behind it, unless what follows cannot be read."""
    index: cython.longlong
    count: cython.longlong = 0
    timestamps: cython.longlong = 0
    first: list[RecordProblem] = []
    while problem and count < _MOST_PROBLEMS:
        index = reader.records_count - reader.remaining - 1
        if problem == _WITHOUT_KEY:
            first.append(RecordProblem(index, "null key", "a compacted topic takes only records with keys"))
        else:
            words = _out_of_range(reader.base_timestamp_ms + reader.timestamp_delta, earliest_ms, latest_ms)
            first.append(RecordProblem(index, "timestamp", words))
            timestamps += 1
        count += 1
        problem = reader.find_problem(True, needs_key, earliest_ms, latest_ms)
    with cython.nogil:
        while problem:
            if problem == _OUT_OF_TIME:
                timestamps += 1
            count += 1
            problem = reader.find_problem(True, needs_key, earliest_ms, latest_ms)
    if reader.fault != _NO_TIME:
        reader.finish()
    raise RefusedRecordsError(RecordProblems(tuple(first), count, timestamps > 0))


def _impossible_time(index: int, time_ms: int) -> RecordProblems:
    words = f"there is no time {time_ms} ms from 1970 or from the time of its batch"
    return RecordProblems((RecordProblem(index, "timestamp", words),), 1, True)


def _out_of_range(time_ms: int, earliest_ms: int, latest_ms: int) -> str:
    earliest = "-" if earliest_ms == _EARLIEST_MS else str(earliest_ms)
    latest = "-" if latest_ms == _LATEST_MS else str(latest_ms)
    return f"timestamp {time_ms} is out of the range that the topic takes, [{earliest}, {latest}]"
