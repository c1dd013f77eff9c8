"""How offsets go: deleted by request, with their group or topic, or by age.

By age: an offset that nobody is subscribed to any more goes `offsets.retention.minutes` after the time that its group
names (see `offset_expiry_base_ms`), or at the time that was written with it; never while a transaction is about to
change it. A group with neither members nor offsets goes too.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from headwater.config.broker_attributes import BrokerAttributes
from headwater.coordinator.group.group import Group
from headwater.coordinator.group.offsets import CommittedOffsets
from headwater.coordinator.group.records import OFFSET, OffsetKey, OffsetValue
from headwater.coordinator.outcome import CoordinatorRecord, Outcome, TopicDirectory
from headwater.protocol.errors import ApiError, ErrorCode
from headwater.protocol.kafka_types import NO_THROTTLE

from kio.schema.offset_delete.v0.request import OffsetDeleteRequest, OffsetDeleteRequestTopic  # isort: skip
from kio.schema.offset_delete.v0.response import (  # isort: skip
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

_MINUTE_MS: Final = 60_000
_AT_ONCE: Final = 1000


class Removals:
    """Takes offsets, and groups that need none, out of a shard."""

    def __init__(
        self,
        *,
        groups: Mapping[str, Group],
        offsets: CommittedOffsets,
        config: Callable[[], BrokerAttributes],
        topics: TopicDirectory,
    ) -> None:
        self._groups = groups
        self._offsets = offsets
        self._config = config
        self._topics = topics

    def delete_offsets(self, request: OffsetDeleteRequest) -> Outcome:
        """OffsetDelete: only of topics that no member reads; ApiError when the group forbids it as a whole."""
        group = self._group(request.group_id)
        group.check_offset_delete()
        outcome = Outcome()
        outcome.response = OffsetDeleteResponse(
            error_code=ErrorCode.none,
            throttle_time=NO_THROTTLE,
            topics=tuple(
                OffsetDeleteResponseTopic(
                    name=topic.name,
                    partitions=tuple(
                        OffsetDeleteResponsePartition(partition_index=partition, error_code=code)
                        for partition, code in self._decide(group, topic, outcome)
                    ),
                )
                for topic in request.topics
            ),
        )
        return outcome

    def _decide(
        self, group: Group, topic: OffsetDeleteRequestTopic, outcome: Outcome
    ) -> Iterable[tuple[Any, ErrorCode]]:
        count = self._topics.partition_count(topic.name) or 0
        is_read = group.is_subscribed_to(topic.name)
        for partition in topic.partitions:
            index = partition.partition_index
            if not 0 <= index < count:
                yield index, ErrorCode.unknown_topic_or_partition
            elif is_read:
                yield index, ErrorCode.group_subscribed_to_topic
            else:
                key = OffsetKey(group.group_id, topic.name, index)
                if self._offsets.get(key.group, key.topic, key.partition) is not None or self._offsets.is_pending(key):
                    outcome.records.append(_tombstone(key))
                yield index, ErrorCode.none

    def delete_group(self, group_id: str) -> Outcome:
        """DeleteGroups for one group: it goes with all its offsets, those of open transactions too."""
        group = self._group(group_id)
        group.check_deletable()
        records = [_tombstone(key) for key in self._offsets.keys_of_group(group_id)]
        return Outcome(response=ErrorCode.none, records=records + group.tombstones())

    def topics_deleted(self, names: Collection[str]) -> Iterator[Outcome]:
        """The offsets of topics that are gone go with them: an outcome for about every thousand that are looked at."""
        gone = frozenset(names)
        outcome, looked_at = Outcome(), 0
        for group_id in list(self._offsets.group_ids()):
            for key in list(self._offsets.keys_of_group(group_id)):
                looked_at += 1
                if key.topic in gone:
                    outcome.records.append(_tombstone(key))
                if looked_at >= _AT_ONCE:
                    yield outcome
                    outcome, looked_at = Outcome(), 0
        yield outcome

    def expire(self, now_ms: int) -> Iterator[Outcome]:
        """Offsets that are too old go, and groups that have nothing left.

        An outcome for about every thousand offsets: between two of them others may be served.
        """
        outcome, looked_at = Outcome(), 0
        for group_id in list(self._groups):
            group = self._groups.get(group_id)
            if group is None:
                continue
            offsets = list(self._offsets.of_group(group_id))
            expired = [key for key, value in offsets if self._is_expired(group, key, value, now_ms)]
            outcome.records += map(_tombstone, expired)
            has_nothing = len(expired) == len(offsets) and not self._offsets.has_pending(group_id)
            if group.is_empty and has_nothing:
                outcome.records += group.tombstones()
            looked_at += 1 + len(offsets)
            if looked_at >= _AT_ONCE:
                yield outcome
                outcome, looked_at = Outcome(), 0
        yield outcome

    def _is_expired(self, group: Group, key: OffsetKey, value: OffsetValue, now_ms: int) -> bool:
        base_ms = group.offset_expiry_base_ms(value.commit_timestamp_ms)
        if base_ms is None or group.is_subscribed_to(key.topic) or self._offsets.is_pending(key):
            return False
        if value.expire_timestamp_ms != -1:
            return now_ms >= value.expire_timestamp_ms
        return now_ms - base_ms >= self._config().offsets_retention_minutes * _MINUTE_MS

    def _group(self, group_id: str) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.group_id_not_found)
        return group


def _tombstone(key: OffsetKey) -> CoordinatorRecord:
    return OFFSET.record(key, None)
