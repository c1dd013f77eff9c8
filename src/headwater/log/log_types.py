"""What a log hands out: the answer to an append, a slice of a file, a producer's state. Values only."""

from typing import NamedTuple, Protocol


class HasFileno(Protocol):
    """An open file; its descriptor is valid while the object is held."""

    def fileno(self) -> int:
        """The descriptor."""

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`."""


class _NoFile:
    """Stands for the file of an empty slice, for which nothing has to be opened."""

    def fileno(self) -> int:
        raise ValueError("an empty slice has no file")

    def read_at(self, position: int, size: int) -> bytes:
        return b""


class LogSlice(NamedTuple):
    """A byte range of a segment's file, from the start of a batch; empty when `size` is 0.

    It may end in the middle of a batch. Holding it holds the file open: neither deletion of the segment nor
    the bound on open files takes it away.
    """

    file: HasFileno
    position: int
    size: int
    segment_base_offset: int

    def read(self) -> bytes:
        """The bytes, for whoever cannot send them straight from the file."""
        return self.file.read_at(self.position, self.size)


EMPTY_SLICE = LogSlice(_NoFile(), 0, 0, -1)


class AppendInfo(NamedTuple):
    """What became of an append.

    `append_time_ms` is -1 unless the topic's time is the broker's. For a `duplicate` the offsets are those of
    the original and nothing was written. `flush_needed`: `flush.messages` asks for a flush before the answer.
    `rolled`: the segments before the active one wait for a flush in the background.
    """

    first_offset: int
    last_offset: int
    append_time_ms: int
    log_start_offset: int
    duplicate: bool
    flush_needed: bool
    rolled: bool


class ActiveProducer(NamedTuple):
    """A producer as DescribeProducers shows it; -1 stands for unknown or none."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    current_txn_start_offset: int
