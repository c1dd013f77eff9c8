"""Logs as a broker would send them in answer to a Fetch, and what a consumer has to make of them."""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from crc32c import crc32c
from hypothesis import strategies as st

from headwater.protocol.records import encode_batch

T0 = 1_700_000_000_000
ABORT, COMMIT = 0, 1

Row = tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes | None]], int]
"""Key, value, headers, timestamp in ms."""


def batch(base_offset: int, rows: Iterable[Row | bytes | None], *, offsets_lost: int = 0, **options: Any) -> bytes:
    """A batch of rows, or of values; compaction has taken the records of so many offsets behind them."""
    written = [row if isinstance(row, tuple) else (None, row, [], T0) for row in rows]
    encoded = encode_batch(written, base_offset=base_offset, **options)
    if offsets_lost:
        struct.pack_into(">i", encoded, 23, len(written) + offsets_lost - 1)
    return resealed(encoded)


def marker(offset: int, producer_id: int, kind: int) -> bytes:
    """What the broker writes at the end of a transaction."""
    rows: list[Row] = [(struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0), [], T0)]
    return batch(offset, rows, producer_id=producer_id, producer_epoch=0, transactional=True, control=True)


def resealed(encoded: bytearray) -> bytes:
    """With the checksum of the bytes as they are now."""
    struct.pack_into(">I", encoded, 17, crc32c(memoryview(encoded)[21:]))
    return bytes(encoded)


@dataclass
class Log:
    """`visible` are offset, timestamp, whether that is the broker's, key, value, headers and leader epoch."""

    data: bytes = b""
    end_offset: int = 0
    aborted: list[tuple[int, int]] = field(default_factory=list)
    visible: list[tuple[Any, ...]] = field(default_factory=list)


contents = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=6), contents), max_size=3)
rows = st.lists(st.tuples(contents, contents, headers, st.integers(T0, T0 + 999) | st.just(-1)), max_size=8)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """Batches of all kinds, from producers of whom some have transactions, interleaved, committed or aborted."""
    log = Log(end_offset=draw(st.integers(0, 2**40)))
    # The open transaction of each producer, known from the start to be aborted or committed: its fate and first offset.
    open_: dict[int, tuple[int, int]] = {}
    for _ in range(draw(st.integers(0, 10))):
        producer_id = draw(st.sampled_from([-1, 1, 2, 3]))
        log.end_offset += draw(st.integers(0, 3))
        if producer_id in open_ and draw(st.booleans()):
            _end_transaction(log, producer_id, open_)
            continue
        if producer_id > 0 and producer_id not in open_ and draw(st.booleans()):
            open_[producer_id] = (draw(st.sampled_from([ABORT, COMMIT])), log.end_offset)
        _append(log, draw, producer_id, open_)
    for producer_id in [*open_]:
        _end_transaction(log, producer_id, open_)
    log.aborted = draw(st.permutations(log.aborted))
    return log


def _end_transaction(log: Log, producer_id: int, open_: dict[int, tuple[int, int]]) -> None:
    fate, first_offset = open_.pop(producer_id)
    if fate == ABORT:
        log.aborted.append((producer_id, first_offset))
    log.data += marker(log.end_offset, producer_id, fate)
    log.end_offset += 1


def _append(log: Log, draw: st.DrawFn, producer_id: int, open_: dict[int, tuple[int, int]]) -> None:
    written = draw(rows)
    # A batch has at least one offset, also when all of its records are gone.
    lost = draw(st.integers(0 if written else 1, 2))
    epoch = draw(st.integers(-1, 3))
    append_time_ms = draw(st.none() | st.integers(T0, T0 + 99))
    log.data += batch(
        log.end_offset,
        written,
        offsets_lost=lost,
        compression=draw(st.integers(0, 4)) if written else 0,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
        leader_epoch=epoch,
        transactional=producer_id in open_,
        log_append_time_ms=append_time_ms,
    )
    if producer_id not in open_ or open_[producer_id][0] == COMMIT:
        log.visible += [
            (
                log.end_offset + index,
                time_ms if append_time_ms is None else append_time_ms,
                append_time_ms is not None,
                key,
                value,
                tuple(found),
                None if epoch < 0 else epoch,
            )
            for index, (key, value, found, time_ms) in enumerate(written)
        ]
    log.end_offset += len(written) + lost
