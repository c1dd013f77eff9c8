"""One run of `headwater produce`: from input to acknowledged records, and an account of how far it got."""

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from headwater.cli.bulk_sending import LARGEST_BYTES, Acknowledged, BulkSender
from headwater.cli.line_input import Lines, LineTooLongError, read_lines
from headwater.cli.line_records import BadLineError, LineFormat
from headwater.cli.output import CLIENT_ID
from headwater.cli.progress import Progress, progress_for
from headwater.client.errors import ClientError
from headwater.client.producer.producer import Producer

_LAST_FLUSH_S: Final = 5.0
_LINGER_MS: Final = 20
"""Nobody who types notices, and a batch that is being filled from a file is full by then."""
_RECORD_OVERHEAD_BYTES: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What was asked for. Without a delimiter every file is one record."""

    topic: str
    paths: Sequence[str]
    line_format: LineFormat
    delimiter: bytes | None
    partition: int | None
    compression: str
    batch_bytes: int


@dataclass(slots=True, kw_only=True)
class Account:
    """How far a job got. `error` says what stopped it."""

    lines: int = 0
    bytes_read: int = 0
    seconds: float = 0.0
    acknowledged: int = 0
    partitions: Mapping[int, Acknowledged] = field(default_factory=dict)
    error: str | None = None
    interrupted: bool = False


async def run_job(bootstrap: str, job: Job) -> Account:
    """Produces all input; once that has begun, what stops it (Ctrl-C too) is part of the account."""
    producer = Producer(
        bootstrap,
        client_id=CLIENT_ID,
        batch_size=job.batch_bytes,
        linger_ms=_LINGER_MS,
        compression_type=job.compression,
        max_request_size=LARGEST_BYTES,
        buffer_memory=LARGEST_BYTES,
    )
    try:
        await producer.client.topic(job.topic, create_missing=True)
        if job.partition is not None:
            await producer.client.leader(job.topic, job.partition)
        await producer.wait_for_topic(job.topic)
        return await _run(producer, job)
    finally:
        # What could still be sent was given its time.
        await producer.close(timeout_s=0)


async def _run(producer: Producer, job: Job) -> Account:
    task = asyncio.current_task()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: task and task.cancel())
    account, sender = Account(), BulkSender(producer, job.topic)
    started = time.perf_counter()
    with progress_for(job.paths) as progress:
        try:
            await _produce_all(producer, sender, job, account, progress)
            await sender.flush()
        except (ClientError, BadLineError, LineTooLongError, OSError) as error:
            account.error = str(error)
            await _flush_a_little(sender)
        except asyncio.CancelledError:
            account.interrupted = True
            await _flush_a_little(sender)
    account.seconds = time.perf_counter() - started
    account.acknowledged = sender.acknowledged_records
    account.partitions = sender.acknowledged
    return account


async def _produce_all(producer: Producer, sender: BulkSender, job: Job, account: Account, progress: Progress) -> None:
    source = _whole_files(job.paths) if job.delimiter is None else read_lines(job.paths, job.delimiter)
    spread = _Spread(producer, job)
    async for piece in source:
        account.lines += len(piece.lines)
        account.bytes_read += piece.size_bytes
        if job.line_format.plain:
            for partition, values in spread.parts(piece):
                await sender.send_values(partition, values)
        else:
            await sender.send(job.line_format.records(piece.lines), job.partition)
        progress.update(account.bytes_read, sender.acknowledged_records)


class _Spread:
    """Gives plain values their partition: the one asked for, else another for every batch and after every pause."""

    def __init__(self, producer: Producer, job: Job) -> None:
        self._records = producer.records
        self._job = job
        self._partition = 0
        self._room_bytes = 0

    def parts(self, piece: Lines) -> Iterator[tuple[int, Sequence[bytes]]]:
        """All lines of a piece in parts for one partition each."""
        lines, job = piece.lines, self._job
        if job.partition is not None:
            if lines:
                yield job.partition, lines
            return
        line_bytes = sum(map(len, lines)) // len(lines) + _RECORD_OVERHEAD_BYTES if lines else 0
        start = 0
        while start < len(lines):
            if self._room_bytes <= 0:
                self._partition = self._records.partition_without_key(job.topic)
                self._room_bytes = job.batch_bytes
            end = start + max(1, self._room_bytes // line_bytes)
            part = lines[start:end]
            self._room_bytes -= len(part) * line_bytes
            start = end
            yield self._partition, part
        if piece.pause:
            self._room_bytes = 0


async def _flush_a_little(sender: BulkSender) -> None:
    """Waits for what is on its way; what does not arrive shows in the number of acknowledged lines."""
    try:
        async with asyncio.timeout(_LAST_FLUSH_S):
            await sender.flush()
    except (ClientError, TimeoutError):
        pass


async def _whole_files(paths: Sequence[str]) -> AsyncIterator[Lines]:
    for path in paths:
        if path == "-":
            content = sys.stdin.buffer.read()
        else:
            with open(path, "rb") as file:  # noqa: ASYNC230 (nothing else is waiting for this loop)
                content = file.read()
        yield Lines([content], len(content), pause=False)
        await asyncio.sleep(0)
