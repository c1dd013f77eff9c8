"""The committed offsets of a shard's groups, and those that wait for the end of a transaction.

Changes only by replay. Of an offset that a transaction commits and one that was committed outside of it, the later
record counts, whenever the transaction ends.
"""

from collections.abc import Iterator
from typing import NamedTuple

from headwater.coordinator.group.records import OffsetKey, OffsetValue


class _Stored(NamedTuple):
    """An offset, and which record of the log it came with."""

    order: int
    value: OffsetValue


class CommittedOffsets:
    """Offsets by group, topic and partition."""

    def __init__(self) -> None:
        self._by_group: dict[str, dict[str, dict[int, _Stored]]] = {}
        self._by_producer: dict[int, dict[OffsetKey, _Stored]] = {}
        self._pending: dict[str, dict[OffsetKey, set[int]]] = {}
        """By group, which transactions have yet to commit an offset."""
        self._replayed = 0

    def replay(self, key: OffsetKey, value: OffsetValue | None, producer_id: int = -1) -> None:
        """Takes in a record: a commit, one of a transaction's, or a tombstone, which takes away either kind."""
        self._replayed += 1
        if value is None:
            self._remove(key)
            for producer in self._pending.get(key.group, {}).pop(key, ()):
                self._by_producer[producer].pop(key, None)
            self._tidy(key.group)
        elif producer_id == -1:
            self._put(key, _Stored(self._replayed, value))
        else:
            self._by_producer.setdefault(producer_id, {})[key] = _Stored(self._replayed, value)
            self._pending.setdefault(key.group, {}).setdefault(key, set()).add(producer_id)

    def replay_end_marker(self, producer_id: int, committed: bool) -> None:
        """The transaction of a producer ended: its offsets count from now on, or never did."""
        for key, stored in self._by_producer.pop(producer_id, {}).items():
            in_group = self._pending[key.group]
            in_group[key].discard(producer_id)
            if not in_group[key]:
                del in_group[key]
            self._tidy(key.group)
            current = self._stored(key)
            if committed and (current is None or stored.order > current.order):
                self._put(key, stored)

    def get(self, group_id: str, topic: str, partition: int) -> OffsetValue | None:
        """A committed offset."""
        stored = self._by_group.get(group_id, {}).get(topic, {}).get(partition)
        return None if stored is None else stored.value

    def of_group(self, group_id: str) -> Iterator[tuple[OffsetKey, OffsetValue]]:
        """All committed offsets of a group, topic by topic."""
        for topic, partitions in self._by_group.get(group_id, {}).items():
            for partition, stored in partitions.items():
                yield OffsetKey(group_id, topic, partition), stored.value

    def is_pending(self, key: OffsetKey) -> bool:
        """Whether a transaction that has not ended would commit this offset."""
        return key in self._pending.get(key.group, ())

    def has_pending(self, group_id: str) -> bool:
        """Whether a transaction that has not ended would commit any offset of the group."""
        return group_id in self._pending

    def has_any(self, group_id: str) -> bool:
        """Whether a group has offsets, or would by a transaction."""
        return group_id in self._by_group or group_id in self._pending

    def keys_of_group(self, group_id: str) -> list[OffsetKey]:
        """What a group has committed, or would by a transaction."""
        return list(dict.fromkeys([*(key for key, _ in self.of_group(group_id)), *self._pending.get(group_id, ())]))

    def group_ids(self) -> list[str]:
        """Groups that have offsets, or would by a transaction."""
        return list(dict.fromkeys([*self._by_group, *self._pending]))

    def _stored(self, key: OffsetKey) -> _Stored | None:
        return self._by_group.get(key.group, {}).get(key.topic, {}).get(key.partition)

    def _put(self, key: OffsetKey, stored: _Stored) -> None:
        self._by_group.setdefault(key.group, {}).setdefault(key.topic, {})[key.partition] = stored

    def _remove(self, key: OffsetKey) -> None:
        topics = self._by_group.get(key.group, {})
        partitions = topics.get(key.topic, {})
        if partitions.pop(key.partition, None) is None:
            return
        if not partitions:
            del topics[key.topic]
        if not topics:
            del self._by_group[key.group]

    def _tidy(self, group_id: str) -> None:
        if not self._pending.get(group_id, True):
            del self._pending[group_id]
