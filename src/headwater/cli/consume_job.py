"""One run of `headwater consume`: records formatted and written until it is enough."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headwater.cli.consume_patience import Patience
from headwater.cli.output import CLIENT_ID, complain, counted
from headwater.cli.record_format import Clean, Formatter, as_it_is
from headwater.cli.start_position import StartAt, start_offsets
from headwater.cli.stop_signals import StopSignals
from headwater.client import Client, RefusedError
from headwater.client.consumer.consumer import Consumer
from headwater.client.consumer.corrupt_batches import CorruptBatch
from headwater.client.consumer.errors import OffsetOutOfRangeError
from headwater.client.consumer.records import Record
from headwater.client.errors import ClientError, CorruptRecordError
from headwater.protocol.errors import ErrorCode
from headwater.types import TopicPartition

_MAX_WAIT_S: Final = 0.5
_MAX_BYTES: Final = 64 * 1024 * 1024
_PARTITION_MAX_BYTES: Final = 4 * 1024 * 1024
_RECORDS_AT_ONCE: Final = 20_000
_LOOK_S: Final = 0.05


class Skipped:
    """Tells of each batch that is skipped, and at the end how much that was."""

    def __init__(self) -> None:
        self.batches = 0
        self._offsets = 0

    def __call__(self, batch: CorruptBatch) -> None:
        """Tells of a batch."""
        self.batches += 1
        self._offsets += max(batch.next_offset - batch.first_offset, 0)
        complain(f"skipped {batch}")

    def sum_up(self) -> None:
        """Says nothing where nothing was skipped."""
        if self.batches:
            batches = "1 batch" if self.batches == 1 else f"{self.batches:,} batches"
            complain(f"skipped {counted(self._offsets, 'offset')} in {batches} that could not be read")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What was asked for. No partitions means all of them; no formatter means plain values."""

    topic: str
    partitions: Sequence[int]
    start: StartAt
    max_records: int | None
    timeout_s: float | None
    until_end: bool
    read_committed: bool
    skip_corrupt: bool
    skipped: Skipped
    formatter: Formatter | None
    plain_clean: Clean
    plain_line_end: bytes
    plain_null: bytes


async def run_job(bootstrap: str, job: Job, signals: StopSignals) -> None:
    """Writes records to stdout until the job's end; a job without an end goes on until it is stopped."""
    signals.cancel_this_task()
    max_wait_s = _MAX_WAIT_S if job.timeout_s is None else min(job.timeout_s, _MAX_WAIT_S)
    consumer = Consumer(
        bootstrap,
        client_id=CLIENT_ID,
        allow_auto_create_topics=False,
        auto_offset_reset="none",
        fetch_max_bytes=_MAX_BYTES,
        fetch_max_wait_ms=round(max_wait_s * 1000),
        isolation_level="read_committed" if job.read_committed else "read_uncommitted",
        max_partition_fetch_bytes=_PARTITION_MAX_BYTES,
        corrupt_records="skip" if job.skip_corrupt else "fail",
        corrupt_records_listener=job.skipped,
    )
    try:
        async with consumer:
            ends = await _start(consumer, job)
            if consumer.assignment():
                await _write_all(consumer, job, ends, signals)
    except CorruptRecordError as error:
        found = error.batch
        raise ClientError(
            f"cannot read {found}; --skip-corrupt goes on behind it, --offset {found.next_offset} "
            f"--partition {found.partition.partition} starts there"
        ) from None
    finally:
        job.skipped.sum_up()


async def _start(consumer: Consumer, job: Job) -> dict[int, int]:
    """Has the consumer read where the job starts; gives each partition's offset to stop at, if it is to stop at any."""
    places = await _places(consumer.client, job)
    positions = await start_offsets(consumer, places, job.start)
    ends = await consumer.end_offsets(places) if job.until_end else {}
    if ends:
        places = [place for place in places if positions[place] < ends[place]]
    consumer.assign(places)
    for place in places:
        consumer.seek(place, positions[place])
    return {place.partition: end for place, end in ends.items()}


async def _places(client: Client, job: Job) -> list[TopicPartition]:
    known = await client.partitions(job.topic)
    for partition in job.partitions:
        if partition not in known:
            subject = f"partition {partition} of topic {job.topic}"
            raise RefusedError(subject, ErrorCode.unknown_topic_or_partition)
    return [TopicPartition(job.topic, partition) for partition in job.partitions or sorted(known)]


async def _write_all(consumer: Consumer, job: Job, ends: Mapping[int, int], signals: StopSignals) -> None:
    left = job.max_records
    patience = Patience(consumer, job.timeout_s)
    while True:
        most = _RECORDS_AT_ONCE if left is None else min(left, _RECORDS_AT_ONCE)
        try:
            # Positions also move past what nobody gets to see, of which a poll does not tell.
            records = await consumer.poll(_LOOK_S if ends else patience.left_s, max_records=most)
        except OffsetOutOfRangeError as error:
            await _skip_gap(consumer, error)
            continue
        if ends:
            records = [record for record in records if record.offset < ends[record.partition]]
        with signals.breakable():
            _write(records, job)
        if left is not None:
            left -= len(records)
            if left <= 0:
                return
        if ends and not await _stop_at(consumer, ends):
            return
        if patience.is_over(bool(records)):
            return


async def _stop_at(consumer: Consumer, ends: Mapping[int, int]) -> bool:
    """Stops reading partitions that have reached their end; False when there is nothing left to read."""
    reading = consumer.assignment()
    unread = [place for place in reading if await consumer.position(place) < ends[place.partition]]
    if len(unread) < len(reading):
        consumer.assign(unread)
    return bool(unread)


async def _skip_gap(consumer: Consumer, error: OffsetOutOfRangeError) -> None:
    """Goes on at the log's start when the wanted records were deleted; past its end is an error."""
    place, wanted = error.partition, error.offset
    first = (await consumer.beginning_offsets([place]))[place]
    if wanted >= first:
        subject = f"offset {wanted} of partition {place.partition} of topic {place.topic}"
        raise RefusedError(subject, ErrorCode.offset_out_of_range) from None
    complain(f"offsets {wanted} to {first - 1} of partition {place.partition} are gone; going on at {first}")
    consumer.seek(place, first)


def _write(records: Sequence[Record], job: Job) -> None:
    if not records:
        return
    if job.formatter is None:
        _write_whole(_plain(records, job))
    else:
        _write_whole(b"".join([job.formatter(record) for record in records]))


def _write_whole(data: bytes) -> None:
    # Past sys.stdout, which takes a part of the data for the whole of it when Python runs unbuffered.
    left, out = memoryview(data), sys.stdout.fileno()
    while left:
        left = left[os.write(out, left) :]


def _plain(records: Sequence[Record], job: Job) -> bytes:
    values = [record.value for record in records]
    if job.plain_clean is not as_it_is:
        values = [None if value is None else job.plain_clean(value) for value in values]
    values.append(b"")  # so that the last record is ended too
    if None in values:
        return job.plain_line_end.join([job.plain_null if value is None else value for value in values])
    return job.plain_line_end.join(values)
