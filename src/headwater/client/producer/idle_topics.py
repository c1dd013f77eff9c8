"""Which topics a producer has no use for any more: `metadata.max.idle.ms`. Sans-IO: times are passed in.

Nothing is noted when a record is sent, which would cost each of them. Instead the batches of each topic are counted now
and then: a count that stays the same, with nothing waiting, is a topic that nothing was sent to.
"""

from collections.abc import Iterable
from typing import NamedTuple

from headwater.client.producer.queues import TopicQueue


class _Seen(NamedTuple):
    batches: int
    since_ms: int


class IdleTopics:
    """Looks at topics now and then, and finds those that were not used for `max_idle_ms`."""

    def __init__(self, max_idle_ms: int) -> None:
        self._max_idle_ms = max_idle_ms
        self._seen: dict[str, _Seen] = {}

    def find(self, topics: Iterable[TopicQueue], now_ms: int) -> list[str]:
        """The names of those that are idle; they are looked at anew when they come again."""
        seen: dict[str, _Seen] = {}
        idle = []
        for topic in topics:
            batches = sum(queue.next_order for queue in topic.partitions)
            last = self._seen.get(topic.name)
            if last is None or last.batches != batches or any(queue.batches for queue in topic.partitions):
                last = _Seen(batches, now_ms)
            if now_ms - last.since_ms < self._max_idle_ms:
                seen[topic.name] = last
            else:
                idle.append(topic.name)
        self._seen = seen
        return idle
