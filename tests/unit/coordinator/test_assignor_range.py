"""The range assignor: runs of neighbouring partitions, alike for topics that are alike."""

from hypothesis import given

from headwater.coordinator.group.assignor_range import assign_ranges

from .assignor_building import TOPICS, Group, assign, check_complete, groups, member, partitions

ONE, TWO = TOPICS[:2]


@given(groups())
def test_every_partition_has_one_owner_who_subscribes_to_it(group: Group) -> None:
    check_complete(group, group.assigned_by(assign_ranges))


@given(groups())
def test_of_each_topic_a_subscriber_gets_a_run_as_long_as_the_others(group: Group) -> None:
    given_now = group.assigned_by(assign_ranges)
    for topic, count in group.counts.items():
        subscribers = [one for one in group.members if topic in one.topics]
        runs = [
            sorted(partition.number for partition in given_now[one.member_id] if partition.topic == topic)
            for one in subscribers
        ]
        for run in runs:
            assert not run or run == list(range(run[0], run[-1] + 1))
            assert len(run) in (count // len(subscribers), -(-count // len(subscribers)))


@given(groups(same_topics=True))
def test_topics_of_equal_size_fall_alike(group: Group) -> None:
    given_now = group.assigned_by(assign_ranges)
    for one in group.members:
        numbers_by_topic = {
            topic: {partition.number for partition in given_now[one.member_id] if partition.topic == topic}
            for topic in one.topics
        }
        for topic, numbers in numbers_by_topic.items():
            for other, other_numbers in numbers_by_topic.items():
                if group.counts[topic] == group.counts[other]:
                    assert numbers == other_numbers


def test_the_first_members_get_what_does_not_divide() -> None:
    group = [member("b", ONE, TWO), member("a", ONE, TWO)]
    assert assign(assign_ranges, group, {ONE: 3, TWO: 3}) == {
        "a": partitions(ONE, 0, 1) | partitions(TWO, 0, 1),
        "b": partitions(ONE, 2) | partitions(TWO, 2),
    }


def test_more_members_than_partitions_leave_the_last_without() -> None:
    group = [member("a", ONE), member("b", ONE), member("c", ONE)]
    assert assign(assign_ranges, group, {ONE: 2}) == {
        "a": partitions(ONE, 0),
        "b": partitions(ONE, 1),
        "c": frozenset(),
    }


def test_a_static_member_keeps_its_run_whatever_its_member_id() -> None:
    before = [member("x", ONE, instance="i1"), member("y", ONE, instance="i2"), member("a", ONE)]
    after = [member("z", ONE, instance="i1"), member("y", ONE, instance="i2"), member("a", ONE)]
    counts = {ONE: 3}
    assert assign(assign_ranges, before, counts)["x"] == assign(assign_ranges, after, counts)["z"] == partitions(ONE, 0)
    assert assign(assign_ranges, after, counts)["a"] == partitions(ONE, 2)
