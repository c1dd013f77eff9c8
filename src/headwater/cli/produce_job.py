"""One run of `headwater produce`: from input to acknowledged records, and an account of how far it got."""

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from headwater.cli.line_input import Lines, LineTooLongError, read_lines
from headwater.cli.line_records import BadLineError, Batcher, LineFormat
from headwater.cli.progress import Progress, progress_for
from headwater.client import Client, ClientError
from headwater.client.thin.producer import Acknowledged, BatchProducer, now_ms

_LAST_FLUSH_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What was asked for. Without a delimiter every file is one record."""

    topic: str
    paths: Sequence[str]
    line_format: LineFormat
    delimiter: bytes | None
    partition: int | None
    compression: int
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


async def run_job(client: Client, job: Job) -> Account:
    """Produces all input; once that has begun, what stops it (Ctrl-C too) is part of the account."""
    producer = BatchProducer(client, job.topic, compression=job.compression)
    partitions = await producer.start()
    if job.partition is not None:
        await client.leader(job.topic, job.partition)
    task = asyncio.current_task()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: task and task.cancel())
    account = Account()
    started = time.perf_counter()
    with progress_for(job.paths) as progress:
        try:
            await _produce_all(
                producer,
                job,
                Batcher(partitions, job.batch_bytes, partition=job.partition),
                account,
                progress,
            )
            await producer.flush()
        except (ClientError, BadLineError, LineTooLongError, OSError) as error:
            account.error = str(error)
            await _flush_a_little(producer)
        except asyncio.CancelledError:
            account.interrupted = True
            await _flush_a_little(producer)
    account.seconds = time.perf_counter() - started
    account.acknowledged = producer.acknowledged_records
    account.partitions = producer.acknowledged
    return account


async def _produce_all(
    producer: BatchProducer, job: Job, batcher: Batcher, account: Account, progress: Progress
) -> None:
    keyed = job.line_format.key_separator is not None
    source = _whole_files(job.paths) if job.delimiter is None else read_lines(job.paths, job.delimiter)
    async for piece in source:
        account.lines += len(piece.lines)
        account.bytes_read += piece.size_bytes
        batcher.add(job.line_format.records(piece.lines, now_ms()), keyed)
        for partition, records in batcher.all_batches() if piece.pause else batcher.full_batches():
            await producer.send(partition, records)
        progress.update(account.bytes_read, producer.acknowledged_records)
    for partition, records in batcher.all_batches():
        await producer.send(partition, records)


async def _flush_a_little(producer: BatchProducer) -> None:
    """Waits for what is on its way; what does not arrive shows in the number of acknowledged lines."""
    try:
        async with asyncio.timeout(_LAST_FLUSH_S):
            await producer.flush()
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
