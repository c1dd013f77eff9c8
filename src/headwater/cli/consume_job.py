"""One run of `headwater consume`: fetched batches formatted and written until it is enough."""

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn

from headwater.cli.output import complain
from headwater.cli.record_format import Formatter, Origin
from headwater.cli.start_position import StartAt, start_offsets
from headwater.client import Client, RefusedError
from headwater.client.thin.fetcher import Fetched, Fetcher
from headwater.client.thin.offsets import Isolation, Spot, list_offsets
from headwater.protocol.errors import ErrorCode
from headwater.protocol.records import Record, decode_records
from headwater.types import TopicPartition


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
    formatter: Formatter | None
    plain_line_end: bytes
    plain_null: bytes


async def run_job(client: Client, job: Job) -> None:
    """Writes records to stdout until the job's end; a job without an end goes on until it is stopped."""
    isolation = Isolation.READ_COMMITTED if job.read_committed else Isolation.READ_UNCOMMITTED
    places = await _places(client, job)
    positions = await start_offsets(client, places, job.start, isolation)
    ends: dict[int, int] = {}
    if job.until_end:
        latest = await list_offsets(client, places, Spot.LATEST, isolation=isolation)
        ends = {place.partition: found.offset for place, found in latest.items()}
        positions = {p: offset for p, offset in positions.items() if offset < ends[p]}
    fetcher = Fetcher(client, job.topic, positions, isolation=isolation, max_wait_s=job.timeout_s, on_gap=_tell_gap)
    await _write_all(fetcher, job, ends)


async def _places(client: Client, job: Job) -> list[TopicPartition]:
    known = await client.partitions(job.topic)
    for partition in job.partitions:
        if partition not in known:
            subject = f"partition {partition} of topic {job.topic}"
            raise RefusedError(subject, ErrorCode.unknown_topic_or_partition)
    return [TopicPartition(job.topic, partition) for partition in job.partitions or sorted(known)]


async def _write_all(fetcher: Fetcher, job: Job, ends: dict[int, int]) -> None:
    left = job.max_records
    last_news_s = time.monotonic()
    async with aclosing(fetcher.batches()) as answers:
        async for answer in answers:
            for fetched in answer:
                written = _write(fetched, job, left, ends.get(fetched.partition))
                if written:
                    last_news_s = time.monotonic()
                if left is not None:
                    left -= written
                    if left <= 0:
                        return
                if ends and fetched.next_offset >= ends[fetched.partition]:
                    fetcher.stop_reading(fetched.partition)
            if job.timeout_s is not None and time.monotonic() - last_news_s >= job.timeout_s:
                return


def _write(fetched: Fetched, job: Job, limit: int | None, end: int | None) -> int:
    """Writes the records of one answer and returns how many there were."""
    written = 0
    pieces: list[bytes] = []
    for batch in fetched.batches:
        records: Sequence[Record] = decode_records(fetched.buffer, batch)
        if batch.base_offset < fetched.first_offset:
            records = [record for record in records if record.offset >= fetched.first_offset]
        if end is not None and batch.last_offset >= end:
            records = [record for record in records if record.offset < end]
        if limit is not None:
            records = records[: limit - written]
        if not records:
            continue
        written += len(records)
        if job.formatter is None:
            pieces.append(_plain(records, job))
        else:
            origin = Origin(topic=job.topic, partition=fetched.partition, log_append_time=batch.is_log_append_time)
            pieces.extend([job.formatter(record, origin) for record in records])
    _write_whole(b"".join(pieces))
    return written


def _write_whole(data: bytes) -> None:
    # Past sys.stdout, which takes a part of the data for the whole of it when Python runs unbuffered.
    left, out = memoryview(data), sys.stdout.fileno()
    while left:
        left = left[os.write(out, left) :]


def _plain(records: Sequence[Record], job: Job) -> bytes:
    values = [record.value for record in records]
    values.append(b"")  # so that the last record is ended too
    if None in values:
        return job.plain_line_end.join([job.plain_null if value is None else value for value in values])
    return job.plain_line_end.join(values)  # type: ignore[arg-type]


def _tell_gap(partition: int, wanted: int, first: int) -> None:
    complain(f"offsets {wanted} to {first - 1} of partition {partition} are gone; going on at {first}")


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Ctrl-C and SIGTERM end the command at once, even while a slow reader of our output holds it up."""

    def stop(_number: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    yield
