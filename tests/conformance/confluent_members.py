"""Members of a group on confluent-kafka, driven together: none of them rebalances unless it is polled.

A member writes down what its callbacks told it, so that a case can say who owned what after each step, and what
was taken from whom on the way.
"""

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from .actions import Topic
from .conftest import Broker

Partition = tuple[str, int]
_PATIENCE_S = 30
# Quick to notice what happens, and slow to be taken for dead on a busy machine.
_PROMPT = {"heartbeat.interval.ms": 100, "session.timeout.ms": 10_000}


@dataclass(slots=True)
class Member:
    """A consumer in a group, and all that it was told."""

    name: str
    consumer: Consumer
    owned: set[Partition] = field(default_factory=set)
    events: list[tuple[str, list[Partition]]] = field(default_factory=list)
    received: list[Message] = field(default_factory=list)
    errors: list[KafkaError] = field(default_factory=list)

    def subscribe(self, *topics: str) -> None:
        """Subscribes and notes each call-back."""
        self.consumer.subscribe(
            list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def poll(self, timeout_s: float = 0.01) -> None:
        """Serves call-backs and takes what has come."""
        try:
            messages = self.consumer.consume(100, timeout=timeout_s)
        except KafkaException as error:
            self.errors.append(error.args[0])
            return
        for message in messages:
            problem = message.error()
            if problem is None:
                self.received.append(message)
            else:
                self.errors.append(problem)

    def close(self) -> bool:
        """Closes it; False if that takes too long.

        In a rebalance librdkafka may wait for itself for ever (its issue 4041): its close calls back, and there it is
        asked for the protocol, which its own thread no longer tells. No signal ends that: this thread must not wait.
        """
        closing = threading.Thread(target=self._close, name=f"close {self.name}", daemon=True)
        closing.start()
        closing.join(_PATIENCE_S)
        return not closing.is_alive()

    def _close(self) -> None:
        with contextlib.suppress(KafkaException, RuntimeError):
            self.consumer.close()

    def partitions(self, topic: Topic) -> list[int]:
        """The numbers of its partitions of this topic."""
        return sorted(partition for name, partition in self.owned if name == topic.name)

    def taken_away(self) -> set[Partition]:
        """What it was ever told to give up."""
        return {partition for event, partitions in self.events if event != "assigned" for partition in partitions}

    def values(self) -> list[bytes]:
        """The values of all it has received."""
        return [message.value() or b"" for message in self.received]

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.events.append(("assigned", _plain(partitions)))
        self.owned.update(_plain(partitions))

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.events.append(("revoked", _plain(partitions)))
        self.owned.difference_update(_plain(partitions))

    def _on_lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.events.append(("lost", _plain(partitions)))
        self.owned.difference_update(_plain(partitions))


class Members:
    """The members of one case; all that are left are closed at its end.

    >>> with Members(broker, "group") as members:
    ...     ann = members.start("ann", topic.name)
    ...     members.until(lambda: ann.owned, "ann has partitions")
    """

    def __init__(self, broker: Broker, group: str, **settings: Any) -> None:
        self._broker = broker
        self.group = group
        self._settings = settings
        self.running: list[Member] = []

    def __enter__(self) -> "Members":
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.running:
            member.close()

    def start(self, name: str, *topics: str, **settings: Any) -> Member:
        """A new member, not yet polled. Its name is its client id, which member ids begin with."""
        asked = {**self._settings, **settings}
        prompt = {} if asked.get("group.protocol") == "consumer" else _PROMPT
        consumer = Consumer(
            {
                "bootstrap.servers": self._broker.bootstrap,
                "group.id": self.group,
                "client.id": name,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
                "log_level": 0,
                **prompt,
                **asked,
            }
        )
        member = Member(name, consumer)
        member.subscribe(*topics)
        self.running.append(member)
        return member

    def stop(self, member: Member) -> None:
        """Closes it: a dynamic member leaves the group, a static one says nothing."""
        self.running.remove(member)
        assert member.close(), f"{member.name} was not closed within {_PATIENCE_S} s"

    def leave(self, member: Member) -> None:
        """Has a dynamic member leave in the middle of a rebalance, where closing it at once might never end."""
        member.consumer.unsubscribe()
        self.until(lambda: not member.owned, f"{member.name} has given up its partitions")
        self.stop(member)

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Polls all members in turn until the condition holds."""
        deadline = time.monotonic() + _PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"not within {_PATIENCE_S} s: {what}; {self.story()}"
            for member in self.running:
                member.poll()

    def until_owned(self, topic: Topic, shares: dict[str, list[int]]) -> None:
        """Polls until each member owns exactly this of the topic."""
        self.until(lambda: self.owners(topic) == shares, f"{shares}")

    def until_spread(self, topic: Topic, *counts: int) -> None:
        """Polls until the members own so many partitions each (in any order), none twice."""

        def spread() -> bool:
            shares = [member.partitions(topic) for member in self.running]
            owned = list(itertools.chain(*shares))
            return sorted(map(len, shares)) == sorted(counts) and len(owned) == len(set(owned)) == sum(counts)

        self.until(spread, f"shares of {counts}")

    def owners(self, topic: Topic) -> dict[str, list[int]]:
        """Who owns which partitions of the topic."""
        return {member.name: member.partitions(topic) for member in self.running}

    def story(self) -> str:
        """What all have been told, for a failure to show."""
        return "; ".join(f"{member.name}: {member.events} {member.errors}" for member in self.running)


def _plain(partitions: Sequence[TopicPartition]) -> list[Partition]:
    return sorted((partition.topic, partition.partition) for partition in partitions)


@contextlib.contextmanager
def one_member(broker: Broker, group: str, *topics: str, **settings: Any) -> Iterator[tuple[Members, Member]]:
    """A group of one, which has its partitions."""
    with Members(broker, group, **settings) as members:
        member = members.start("only", *topics)
        members.until(lambda: member.owned, "the only member has its partitions")
        yield members, member
