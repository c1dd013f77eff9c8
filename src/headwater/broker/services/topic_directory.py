"""The broker's topics as its group coordinator sees them, and which of them match the patterns of consumers.

Matching may take long, so it is done ahead, in slices (`learn`): what was found is kept, and afterwards only topics
that came later are matched. What is kept is bounded by the names in it, the pattern that was used least goes first.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from headwater.broker.services.partition import Topic
from headwater.broker.services.topics import Topics
from headwater.broker.services.turns import Work
from headwater.coordinator.pattern_syntax import PatternError
from headwater.coordinator.patterns import compiled

_MOST_NAMES: Final = 200_000


@dataclass(slots=True)
class _Matches:
    """The topics that a pattern matches, among those up to a serial number."""

    up_to: int = 0
    found: dict[str, int] = field(default_factory=dict)
    """The serial numbers of the topics, by name."""


class BrokerTopics:
    """A `TopicDirectory` over the topics that this broker serves.

    `asked_in_vain` is called when a coordinator asked for what is not known.
    """

    def __init__(self, topics: Topics, asked_in_vain: Callable[[], None]) -> None:
        self._topics = topics
        self._asked_in_vain = asked_in_vain
        self._matches: OrderedDict[str, _Matches] = OrderedDict()
        self._names_kept = 0

    def partition_count(self, topic: str) -> int | None:
        """How many partitions a topic has, None when there is no such topic."""
        found = self._topics.by_name.get(topic)
        return None if found is None else len(found.partitions)

    def topic_id(self, topic: str) -> UUID | None:
        """A topic's id."""
        found = self._topics.by_name.get(topic)
        return None if found is None else found.topic_id

    def topic_name(self, topic_id: UUID) -> str | None:
        """A topic's name."""
        found = self._topics.by_id.get(topic_id.bytes)
        return None if found is None else found.name

    def topics_matching(self, pattern: str) -> tuple[str, ...] | None:
        """The names of all topics that match, None when that is not known; `PatternError` when it is no pattern."""
        matches = self._matches.get(pattern)
        if matches is None or next(self._later_than(matches.up_to), None) is not None:
            compiled(pattern)
            self._asked_in_vain()
            return None
        return tuple(sorted([name for name, serial in matches.found.items() if self._is_there(name, serial)]))

    def learn(self, pattern: str) -> Work[None]:
        """Steps to what topics a pattern matches; without effect when it is none."""
        matches = self._matches.get(pattern)
        if matches is not None and next(self._later_than(matches.up_to), None) is None:
            self._matches.move_to_end(pattern)
            return
        try:
            matcher = compiled(pattern)
        except PatternError:
            return
        yield None
        matches = self._matches.setdefault(pattern, _Matches())
        self._matches.move_to_end(pattern)
        for name, serial in list(matches.found.items()):
            if not self._is_there(name, serial):
                del matches.found[name]
                self._names_kept -= 1
        while (topic := next(self._later_than(matches.up_to), None)) is not None:
            for topic in reversed(list(self._later_than(matches.up_to))):
                if (yield from matcher.steps(topic.name)):
                    self._names_kept += topic.name not in matches.found
                    matches.found[topic.name] = topic.serial
                matches.up_to = topic.serial
                yield None
        # Others that learn at the same time may push this one out: then its group looks again a little later.
        while self._names_kept + len(self._matches) > _MOST_NAMES and len(self._matches) > 1:
            _, dropped = self._matches.popitem(last=False)
            self._names_kept -= len(dropped.found)

    def _is_there(self, name: str, serial: int) -> bool:
        """Whether a topic is still there, and not another of the same name."""
        topic = self._topics.by_name.get(name)
        return topic is not None and topic.serial == serial

    def _later_than(self, serial: int) -> Iterator[Topic]:
        """The topics with higher serial numbers, the latest first: `by_name` is in the order in which they came."""
        for topic in reversed(self._topics.by_name.values()):
            if topic.serial <= serial:
                return
            yield topic
