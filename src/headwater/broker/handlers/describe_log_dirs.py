"""DescribeLogDirs, v1 to v4: what lies in which log dir, and how large it is.

v3 adds an error for the whole answer (none without an authorizer), v4 the size and free space of the
volume. No topics asked for (null) means all; an empty list asks for the volumes alone. What is not here is
not listed. A partition on its way to another dir is listed there too, as a future replica with its lag behind the log:
in whole segments, and for the last one it has all or nothing.
"""

import asyncio
import posixpath
import shutil
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kio.schema.describe_log_dirs.v4.request import DescribeLogDirsRequest
from kio.schema.describe_log_dirs.v4.response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

from headwater.broker.services.partition import Partition
from headwater.log.log_dir import LogDir
from headwater.protocol.each import each
from headwater.protocol.kafka_types import NO_THROTTLE, ErrorCode, TopicName, i32, i64

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.broker.dispatch import RequestContext

_AT_ONCE: Final = 100

_RowsByTopic = dict[str, list[DescribeLogDirsPartition]]


async def handle(context: "RequestContext", request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """One result for each log dir."""
    broker = context.broker
    dirs = broker.log_dirs.dirs
    # A volume that hangs must not hold up everybody else.
    volumes = await asyncio.to_thread(lambda: [_volume(log_dir) for log_dir in dirs])
    by_dir: dict[str, _RowsByTopic] = defaultdict(lambda: defaultdict(list))
    moves = {move.log: move for move in broker.moves.all()}
    pace = context.pace
    for number, partition in enumerate(_wanted(broker, request)):
        if not number % _AT_ONCE:
            await pace.pause()
        if partition is None or partition.is_offline:
            continue
        log, name = partition.log, partition.topic.name
        lag = max(partition.high_watermark - log.log_end_offset, 0)
        by_dir[posixpath.dirname(log.path)][name].append(_row(partition.index, log.size_bytes, lag, is_future=False))
        if log in moves:
            move = moves[log]
            row = _row(partition.index, move.size_bytes, move.offset_lag, is_future=True)
            by_dir[move.target.path][name].append(row)
    return DescribeLogDirsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        results=tuple(
            _result(log_dir.path, volume, by_dir.get(log_dir.path, {}))
            for log_dir, volume in zip(dirs, volumes, strict=True)
        ),
    )


def _volume(log_dir: LogDir) -> tuple[int, int] | None:
    """Total and usable bytes of the volume that holds a dir; None when the dir is offline or cannot be asked."""
    try:
        usage = shutil.disk_usage(log_dir.path)
    except OSError:
        return None
    if log_dir.failed is not None:
        return None
    return usage.total, usage.free


def _wanted(broker: "Broker", request: DescribeLogDirsRequest) -> Iterator[Partition | None]:
    """The partitions asked for, each once; None for one that is not here or was named before."""
    known = broker.topics.by_name
    if request.topics is None:
        for topic in list(known.values()):
            yield from topic.partitions
        return
    seen: set[tuple[str, int]] = set()
    for wanted in request.topics:
        yield None
        for index in wanted.partitions:
            is_new = (wanted.topic, index) not in seen and broker.topics.has_partition(wanted.topic, index)
            if is_new:
                seen.add((wanted.topic, index))
            yield broker.topics.partition(wanted.topic, index) if is_new else None


def _result(path: str, volume: tuple[int, int] | None, topics: _RowsByTopic) -> DescribeLogDirsResult:
    if volume is None:
        return DescribeLogDirsResult(error_code=ErrorCode.kafka_storage_error, log_dir=path, topics=())
    total_bytes, usable_bytes = volume
    return DescribeLogDirsResult(
        error_code=ErrorCode.none,
        log_dir=path,
        topics=each(
            lambda topic: DescribeLogDirsTopic(name=TopicName(topic[0]), partitions=tuple(topic[1])), topics.items()
        ),
        total_bytes=i64(total_bytes),
        usable_bytes=i64(usable_bytes),
    )


def _row(index: int, size_bytes: int, offset_lag: int, *, is_future: bool) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=i32(index),
        partition_size=i64(size_bytes),
        offset_lag=i64(offset_lag),
        is_future_key=is_future,
    )
