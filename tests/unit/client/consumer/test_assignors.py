"""The assignors: what Java's say to the same input, and what any assignment must be."""

import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.client.consumer.assignors import ASSIGNORS, all_cooperative, named
from headwater.client.consumer.assignors.java_order import hash_ordered
from headwater.client.consumer.group_protocol import Subscription
from headwater.types import TopicPartition
from peers.assignors import RECORDED, Case, Result, our_result

EVERY = pytest.mark.parametrize("name", sorted(ASSIGNORS))
RACKS = st.frozensets(st.sampled_from(("east", "west", "north")), max_size=3)
TOPICS = st.dictionaries(st.sampled_from("abcde"), st.lists(RACKS, min_size=1, max_size=9), min_size=1, max_size=4)
MEMBERS = st.dictionaries(
    st.text("xyz0123", min_size=1, max_size=4),
    st.builds(
        Subscription,
        topics=st.lists(st.sampled_from("abcdef"), min_size=1, max_size=5, unique=True).map(tuple),
        rack=st.sampled_from((None, "east", "west")),
        instance_id=st.none(),
    ),
    min_size=1,
    max_size=8,
)


def recorded() -> list[tuple[Case, Result]]:
    return [(case, result) for case, result in json.loads(RECORDED.read_text())]


@EVERY
def test_the_results_are_javas(name: str) -> None:
    cases = [(case, result) for case, result in recorded() if case["assignor"] == name]
    assert len(cases) > 20
    for case, result in cases:
        assert our_result(case) == result


@EVERY
@given(topics=TOPICS, members=MEMBERS)
def test_every_wanted_partition_goes_to_one_member_that_wants_it(
    name: str, topics: dict[str, list[frozenset[str]]], members: dict[str, Subscription]
) -> None:
    assigned = ASSIGNORS[name].assign(topics, members)
    wanted = {topic for subscription in members.values() for topic in subscription.topics if topic in topics}
    given_out = [partition for partitions in assigned.values() for partition in partitions]
    assert sorted(given_out) == [
        TopicPartition(topic, number) for topic in sorted(wanted) for number in range(len(topics[topic]))
    ]
    for member, partitions in assigned.items():
        assert {partition.topic for partition in partitions} <= set(members[member].topics)


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
@given(topics=TOPICS, members=MEMBERS)
def test_what_is_balanced_stays_where_it_is_unless_racks_matter(
    name: str, topics: dict[str, list[frozenset[str]]], members: dict[str, Subscription]
) -> None:
    assignor = ASSIGNORS[name]
    topics = {topic: [frozenset[str]()] * len(partitions) for topic, partitions in topics.items()}
    first = assignor.assign(topics, members)
    again = assignor.assign(topics, {member: holding(name, members[member], first[member]) for member in members})
    assert {member: sorted(found) for member, found in again.items()} == {
        member: sorted(found) for member, found in first.items()
    }


@given(topics=TOPICS, members=MEMBERS, newcomers=MEMBERS)
def test_the_cooperative_assignor_gives_nothing_away_that_is_still_owned(
    topics: dict[str, list[frozenset[str]]], members: dict[str, Subscription], newcomers: dict[str, Subscription]
) -> None:
    assignor = ASSIGNORS["cooperative-sticky"]
    owned = assignor.assign(topics, members)
    owner_of = {partition: member for member, partitions in owned.items() for partition in partitions}
    group = {**newcomers, **{member: holding(assignor.name, members[member], owned[member]) for member in members}}
    for member, partitions in assignor.assign(topics, group).items():
        assert {owner_of.get(partition, member) for partition in partitions} <= {member}


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
def test_a_partition_that_is_gone_is_forgotten(name: str) -> None:
    both = [TopicPartition("a", 0), TopicPartition("a", 7), TopicPartition("gone", 0)]
    members = {"x": holding(name, Subscription(topics=("a",)), both), "y": Subscription(topics=("a",))}
    assigned = ASSIGNORS[name].assign({"a": [frozenset()] * 2}, members)
    assert assigned == {"x": [TopicPartition("a", 0)], "y": [TopicPartition("a", 1)]}


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
def test_a_former_owner_that_does_not_want_the_topic_any_more_does_not_get_it_back(name: str) -> None:
    had = [TopicPartition("a", number) for number in range(4)]
    members = {
        "former": holding(name, Subscription(topics=("b",)), had, generation=1),
        "present": holding(name, Subscription(topics=("a", "b")), had, generation=2),
        "other": Subscription(topics=("a",)),
    }
    assigned = ASSIGNORS[name].assign({"a": [frozenset()] * 4, "b": [frozenset()]}, members)
    assert all(partition.topic == "b" for partition in assigned["former"])


@EVERY
def test_a_group_of_nobody_gets_nothing(name: str) -> None:
    assert ASSIGNORS[name].assign({"a": [frozenset()]}, {}) == {}


def test_assignors_are_found_by_name_or_given() -> None:
    own = ASSIGNORS["range"]
    assert named(["sticky", own]) == (ASSIGNORS["sticky"], own)
    with pytest.raises(ValueError, match="'stickey'; there are range, roundrobin"):
        named(["stickey"])


def test_members_keep_partitions_in_a_rebalance_only_if_all_assignors_can() -> None:
    assert all_cooperative(named(["cooperative-sticky"]))
    assert not all_cooperative(named(["cooperative-sticky", "range"]))


def test_javas_tables_are_ordered_by_hash_and_grow() -> None:
    # "Aa" and "BB" have the same hash in Java: the order in which they came decides.
    assert hash_ordered(["a", "BB", "Aa"]) == ["BB", "Aa", "a"]
    assert hash_ordered(["Aa", "a", "BB"]) == ["Aa", "BB", "a"]
    few, many = [f"member-{n}" for n in range(12)], [f"member-{n}" for n in range(13)]
    assert hash_ordered(few) != [name for name in hash_ordered(many) if name in few]


def holding(name: str, member: Subscription, owned: Iterable[TopicPartition], generation: int = 1) -> Subscription:
    """The member as it joins when it has partitions."""
    partitions = tuple(owned)
    return Subscription(
        topics=member.topics,
        rack=member.rack,
        instance_id=member.instance_id,
        owned=partitions if name == "cooperative-sticky" else (),
        generation=generation,
        user_data=ASSIGNORS[name].user_data(partitions, generation),
    )
