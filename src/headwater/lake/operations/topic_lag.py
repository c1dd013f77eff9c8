"""How far a load is behind its topics, asked of the brokers: offsets, and the time of the first record not yet read."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headwater.catalog.positions import Position
from headwater.lake.datasource.brokers import Brokers
from headwater.lake.datasource.spots import LATEST
from headwater.lake.datasource.topic_offsets import TopicRange, find_ranges, topic_ids
from headwater.lake.datasource.topic_reader import read_range
from headwater.lake.sources.topics import TopicSource, made_anew, offsets_of

_WIDER: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """One partition: the next load reads from `start` on and before `end`.

    `lost` offsets lie between the position and `start`: the log does not have them any more. A position that is
    `beyond` the end of the log was that of another log: the topic was cut or made anew. That it was `made_anew` is sure
    where brokers give topics ids: the whole of the new one is left to load then.
    """

    topic: str
    partition: int
    start: int
    end: int
    lost: int = 0
    beyond: int = 0
    made_anew: bool = False
    first_unread_ms: int | None = None

    @property
    def records(self) -> int:
        """How many offsets are left to read: records at most."""
        return self.end - self.start


def topic_lag(source: TopicSource, position: Position | None) -> tuple[PartitionLag, ...]:
    """What is left of each partition. A partition without a position begins where a first load would begin."""
    with Brokers(source.bootstrap, source.settings) as brokers:
        anew = made_anew(position, topic_ids(brokers, source.topics))
        read = {topic: offsets for topic, offsets in offsets_of(position).items() if topic not in anew}
        starts = source.starts(None if position is None else {"topics": read})
        ranges = find_ranges(brokers, source.topics, starts, LATEST, data_loss="skip")
        return tuple(_partition_lag(brokers, found, read, found.topic in anew) for found in ranges)


def _partition_lag(
    brokers: Brokers, found: TopicRange, read: Mapping[str, Mapping[str, int]], is_new: bool
) -> PartitionLag:
    position = read.get(found.topic, {}).get(str(found.partition), found.start)
    return PartitionLag(
        topic=found.topic,
        partition=found.partition,
        start=found.start,
        end=found.end,
        lost=max(0, found.start - position),
        beyond=max(0, position - found.end),
        made_anew=is_new,
        first_unread_ms=_first_timestamp_ms(brokers, found),
    )


def _first_timestamp_ms(brokers: Brokers, unread: TopicRange) -> int | None:
    """The time of the first record. Where compaction or transactions left a gap, wider ranges are looked at."""
    start, width = unread.start, 1
    while start < unread.end:
        stop = min(start + width, unread.end)
        part = TopicRange(topic=unread.topic, partition=unread.partition, start=start, end=stop, size_bytes=0)
        for batch in list(
            read_range(brokers, part, columns=("_timestamp",), data_loss="skip", on_corrupt=lambda _: None)
        ):
            if batch.num_rows:
                return int(batch.column(0)[0].as_py().timestamp() * 1000)
        start, width = stop, width * _WIDER
    return None
