"""Batches of which something cannot be read: what is told of one, and where reading goes on behind it. Pure.

Nothing in such a batch is taken for true without a second witness. Only its checksum covers what its header says of the
last offset, and base offset and size are covered by nothing: a lie there must neither make a reader jump over good
records nor keep it at the same place for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from headwater.client.errors import RecordError
from headwater.protocol.batches import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, parse_header
from headwater.protocol.record_reading import DECOMPRESSED_LIMIT_BYTES
from headwater.types import TopicPartition

if TYPE_CHECKING:
    from typing_extensions import Buffer

_THROUGH_MAGIC: Final = 17
_THROUGH_LAST_DELTA: Final = 27
_SHOWN_MAGIC: Final = 2
_SMALLEST_OLD_MESSAGE: Final = 26
_FARTHEST_OFFSET: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CorruptBatch:
    """What cannot be read of a partition: the records from `first_offset` on and before `next_offset`.

    The records of the batch before `first_offset`, if any, can be read. `raw` are the bytes of the whole batch as the
    broker sent them, or all that is left of its answer where not even the size of the batch makes sense; no bytes when
    the broker itself finds the batch damaged and keeps it back.
    """

    partition: TopicPartition
    first_offset: int
    next_offset: int
    """Where reading goes on."""
    reason: str
    raw: bytes = field(repr=False)

    @property
    def last_offset(self) -> int:
        """The last offset that is passed over."""
        return self.next_offset - 1

    @property
    def size_bytes(self) -> int:
        """How large the batch is."""
        return len(self.raw)

    @property
    def base_offset(self) -> int:
        """Where the batch itself says that it begins; `first_offset` where it does not say."""
        return _int64(memoryview(self.raw), 0) if len(self.raw) >= _THROUGH_MAGIC else self.first_offset

    def __str__(self) -> str:
        if self.first_offset < self.last_offset:
            where = f"offsets {self.first_offset} to {self.last_offset}"
        else:
            where = f"offset {self.first_offset}"
        return f"{where} of partition {self.partition} ({self.size_bytes:,} bytes): {self.reason}"


OnCorrupt: TypeAlias = Callable[[CorruptBatch], None]
"""Called for each batch before it is skipped. If it raises, the batch is not skipped."""


class ReadingRules(NamedTuple):
    """How strictly batches are read. `skip` is told of what cannot be read and passed over; None: that is an error."""

    check_crcs: bool = True
    limit_bytes: int = DECOMPRESSED_LIMIT_BYTES
    skip: OnCorrupt | None = None


def skip(on_corrupt: OnCorrupt, batch: CorruptBatch) -> None:
    """Tells of a batch that is about to be skipped; `RecordError` if that fails, for what nobody heard of is kept."""
    try:
        on_corrupt(batch)
    except Exception as error:
        reason = f"{batch.reason}, and the listener of corrupt records failed on it: {error!r}"
        raise RecordError(batch.partition, batch.first_offset, reason) from error


def header_of_sound_size(answer: memoryview, position: int, end: int) -> BatchHeader | None:
    """A header of which only the size makes sense, which leads to the next one; None where not even that does.

    What it says beside position, size and base offset may be anything, also that of a message of an older format.
    """
    if end - position < _THROUGH_MAGIC:
        return None
    size = int.from_bytes(answer[position + 8 : position + 12], "big", signed=True) + LOG_OVERHEAD
    if (
        size < (HEADER_SIZE if answer[position + 16] == _SHOWN_MAGIC else _SMALLEST_OLD_MESSAGE)
        or size > end - position
    ):
        return None
    shown = bytearray(answer[position : position + min(size, HEADER_SIZE)].tobytes().ljust(HEADER_SIZE, b"\0"))
    shown[8:12] = (HEADER_SIZE - LOG_OVERHEAD).to_bytes(4, "big")
    shown[16] = _SHOWN_MAGIC
    header = parse_header(shown, 0, HEADER_SIZE)
    header.position, header.size = position, size
    return header


def announced_base(answer: Buffer, position: int, end: int) -> int | None:
    """The base offset of what begins at `position`, whole or cut by the end of the answer; None: nothing to be seen."""
    view = memoryview(answer)
    if end - position < _THROUGH_MAGIC or view[position + 16] != _SHOWN_MAGIC:
        return None
    return _int64(view, position)


def claimed_next(answer: Buffer, position: int, end: int) -> int | None:
    """The offset behind the batch at `position`, by its own header; None where that cannot be."""
    view = memoryview(answer)
    if end - position < _THROUGH_MAGIC:
        return None
    base, delta = _int64(view, position), 0
    if view[position + 16] == _SHOWN_MAGIC:
        if end - position < _THROUGH_LAST_DELTA:
            return None
        delta = int.from_bytes(view[position + 23 : position + 27], "big", signed=True)
    # A message of an older format has its own offset there and no other.
    return base + delta + 1 if base >= 0 and 0 <= delta < _FARTHEST_OFFSET - base else None


def offset_behind(offset: int, claimed: int | None, log_end: int) -> int:
    """Where to go on behind an unreadable batch when nothing is seen of what follows it.

    The claim of the batch counts as far as the broker's word about the end of the log allows (-1: it gave none).
    Otherwise the broker is asked for the very next offset, and what it answers with says where the batch ends.
    """
    if claimed is not None and offset < claimed and (log_end < 0 or claimed <= log_end):
        return claimed
    return offset + 1


def _int64(view: memoryview, at: int) -> int:
    return int.from_bytes(view[at : at + 8], "big", signed=True)
