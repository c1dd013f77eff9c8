"""Inputs for assignors, made by chance from a seed, and what Java's own assignors say to them.

Run as a program it writes the recorded results that unit tests compare with, so that those need no Java:
`PYTHONPATH=tests python -m peers.assignors`.
"""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from headwater.client.consumer.assignors import ASSIGNORS
from headwater.client.consumer.group_protocol import (
    Subscription,
    encode_generation,
    encode_sticky_user_data,
)
from headwater.types import TopicPartition

from .apache import run_tool

RECORDED = Path(__file__).parents[1] / "unit" / "client" / "consumer" / "java_assignments.json"
_PROGRAM = Path(__file__).with_name("JavaAssignors.java")
_RACKS = ("east", "north", "west")

Case = dict[str, Any]
Result = dict[str, list[list[Any]]]


def java_results(cases: Sequence[Case]) -> list[Result]:
    """What Java's assignors make of the cases."""
    said = run_tool(str(_PROGRAM), stdin="".join(f"{json.dumps(case)}\n" for case in cases), timeout_s=100)
    return [json.loads(line) for line in said.splitlines()]


def our_result(case: Case) -> Result:
    """What ours make of one."""
    topics = {topic: [frozenset(racks) for racks in partitions] for topic, partitions in case["topics"].items()}
    members = {name: _subscription(told) for name, told in case["members"].items()}
    found = ASSIGNORS[case["assignor"]].assign(topics, members)
    return {member: [list(partition) for partition in partitions] for member, partitions in found.items()}


def cases(seed: int) -> Iterator[Case]:
    """Groups as they develop: members come and go, topics appear and grow, generations conflict; without end."""
    chance = random.Random(seed)
    while True:
        story = _Story(chance)
        for _ in range(chance.randint(1, 6)):
            yield story.case()
            story.go_on()


class _Story:
    """One group over several generations, with one assignor."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.assignor = chance.choice(list(ASSIGNORS))
        self.with_racks = chance.random() < 0.3
        self.equal = chance.random() < 0.4
        self.largest_topic = chance.choice((2, 6, 20))
        self.generation = chance.randint(0, 3)
        self.topics = {self._name("topic"): self._partitions() for _ in range(chance.choice((1, 2, 3, 8)))}
        self.members: dict[str, Case] = {}
        for _ in range(chance.choice((1, 2, 3, 5, 12, 40))):
            self._join()

    def case(self) -> Case:
        """The input of this generation; members come in any order."""
        names = list(self.members)
        self.chance.shuffle(names)
        shown = {name: self._told(self.members[name]) for name in names}
        return {"assignor": self.assignor, "topics": json.loads(json.dumps(self.topics)), "members": shown}

    def go_on(self) -> None:
        """Applies what was assigned to those who hear of it, then lets things happen."""
        chance = self.chance
        assigned = our_result(self.case())
        self.generation += 1
        for name, member in self.members.items():
            # A member that misses a generation comes back with claims of an older one.
            if chance.random() < 0.9:
                member["owned"], member["generation"] = assigned[name], self.generation
            if chance.random() < 0.1 and not self.equal:
                self._resubscribe(member)
        for name in list(self.members):
            if len(self.members) > 1 and chance.random() < 0.1:
                del self.members[name]
        while chance.random() < 0.4:
            self._join()
        if chance.random() < 0.3:
            grown = chance.choice(list(self.topics))
            self.topics[grown] += self._partitions()
        if chance.random() < 0.2:
            self.topics[self._name("topic")] = self._partitions()
            for member in self.members.values():
                if self.equal or chance.random() < 0.5:
                    member["topics"] = list(self.topics)
        if chance.random() < 0.1 and len(self.topics) > 1:
            del self.topics[chance.choice(list(self.topics))]

    def _join(self) -> None:
        chance = self.chance
        member: Case = {
            "topics": list(self.topics),
            "owned": [],
            "generation": -1,
            "rack": chance.choice((*_RACKS, None, "nowhere")) if self.with_racks else None,
            "instance_id": self._name("instance") if chance.random() < 0.2 else None,
            "speaks": chance.choice((0, 1, 1, 1)),
        }
        if not self.equal:
            self._resubscribe(member)
        self.members[self._name("member")] = member

    def _resubscribe(self, member: Case) -> None:
        wanted = [*self.topics, "missing"]
        member["topics"] = self.chance.sample(wanted, self.chance.randint(1, len(wanted)))
        # Former owners that want a topic no longer are where Java's answer is broken and ours is not.
        member["owned"] = [partition for partition in member["owned"] if partition[0] in member["topics"]]

    def _told(self, member: Case) -> Case:
        """The subscription as a newer or an older client sends it."""
        owned = [TopicPartition(*partition) for partition in member["owned"]]
        generation = member["generation"]
        told = {key: member[key] for key in ("topics", "owned", "generation", "rack", "instance_id")}
        told["user_data"] = None
        if self.assignor == "sticky":
            data = encode_sticky_user_data(owned, generation)
            told["owned"] = []
            told["user_data"] = (data if member["speaks"] else data[:-4]).hex() if generation >= 0 else None
            if not member["speaks"]:
                told["generation"] = -1
        elif self.assignor == "cooperative-sticky":
            told["user_data"] = encode_generation(generation).hex()
            if not member["speaks"]:
                told["generation"] = -1
        return told

    def _partitions(self) -> list[list[str]]:
        return [self._replicas() for _ in range(self.chance.randint(1, self.largest_topic))]

    def _replicas(self) -> list[str]:
        return sorted(self.chance.sample(_RACKS, self.chance.randint(1, 3))) if self.with_racks else []

    def _name(self, kind: str) -> str:
        return f"{kind}-{self.chance.randrange(16**6):06x}"


def _subscription(told: Mapping[str, Any]) -> Subscription:
    return Subscription(
        topics=tuple(told["topics"]),
        user_data=None if told["user_data"] is None else bytes.fromhex(told["user_data"]),
        owned=tuple(TopicPartition(*partition) for partition in told["owned"]),
        generation=told["generation"],
        rack=told["rack"],
        instance_id=told["instance_id"],
    )


def record(seed: int = 848, count: int = 160) -> None:
    """Writes cases and Java's results for unit tests; large groups are left to the live comparison."""
    chosen: list[Case] = []
    for case in cases(seed):
        if len(json.dumps(case)) < 2_500:
            chosen.append(case)
        if len(chosen) == count:
            break
    rows = [
        json.dumps([case, result], separators=(",", ":"))
        for case, result in zip(chosen, java_results(chosen), strict=True)
    ]
    RECORDED.write_text("[\n" + ",\n".join(rows) + "\n]\n")


if __name__ == "__main__":
    record()
