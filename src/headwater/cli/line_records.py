"""Lines into records, and records into batches for their partitions."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from headwater.client.partitioner import partition_for_key
from headwater.client.thin.producer import Headers, ProducedRecord

RECORD_OVERHEAD_BYTES: Final = 16
"""At most what a short record takes in a batch beside its key, value and headers."""

Batches: TypeAlias = Iterator[tuple[int, Sequence[ProducedRecord]]]


class BadLineError(Exception):
    """A line that does not have the promised form; its text says how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFormat:
    """How a line is to be read: `headers<separator>key<separator>value`, only the value must be there."""

    key_separator: bytes | None = None
    headers_separator: bytes | None = None
    headers: Headers = ()
    null_value: bytes | None = None

    def records(self, lines: Sequence[bytes], timestamp_ms: int) -> list[ProducedRecord]:
        """One record for each line. A line without the key separator has no key."""
        headers, separator = self.headers, self.key_separator
        if self.headers_separator is not None or self.null_value is not None:
            return [self._record(line, timestamp_ms) for line in lines]
        # The usual formats come by the million, so they are spared a call for each line.
        if separator is None:
            return [(None, line, headers, timestamp_ms) for line in lines]
        return [
            (key, value, headers, timestamp_ms) if found else (None, line, headers, timestamp_ms)
            for line in lines
            for key, found, value in (line.partition(separator),)
        ]

    def _record(self, line: bytes, timestamp_ms: int) -> ProducedRecord:
        headers, key, value = self.headers, None, line
        if self.headers_separator is not None:
            text, found, value = line.partition(self.headers_separator)
            if not found:
                raise BadLineError(f"the line {_shown(line)} has no headers separator")
            headers += parse_headers(text)
        if self.key_separator is not None:
            before, found, after = value.partition(self.key_separator)
            if found:
                key, value = before, after
        return key, None if value == self.null_value else value, headers, timestamp_ms


def parse_headers(text: bytes) -> Headers:
    """`name:value,name:value` as kafka-console-producer writes it.

    >>> parse_headers(b"trace:1,empty:")
    (('trace', b'1'), ('empty', b''))
    """
    headers = []
    for part in filter(None, text.split(b",")):
        name, found, value = part.partition(b":")
        if not found:
            raise BadLineError(f"the header {_shown(part)} is not name:value")
        headers.append((name.decode("utf-8", "replace"), value))
    return tuple(headers)


class Batcher:
    """Collects records per partition until they fill a batch.

    A record goes to the given partition, else by its key, else to a partition that changes with every batch.
    """

    def __init__(self, partitions: int, batch_bytes: int, *, partition: int | None = None) -> None:
        self._partitions = partitions
        self._batch_bytes = batch_bytes
        self._partition = partition
        self._sticky = random.randrange(partitions)  # noqa: S311
        self._pending: dict[int, _Pending] = {}

    def add(self, records: Sequence[ProducedRecord], keyed: bool) -> None:
        """Takes records in; `keyed` says that some of them may have a key."""
        if self._partition is not None or not keyed:
            self._lane(self._sticky if self._partition is None else self._partition).records.extend(records)
            return
        count, sticky = self._partitions, self._sticky
        lanes = [self._lane(partition).records for partition in range(count)]
        for record in records:
            key = record[0]
            lanes[sticky if key is None else partition_for_key(key, count)].append(record)

    def full_batches(self) -> Batches:
        """The batches that are full by now."""
        for partition in [p for p, pending in self._pending.items() if pending.size() >= self._batch_bytes]:
            yield from self._taken(partition)

    def all_batches(self) -> Batches:
        """Everything that is left."""
        for partition in list(self._pending):
            yield from self._taken(partition)

    def _lane(self, partition: int) -> "_Pending":
        return self._pending.setdefault(partition, _Pending())

    def _taken(self, partition: int) -> Batches:
        records = self._pending.pop(partition).records
        if partition == self._sticky and records:
            self._sticky = (self._sticky + 1) % self._partitions
        for batch in split(records, self._batch_bytes):
            yield partition, batch


@dataclass(slots=True)
class _Pending:
    """One partition's records, of which the first `measured` take `measured_bytes`."""

    records: list[ProducedRecord] = field(default_factory=list)
    measured: int = 0
    measured_bytes: int = 0

    def size(self) -> int:
        self.measured_bytes += size_of(self.records[self.measured :])
        self.measured = len(self.records)
        return self.measured_bytes


def split(records: Sequence[ProducedRecord], limit_bytes: int) -> Iterator[Sequence[ProducedRecord]]:
    """`records` in parts of about `limit_bytes` at most; a larger record is a part of its own."""
    if len(records) > 1 and size_of(records) > limit_bytes:
        middle = len(records) // 2
        yield from split(records[:middle], limit_bytes)
        yield from split(records[middle:], limit_bytes)
    elif records:
        yield records


def size_of(records: Sequence[ProducedRecord]) -> int:
    """About the bytes that records take in a batch, rather too many than too few."""
    return (
        RECORD_OVERHEAD_BYTES * len(records)
        + sum([len(value) for _, value, _, _ in records if value is not None])
        + sum([len(key) for key, _, _, _ in records if key is not None])
        + sum([_size_of_headers(headers) for _, _, headers, _ in records if headers])
    )


def _size_of_headers(headers: Headers) -> int:
    # A character of a name takes at most four bytes.
    return sum([len(name) * 4 + len(value or b"") + RECORD_OVERHEAD_BYTES for name, value in headers])


def _shown(line: bytes) -> str:
    text = line[:60].decode("utf-8", "replace")
    return repr(text + ("…" if len(line) > 60 else ""))
