"""The new group protocol (KIP-848, `group.protocol=consumer`) on confluent-kafka, and the way there and back."""

from typing import Any

from confluent_kafka import KafkaError
from kio.schema.errors import ErrorCode

from .actions import create_topic, eventually, produce_ok, unique_name
from .batches import batch
from .confluent_members import Members, one_member
from .conftest import Broker
from .raw_groups import new_group
from .wire import Wire

NEW: Any = {"group.protocol": "consumer"}
EAGER: Any = {"group.protocol": "classic", "partition.assignment.strategy": "range"}


def described(wire: Wire, group: str) -> Any:
    (found,) = wire.send("consumer_group_describe", group_ids=[group]).groups
    return found


def listed(wire: Wire, group: str) -> Any:
    """The group's entry in the list of all groups."""
    return next(found for found in wire.send("list_groups").groups if found.group_id == group)


def test_uniform_moves_no_more_than_it_must(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, partitions=6)
    with Members(broker, new_group(wire), **NEW, **{"group.remote.assignor": "uniform"}) as members:
        ann = members.start("ann", topic.name)
        members.until_spread(topic, 6)
        bob = members.start("bob", topic.name)
        members.until_spread(topic, 3, 3)
        assert ann.taken_away() == bob.owned
        members.start("cid", topic.name)
        members.until_spread(topic, 2, 2, 2)
        kept = set(bob.owned)
        members.stop(ann)
        members.until_spread(topic, 3, 3)
        assert kept <= bob.owned
        assert not kept & bob.taken_away(), "what it kept was never taken from it"
        assert described(wire, members.group).assignor_name == "uniform"


def test_range_keeps_the_partitions_of_two_topics_together(broker: Broker, wire: Wire) -> None:
    first, second = create_topic(wire, partitions=4), create_topic(wire, partitions=4)
    with Members(broker, new_group(wire), **NEW, **{"group.remote.assignor": "range"}) as members:
        for name in ("ann", "bob"):
            members.start(name, first.name, second.name)
        for topic in (first, second):
            members.until_spread(topic, 2, 2)
        assert sorted(members.owners(first).values()) == [[0, 1], [2, 3]]
        assert members.owners(first) == members.owners(second)
        assert described(wire, members.group).assignor_name == "range"


def test_an_unknown_assignor_is_refused(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)
    with Members(broker, new_group(wire), **NEW, **{"group.remote.assignor": "no-such-assignor"}) as members:
        only = members.start("only", topic.name)
        members.until(lambda: only.errors, "an error")
        assert only.errors[0].code() in (KafkaError.UNSUPPORTED_ASSIGNOR, KafkaError._FATAL)


def test_the_broker_tells_of_members_and_targets(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, partitions=3)
    with one_member(broker, new_group(wire), topic.name, **NEW) as (members, _):

        def settled() -> Any:
            found = described(wire, members.group)
            return found if found.group_state == "Stable" else None

        found = eventually(settled, "the group is stable")
        (member,) = found.members
        assert found.group_epoch == found.assignment_epoch == member.member_epoch
        assert (member.client_id, member.client_host) == ("only", "/127.0.0.1")
        for share in (member.assignment, member.target_assignment):
            assert [(part.topic_name, sorted(part.partitions)) for part in share.topic_partitions] == [
                (topic.name, [0, 1, 2])
            ]
        assert listed(wire, members.group).group_type == "consumer"


def test_the_broker_finds_the_topics_of_a_regular_expression(broker: Broker, wire: Wire) -> None:
    prefix = unique_name("regex")
    first, second = (create_topic(wire, name=f"{prefix}.{name}") for name in ("first", "second"))
    create_topic(wire, name=f"not-{prefix}.first")
    with one_member(broker, new_group(wire), f"^{prefix}\\..*", **NEW) as (members, only):
        members.until(lambda: only.owned == {(first.name, 0), (second.name, 0)}, "both topics")
        assert f"^{prefix}" in described(wire, members.group).members[0].subscribed_topic_regex
        members.start("other", f"^{prefix}\\..*")
        members.until(lambda: [len(member.owned) for member in members.running] == [1, 1], "each has one")


