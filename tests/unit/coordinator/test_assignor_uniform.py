"""The uniform assignor: equal shares, and as little movement as equal shares allow."""

import time
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from headwater.coordinator.group.assignor_uniform import assign_uniformly
from headwater.coordinator.group.consumer_partitions import Partitions, TopicKey

from .assignor_building import TOPICS, Group, Subscriber, assign, check_complete, groups, member, partitions

ONE, TWO = TOPICS[:2]


def moved(group: Group, given_now: dict[str, Partitions]) -> int:
    """How many partitions left a member that subscribes to them and could have kept them."""
    wanted = {
        one.member_id: {
            partition
            for partition in one.partitions
            if partition.topic in one.topics and partition.number < group.counts[partition.topic]
        }
        for one in group.members
    }
    return sum(len(had - given_now[member_id]) for member_id, had in wanted.items())


@given(groups())
def test_every_partition_has_one_owner_who_subscribes_to_it(group: Group) -> None:
    check_complete(group, group.assigned_by(assign_uniformly))


@given(groups(same_topics=True))
def test_shares_of_equal_subscribers_differ_by_one_at_most(group: Group) -> None:
    shares = [len(held) for held in group.assigned_by(assign_uniformly).values()]
    assert max(shares) - min(shares) <= 1


@given(groups(same_topics=True))
def test_among_equal_subscribers_no_more_partitions_move_than_must(group: Group) -> None:
    """Whoever has more than its share gives up what it has too much, and no one else gives up anything."""
    given_now = group.assigned_by(assign_uniformly)
    check_complete(group, given_now)
    share, rest = divmod(sum(len(held) for held in given_now.values()), len(group.members))
    had = sorted(
        (
            sum(
                partition.topic in one.topics and partition.number < group.counts[partition.topic]
                for partition in one.partitions
            )
            for one in group.members
        ),
        reverse=True,
    )
    least_moves = sum(max(0, count - share - (place < rest)) for place, count in enumerate(had))
    assert moved(group, given_now) == least_moves


@given(groups())
def test_no_move_of_one_partition_could_even_the_shares_out(group: Group) -> None:
    given_now = group.assigned_by(assign_uniformly)
    for owner in group.members:
        for partition in given_now[owner.member_id]:
            for other in group.members:
                if partition.topic in other.topics:
                    assert len(given_now[owner.member_id]) - len(given_now[other.member_id]) <= 1


@given(groups())
def test_assigning_again_moves_nothing(group: Group) -> None:
    after = group.after(assign_uniformly)
    assert moved(after, after.assigned_by(assign_uniformly)) == 0


@given(groups(same_topics=True), st.data())
def test_when_a_member_leaves_only_its_partitions_move(group: Group, data: st.DataObject) -> None:
    after = group.after(assign_uniformly)
    leaving = data.draw(st.sampled_from(after.members))
    left = replace(after, members=[one for one in after.members if one is not leaving])
    if left.members:
        assert moved(left, left.assigned_by(assign_uniformly)) == 0


@given(groups())
def test_the_order_of_the_members_does_not_matter(group: Group) -> None:
    other_way = replace(group, members=group.members[::-1])
    assert group.assigned_by(assign_uniformly) == other_way.assigned_by(assign_uniformly)


def test_a_first_member_gets_everything() -> None:
    assert assign(assign_uniformly, [member("a", ONE)], {ONE: 3}) == {"a": partitions(ONE, 0, 1, 2)}


def test_a_second_member_gets_the_half_that_the_first_gives_up() -> None:
    group = [member("a", ONE, has=partitions(ONE, 0, 1, 2, 3)), member("b", ONE)]
    assert assign(assign_uniformly, group, {ONE: 4}) == {"a": partitions(ONE, 0, 1), "b": partitions(ONE, 2, 3)}


def test_a_member_that_subscribes_to_less_is_filled_up_first_where_only_it_can_be() -> None:
    group = [member("a", ONE, TWO), member("b", TWO)]
    given_now = assign(assign_uniformly, group, {ONE: 2, TWO: 2})
    assert given_now == {"a": partitions(ONE, 0, 1), "b": partitions(TWO, 0, 1)}


def test_loads_spread_over_overlapping_subscriptions() -> None:
    """The first has all; what it shares with the second makes room for what the second shares with the third."""
    group = [member("a", ONE, has=partitions(ONE, *range(9))), member("b", ONE, TWO), member("c", TWO)]
    shares = {name: len(held) for name, held in assign(assign_uniformly, group, {ONE: 9, TWO: 3}).items()}
    assert shares == {"a": 5, "b": 4, "c": 3}


def test_without_members_there_is_nothing_to_assign() -> None:
    assert assign(assign_uniformly, [], {ONE: 3}) == {}


def test_members_without_topics_get_nothing() -> None:
    assert assign(assign_uniformly, [member("a"), member("b")], {ONE: 3}) == {"a": frozenset(), "b": frozenset()}


def test_a_thousand_members_of_many_topics_are_served_in_good_time() -> None:
    counts = {TopicKey(number): 100 for number in range(1, 101)}
    names = [f"member-{number}" for number in range(1000)]
    for members in (
        [Subscriber(member_id=name, topics=frozenset(counts)) for name in names],
        [
            Subscriber(member_id=name, topics=frozenset(topic for topic in counts if topic % 7 != number % 7))
            for number, name in enumerate(names)
        ],
    ):
        before = time.process_time()
        given_now = assign(assign_uniformly, members, counts)
        assert time.process_time() - before < 2
        assert {len(held) for held in given_now.values()} == {10}
