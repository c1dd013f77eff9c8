"""Classic groups on confluent-kafka: who owns what after each step of joining, leaving, dying and coming back."""

import subprocess
import sys
from typing import Any

from confluent_kafka import KafkaError, TopicPartition
from kio.schema.errors import ErrorCode

from peers.processes import dies_with_parent, kill

from .actions import create_topic, eventually, produce_ok, unique_name
from .batches import batch
from .confluent_members import Members, one_member
from .conftest import Broker
from .raw_groups import new_group
from .wire import Wire

RANGE: Any = {"partition.assignment.strategy": "range"}
ROUND_ROBIN: Any = {"partition.assignment.strategy": "roundrobin"}
COOPERATIVE: Any = {"partition.assignment.strategy": "cooperative-sticky"}


def group_state(wire: Wire, group: str) -> str:
    (described,) = wire.send("describe_groups", groups=[group]).groups
    state: str = described.group_state
    return state


def test_range_gives_each_member_a_run_of_each_topic(broker: Broker, wire: Wire) -> None:
    first, second = create_topic(wire, partitions=3), create_topic(wire, partitions=3)
    with Members(broker, new_group(wire), **RANGE) as members:
        members.start("ann", first.name, second.name)
        steps = [{"ann": [0, 1, 2]}, {"ann": [0, 1], "bob": [2]}, {"ann": [0], "bob": [1], "cid": [2]}]
        for name, shares in zip((None, "bob", "cid"), steps, strict=True):
            if name:
                members.start(name, first.name, second.name)
            for topic in (first, second):
                members.until_owned(topic, shares)
        members.stop(members.running[1])
        for topic in (first, second):
            members.until_owned(topic, {"ann": [0, 1], "cid": [2]})


def test_roundrobin_deals_all_partitions_out_in_turn(broker: Broker, wire: Wire) -> None:
    first, second = create_topic(wire, partitions=3, name=unique_name("a")), create_topic(wire, partitions=3)
    with Members(broker, new_group(wire), **ROUND_ROBIN) as members:
        members.start("ann", first.name, second.name)
        members.until_owned(first, {"ann": [0, 1, 2]})
        members.start("bob", first.name, second.name)
        members.until_owned(first, {"ann": [0, 2], "bob": [1]})
        members.until_owned(second, {"ann": [1], "bob": [0, 2]})


def test_an_eager_member_gives_up_all_before_it_gets_its_new_share(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, partitions=2)
    with one_member(broker, new_group(wire), topic.name, **RANGE) as (members, only):
        members.start("second", topic.name)
        members.until_owned(topic, {"only": [0], "second": [1]})
    both, one = [(topic.name, 0), (topic.name, 1)], [(topic.name, 0)]
    assert only.events[:3] == [("assigned", both), ("revoked", both), ("assigned", one)]


def test_a_cooperative_member_gives_up_only_what_moves(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, partitions=6)
    with Members(broker, new_group(wire), **COOPERATIVE) as members:
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


def test_trap_members_that_join_all_at_once_are_all_known(broker: Broker, wire: Wire) -> None:
    """Rebalances that overtake each other left members behind with UNKNOWN_MEMBER_ID in other brokers."""
    topic = create_topic(wire, partitions=8)
    with Members(broker, new_group(wire), **COOPERATIVE) as members:
        for number in range(4):
            members.start(f"early-{number}", topic.name)
        members.until_spread(topic, 2, 2, 2, 2)
        for number in range(4):
            members.start(f"late-{number}", topic.name)
        members.leave(members.running[0])
        members.until_spread(topic, 1, 1, 1, 1, 1, 1, 2)
        assert [member.errors for member in members.running] == [[]] * 7


def test_a_static_member_is_back_in_time_and_nobody_notices(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, partitions=4)
    with Members(broker, new_group(wire), **RANGE) as members:
        ann = members.start("ann", topic.name, **{"group.instance.id": "instance-a"})
        bob = members.start("bob", topic.name, **{"group.instance.id": "instance-b"})
        members.until_spread(topic, 2, 2)
        before, told = members.owners(topic), list(bob.events)
        members.stop(ann)
        members.start("ann", topic.name, **{"group.instance.id": "instance-a"})
        members.until(lambda: len(members.running) == 2 and members.running[1].owned, "ann is back")
        assert members.owners(topic) == before
        assert bob.events == told, "no rebalance"
        assert group_state(wire, members.group) == "Stable"


def test_a_static_member_that_stays_away_loses_its_partitions(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, partitions=4)
    with Members(broker, new_group(wire), **RANGE, **{"session.timeout.ms": 1500}) as members:
        ann = members.start("ann", topic.name, **{"group.instance.id": "instance-a"})
        members.start("bob", topic.name)
        members.until_spread(topic, 2, 2)
        members.stop(ann)
        members.until_owned(topic, {"bob": [0, 1, 2, 3]})


def test_a_second_member_with_the_same_instance_id_fences_the_first(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, partitions=2)
    static = {"group.instance.id": "the-instance"}
    with one_member(broker, new_group(wire), topic.name, **RANGE, **static) as (members, first):
        second = members.start("second", topic.name)
        members.until(lambda: second.owned, "the second has the partitions")
        members.until(lambda: first.errors, "the first is told")
        assert {error.code() for error in first.errors} <= {KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID}
        assert second.partitions(topic) == [0, 1]
        assert not second.errors


DYING_MEMBER = """
import sys, confluent_kafka
bootstrap, group, topic = sys.argv[1:]
settings = {"session.timeout.ms": 1000, "heartbeat.interval.ms": 100, "partition.assignment.strategy": "range"}
consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group, **settings})
consumer.subscribe([topic], on_assign=lambda _, partitions: print(len(partitions), flush=True))
while True:
    consumer.poll(0.1)
"""


