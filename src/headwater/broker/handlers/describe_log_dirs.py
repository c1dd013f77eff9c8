"""DescribeLogDirs, v1 to v4: what lies in which log dir, and how large it is.

v3 adds an error for the whole answer (none without an authorizer), v4 the size and free space of the
volume. No topics asked for (null) means all; an empty list asks for the volumes alone. What is not here is
not listed.
Left out: replicas on the way to another dir, as AlterReplicaLogDirs is not served.
"""

import asyncio
import os.path
import shutil
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kio.schema.describe_log_dirs.v4.request import DescribeLogDirsRequest
from kio.schema.describe_log_dirs.v4.response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

from headwater.broker.services.partition import Partition
from headwater.protocol.kafka_types import NO_THROTTLE, ErrorCode, TopicName, i32, i64

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.broker.dispatch import RequestContext

_PartitionsByTopic = dict[str, list[Partition]]


async def handle(context: "RequestContext", request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """One result for each log dir."""
    broker = context.broker
    paths = [log_dir.path for log_dir in broker.log_dirs.dirs]
    # A volume that hangs must not hold up everybody else.
    volumes = await asyncio.to_thread(lambda: [_volume(path) for path in paths])
    by_dir: dict[str, _PartitionsByTopic] = defaultdict(lambda: defaultdict(list))
    for partition in _wanted(broker, request):
        by_dir[os.path.dirname(partition.log.path)][partition.topic.name].append(partition)
    return DescribeLogDirsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        results=tuple(_result(path, volume, by_dir.get(path, {})) for path, volume in zip(paths, volumes, strict=True)),
    )


def _volume(path: str) -> tuple[int, int] | None:
    """Total and usable bytes of the volume that holds `path`; None when it cannot be asked."""
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return None
    return usage.total, usage.free


def _wanted(broker: "Broker", request: DescribeLogDirsRequest) -> Iterable[Partition]:
    known = broker.topics.by_name
    if request.topics is None:
        for topic in known.values():
            yield from topic.partitions
        return
    asked: dict[str, set[int]] = defaultdict(set)
    for wanted in request.topics:
        asked[wanted.topic].update(wanted.partitions)
    for name, indexes in asked.items():
        if name in known:
            yield from (partition for partition in known[name].partitions if partition.index in indexes)


def _result(path: str, volume: tuple[int, int] | None, topics: _PartitionsByTopic) -> DescribeLogDirsResult:
    if volume is None:
        return DescribeLogDirsResult(error_code=ErrorCode.kafka_storage_error, log_dir=path, topics=())
    total_bytes, usable_bytes = volume
    return DescribeLogDirsResult(
        error_code=ErrorCode.none,
        log_dir=path,
        topics=tuple(
            DescribeLogDirsTopic(name=TopicName(name), partitions=_rows(partitions))
            for name, partitions in topics.items()
        ),
        total_bytes=i64(total_bytes),
        usable_bytes=i64(usable_bytes),
    )


def _rows(partitions: Sequence[Partition]) -> tuple[DescribeLogDirsPartition, ...]:
    return tuple(
        DescribeLogDirsPartition(
            partition_index=i32(partition.index),
            partition_size=i64(partition.log.size_bytes),
            offset_lag=i64(max(partition.high_watermark - partition.log.log_end_offset, 0)),
            is_future_key=False,
        )
        for partition in partitions
    )
