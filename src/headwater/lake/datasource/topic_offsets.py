"""What there is to read of topics: asks the brokers for offsets and sizes. Needs no Spark.

Nothing is read here and nothing remembered: a range is two offsets, and can be read as often as one likes.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from headwater.client.admin.log_dirs import describe_log_dirs
from headwater.client.client import Client
from headwater.client.consumer.offsets import find_offsets
from headwater.client.consumer.resets import EARLIEST_MS, LATEST_MS
from headwater.client.consumer.settings import ConsumerSettings
from headwater.client.errors import ClientError, RefusedError
from headwater.lake.datasource.brokers import Brokers
from headwater.lake.datasource.spots import AtOffset, AtTime, DataLoss, Earliest, Latest, Spot, Spots, parse_spots
from headwater.lake.errors import LakeError, LakeUsageError
from headwater.protocol.kafka_types import ErrorCode
from headwater.types import TopicPartition

ASSUMED_RECORD_BYTES: Final = 256
"""How large a record is taken for where brokers do not tell how large their logs are."""

Offsets: TypeAlias = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRange:
    """The records of a partition from offset `start` on and before offset `end`; `size_bytes` is an estimate."""

    topic: str
    partition: int
    start: int
    end: int
    size_bytes: int
    begins: bool = True
    """Whether nothing of the partition is read before it: what lies across its start belongs to it then."""

    @property
    def offsets(self) -> int:
        """How many offsets it has: records at most, as some may be compacted away or mark transactions."""
        return self.end - self.start


def resolve_ranges(
    bootstrap: str,
    topics: Sequence[str],
    starting: str = "earliest",
    ending: str = "latest",
    settings: Mapping[str, object] | None = None,
    *,
    data_loss: DataLoss = "fail",
) -> list[TopicRange]:
    """What to read of each partition of the topics, in order; a range without offsets has `start == end`.

    `starting` and `ending` are what the options of the data source may be (`spots`), `settings` are a consumer's by
    Kafka's names. Unless `isolation.level` says otherwise, `latest` is the end of what is committed.

    >>> resolve_ranges("localhost:9092", ["orders"], '{"orders": {"0": 12}}')  # doctest: +SKIP
    [TopicRange(topic='orders', partition=0, start=12, end=40, size_bytes=2800)]
    """
    starts = parse_spots("starting", starting, others=Earliest())
    ends = parse_spots("ending", ending, others=Latest())
    with Brokers(bootstrap, settings or {}) as brokers:
        return find_ranges(brokers, topics, starts, ends, data_loss=data_loss)


def find_ranges(
    brokers: Brokers, topics: Sequence[str], starts: Spots, ends: Spots, *, data_loss: DataLoss
) -> list[TopicRange]:
    """As `resolve_ranges`, with brokers that are connected already."""

    async def ask(client: Client) -> list[TopicRange]:
        partitions = await _partitions(client, brokers.bootstrap, topics)
        _check_named(partitions, starts, ends)
        log = await _log_ends(client, brokers.settings, partitions)
        start = await _offsets_of(client, brokers.settings, partitions, starts, log)
        end = await _offsets_of(client, brokers.settings, partitions, ends, log)
        bounds = {each: _bounded(each, start[each], end[each], log, data_loss) for each in partitions}
        sizes = await _sizes(client, [each for each, (first, behind) in bounds.items() if first < behind])
        return [_range(each, *bounds[each], log, sizes) for each in partitions]

    return brokers.run(ask)


def topic_ids(brokers: Brokers, topics: Sequence[str]) -> dict[str, str]:
    """The ids of the topics, where brokers have such: one that was deleted and made anew has another."""

    async def ask(client: Client) -> dict[str, str]:
        await _partitions(client, brokers.bootstrap, topics)
        found = {topic: client.topic_id(topic) for topic in topics}
        return {topic: str(topic_id) for topic, topic_id in found.items() if topic_id is not None}

    return brokers.run(ask)


def timestamp_offsets(brokers: Brokers, ranges: Collection[TopicRange], timestamp_ms: int) -> Offsets:
    """The first offset at or after a time in these partitions; those where there is none are left out."""
    partitions = [TopicPartition(each.topic, each.partition) for each in ranges]

    async def ask(client: Client) -> Offsets:
        found = await _find(client, brokers.settings, dict.fromkeys(partitions, max(timestamp_ms, 0)))
        return {partition: offset for partition, offset in found.items() if offset is not None}

    return brokers.run(ask) if partitions else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class _LogEnds:
    """What the logs have: from `earliest` on, before `latest`."""

    earliest: Offsets
    latest: Offsets


async def _partitions(client: Client, bootstrap: str, topics: Sequence[str]) -> list[TopicPartition]:
    try:
        found = await asyncio.gather(*(client.partitions(topic) for topic in topics))
    except RefusedError as error:
        if error.code is ErrorCode.unknown_topic_or_partition:
            raise LakeUsageError(f"{error.subject} does not exist at {bootstrap}: check its name") from None
        raise
    return [
        TopicPartition(topic, number)
        for topic, numbers in zip(topics, found, strict=True)
        for number in sorted(numbers)
    ]


def _check_named(partitions: Sequence[TopicPartition], starts: Spots, ends: Spots) -> None:
    for option, spots in (("starting", starts), ("ending", ends)):
        strangers = sorted(spots.named.keys() - set(partitions))
        if strangers:
            names = ", ".join(map(str, strangers))
            raise LakeUsageError(f"{option} names partitions that are not read, or not there: {names}")


async def _log_ends(client: Client, settings: ConsumerSettings, partitions: Sequence[TopicPartition]) -> _LogEnds:
    earliest, latest = await asyncio.gather(
        _find(client, settings, dict.fromkeys(partitions, EARLIEST_MS)),
        _find(client, settings, dict.fromkeys(partitions, LATEST_MS)),
    )
    return _LogEnds(
        earliest={partition: offset or 0 for partition, offset in earliest.items()},
        latest={partition: offset or 0 for partition, offset in latest.items()},
    )


async def _offsets_of(
    client: Client, settings: ConsumerSettings, partitions: Sequence[TopicPartition], spots: Spots, log: _LogEnds
) -> Offsets:
    wanted: dict[TopicPartition, Spot] = {partition: spots.of(partition) for partition in partitions}
    by_time = {partition: spot.timestamp_ms for partition, spot in wanted.items() if isinstance(spot, AtTime)}
    found = await _find(client, settings, by_time) if by_time else {}
    offsets: dict[TopicPartition, int] = {}
    for partition, spot in wanted.items():
        there = found.get(partition)
        if isinstance(spot, AtOffset):
            offsets[partition] = spot.offset
        elif isinstance(spot, Earliest):
            offsets[partition] = log.earliest[partition]
        else:
            offsets[partition] = log.latest[partition] if there is None else there
    return offsets


async def _find(
    client: Client, settings: ConsumerSettings, timestamps_ms: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | None]:
    timeout_s = settings.default_api_timeout_ms / 1000
    found = await find_offsets(client, timestamps_ms, read_committed=settings.read_committed, timeout_s=timeout_s)
    return {partition: None if there is None else there.offset for partition, there in found.items()}


def _bounded(partition: TopicPartition, start: int, end: int, log: _LogEnds, data_loss: DataLoss) -> tuple[int, int]:
    """The range without what the log does not have, which is an error unless it may be skipped."""
    earliest, latest = log.earliest[partition], log.latest[partition]
    if data_loss == "fail":
        if start < earliest:
            raise LakeError(
                f"partition {partition} has lost offsets {start} to {earliest - 1}: its log begins at {earliest}. "
                "Read on without them with the option data.loss = skip, or start at earliest"
            )
        if max(start, end) > latest:
            raise LakeError(
                f"partition {partition} ends at offset {latest}, and {max(start, end)} is asked for: the topic was cut "
                "or made anew, or a transaction is still open. Read what is there with the option data.loss = skip"
            )
    start = min(max(start, earliest), latest)
    return start, max(start, min(end, latest))


async def _sizes(client: Client, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
    """How large the logs are, where the brokers tell."""
    sizes: dict[TopicPartition, int] = {}
    if not partitions:
        return sizes
    try:
        results = await describe_log_dirs(client, partitions=partitions)
    except ClientError:
        # Who may read need not be allowed to ask this, and old brokers do not serve it.
        return sizes
    for log_dirs in results.succeeded.values():
        for replica in (replica for log_dir in log_dirs for replica in log_dir.replicas if not replica.is_future):
            sizes[replica.partition] = max(replica.size_bytes, sizes.get(replica.partition, 0))
    return sizes


def _range(
    partition: TopicPartition, start: int, end: int, log: _LogEnds, sizes: Mapping[TopicPartition, int]
) -> TopicRange:
    in_log = log.latest[partition] - log.earliest[partition]
    size = sizes.get(partition, in_log * ASSUMED_RECORD_BYTES)
    share = size * (end - start) // in_log if in_log > 0 else 0
    return TopicRange(topic=partition.topic, partition=partition.partition, start=start, end=end, size_bytes=share)