def test_the_partitions_of_a_member_that_dies_go_to_the_others(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, partitions=2)
    with one_member(broker, new_group(wire), topic.name, **RANGE) as (members, only):
        arguments = (broker.bootstrap, members.group, topic.name)
        command = dies_with_parent([sys.executable, "-c", DYING_MEMBER, *arguments])
        with subprocess.Popen(command, stdout=subprocess.PIPE) as dying:
            members.until(lambda: len(only.owned) == 1, "half is the other's")
            assert dying.stdout is not None
            assert dying.stdout.readline() == b"1\n"
            kill(dying)
        members.until(lambda: len(only.owned) == 2, "all is its own again")


def test_a_member_that_polls_too_seldom_is_out_until_it_polls_again(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, partitions=2)
    slow = {"session.timeout.ms": 1000, "max.poll.interval.ms": 1000}
    with Members(broker, new_group(wire), **RANGE) as members:
        lazy = members.start("lazy", topic.name, **slow)
        busy = members.start("busy", topic.name)
        members.until_spread(topic, 1, 1)
        members.running.remove(lazy)
        members.until_owned(topic, {"busy": [0, 1]})
        members.running.append(lazy)
        members.until(lambda: lazy.errors, "lazy is told why")
        assert KafkaError._MAX_POLL_EXCEEDED in {error.code() for error in lazy.errors}
        members.until_spread(topic, 1, 1)
        assert ("lost", [(topic.name, 1)]) in lazy.events
        assert busy.partitions(topic) == [0]


def test_new_partitions_are_shared_out(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, partitions=2)
    with Members(broker, new_group(wire), **RANGE, **{"topic.metadata.refresh.interval.ms": 200}) as members:
        for name in ("ann", "bob"):
            members.start(name, topic.name)
        members.until_owned(topic, {"ann": [0], "bob": [1]})
        entry = {"name": topic.name, "count": 5, "assignments": None}
        wire.send("create_partitions", topics=[entry], timeout=5000)
        members.until_owned(topic, {"ann": [0, 1, 2], "bob": [3, 4]})


def test_topics_that_match_a_pattern_join_in(broker: Broker, wire: Wire) -> None:
    prefix = unique_name("pattern")
    first = create_topic(wire, name=f"{prefix}.first")
    settings = {"topic.metadata.refresh.interval.ms": 200}
    with one_member(broker, new_group(wire), f"^{prefix}\\..*", **RANGE, **settings) as (members, only):
        assert only.owned == {(first.name, 0)}
        second = create_topic(wire, name=f"{prefix}.second")
        members.until(lambda: only.owned == {(first.name, 0), (second.name, 0)}, "both topics")


def test_every_record_is_read_once_while_members_come_and_go(broker: Broker, wire: Wire) -> None:
    """Each member commits what it has read before its partitions move, so the next goes on from there."""
    topic = create_topic(wire, partitions=4)
    for partition in range(4):
        produce_ok(wire, topic, batch(*(b"%d/%d" % (partition, n) for n in range(50))), partition=partition)
    read: list[bytes] = []
    settings = {**COOPERATIVE, "enable.auto.commit": True, "auto.commit.interval.ms": 100}
    with Members(broker, new_group(wire), **settings) as members:
        ann = members.start("ann", topic.name)
        members.until(lambda: len(ann.received) == 200, "all there was")
        members.start("bob", topic.name)
        members.until_spread(topic, 2, 2)
        members.stop(ann)
        for partition in range(4):
            produce_ok(wire, topic, batch(*(b"%d/%d" % (partition, n) for n in range(50, 60))), partition=partition)
        bob = members.running[0]
        members.until(lambda: len(ann.received) + len(bob.received) == 240, "the rest")
        read = ann.values() + bob.values()
    assert sorted(read) == sorted(b"%d/%d" % (partition, n) for partition in range(4) for n in range(60))


def test_a_paused_partition_is_silent_and_stays_its_members(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, partitions=2)
    with one_member(broker, new_group(wire), topic.name, **RANGE) as (members, only):
        only.consumer.pause([TopicPartition(topic.name, 0)])
        for partition in range(2):
            produce_ok(wire, topic, batch(b"%d" % partition), partition=partition)
        members.until(lambda: only.received, "the other partition's record")
        assert only.values() == [b"1"]
        only.consumer.resume([TopicPartition(topic.name, 0)])
        members.until(lambda: len(only.received) == 2, "the paused partition's record")
        assert only.events == [("assigned", [(topic.name, 0), (topic.name, 1)])]


def test_seeking_back_reads_again(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)
    produce_ok(wire, topic, batch(b"0", b"1", b"2"))
    with one_member(broker, new_group(wire), topic.name, **RANGE) as (members, only):
        members.until(lambda: len(only.received) == 3, "all three")
        only.consumer.seek(TopicPartition(topic.name, 0, 1))
        members.until(lambda: len(only.received) == 5, "two of them again")
        assert only.values() == [b"0", b"1", b"2", b"1", b"2"]


def test_a_group_that_all_have_left_is_empty(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)
    with one_member(broker, new_group(wire), topic.name, **RANGE) as (members, only):
        assert group_state(wire, members.group) == "Stable"
        members.stop(only)
        eventually(lambda: group_state(wire, members.group) == "Empty", "the group is empty")
        only_left = wire.send("describe_groups", groups=[members.group]).groups[0]
        assert (only_left.error_code, only_left.protocol_type, only_left.members) == (ErrorCode.none, "consumer", ())