def test_new_partitions_are_shared_out(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, partitions=2)
    with Members(broker, new_group(wire), **NEW) as members:
        for name in ("ann", "bob"):
            members.start(name, topic.name)
        members.until_spread(topic, 1, 1)
        entry = {"name": topic.name, "count": 6, "assignments": None}
        wire.send("create_partitions", topics=[entry], timeout=5000)
        members.until_spread(topic, 3, 3)


def test_a_static_member_is_back_in_time_and_nobody_notices(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, partitions=4)
    with Members(broker, new_group(wire), **NEW) as members:
        ann = members.start("ann", topic.name, **{"group.instance.id": "instance-a"})
        bob = members.start("bob", topic.name, **{"group.instance.id": "instance-b"})
        members.until_spread(topic, 2, 2)
        before, told, epoch = members.owners(topic), list(bob.events), described(wire, members.group).group_epoch
        members.stop(ann)
        again = members.start("ann", topic.name, **{"group.instance.id": "instance-a"})
        members.until(lambda: again.owned, "ann is back")
        assert members.owners(topic) == before
        assert bob.events == told, "no rebalance"
        assert described(wire, members.group).group_epoch == epoch


def test_an_instance_id_in_use_is_not_given_to_a_second_member(broker: Broker, wire: Wire) -> None:
    """Unlike in a classic group, it is the newcomer that has to wait."""
    topic = create_topic(wire, partitions=2)
    static = {"group.instance.id": "the-instance"}
    with one_member(broker, new_group(wire), topic.name, **NEW, **static) as (members, first):
        second = members.start("second", topic.name)
        members.until(lambda: second.errors, "the second is told")
        assert second.errors[0].code() in (KafkaError.UNRELEASED_INSTANCE_ID, KafkaError._FATAL)
        assert first.partitions(topic) == [0, 1]
        assert not first.errors


def test_records_and_commits_go_on_over_a_change_of_members(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, partitions=2)
    for partition in range(2):
        produce_ok(wire, topic, batch(*(b"%d/%d" % (partition, n) for n in range(20))), partition=partition)
    with one_member(broker, new_group(wire), topic.name, **NEW) as (members, first):
        members.until(lambda: len(first.received) == 40, "all there was")
        first.consumer.commit(asynchronous=False)
        members.stop(first)
        for partition in range(2):
            produce_ok(wire, topic, batch(b"%d/later" % partition), partition=partition)
        second = members.start("second", topic.name)
        members.until(lambda: len(second.received) == 2, "the rest")
        assert sorted(second.values()) == [b"0/later", b"1/later"]


def test_a_classic_group_is_upgraded_and_downgraded_member_by_member(broker: Broker, wire: Wire) -> None:
    """With range: librdkafka's cooperative assignor keeps data with its assignments, and such groups stay classic."""
    topic = create_topic(wire, partitions=4)
    with Members(broker, new_group(wire)) as members:
        members.start("old-1", topic.name, **EAGER)
        members.start("old-2", topic.name, **EAGER)
        members.until_spread(topic, 2, 2)
        assert listed(wire, members.group).group_type == "classic"

        members.start("new-1", topic.name, **NEW)
        members.until_spread(topic, 1, 1, 2)
        assert listed(wire, members.group).group_type == "consumer"
        kinds = {member.client_id: member.member_type for member in described(wire, members.group).members}
        assert kinds == {"old-1": 0, "old-2": 0, "new-1": 1}

        members.stop(members.running[0])
        members.until_spread(topic, 2, 2)
        # The last member of the new kind leaves: what is left is a classic group again.
        members.stop(members.running[1])
        members.until_spread(topic, 4)
        assert listed(wire, members.group).group_type == "classic"
        assert described(wire, members.group).error_code is ErrorCode.group_id_not_found


def test_an_empty_group_takes_either_kind(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)
    produce_ok(wire, topic, batch(b"0", b"1", b"2", b"3"))
    group = new_group(wire)
    for settings, expected in ((EAGER, b"0"), (NEW, b"1"), (EAGER, b"2"), (NEW, b"3")):
        with one_member(broker, group, topic.name, **settings) as (_, only):
            while not only.received:
                only.poll(0.1)
            first = only.received[0]
            assert first.value() == expected
            only.consumer.commit(message=first, asynchronous=False)
        eventually(lambda: listed(wire, group).group_state == "Empty", "the group is empty")
