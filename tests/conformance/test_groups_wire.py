"""Rebalances step by step over the wire: who waits for whom, who is told what, and who is refused."""

import contextlib
import functools
from collections.abc import Iterator

from kio.schema.errors import ErrorCode

from .actions import Topic, create_topic, eventually
from .conftest import Broker
from .raw_groups import (
    JOINING,
    LEAVING,
    ClassicMember,
    ConsumerMember,
    assignment,
    committed,
    new_group,
    offsets_to_commit,
    settle,
    subscription,
)
from .wire import Wire


@contextlib.contextmanager
def members(broker: Broker, group: str, count: int) -> Iterator[list[ClassicMember]]:
    """Members that have ids and joined one after the other, the group stable again each time. The first leads."""
    with contextlib.ExitStack() as stack:
        joined: list[ClassicMember] = []
        for _ in range(count):
            newcomer = stack.enter_context(ClassicMember(broker.bootstrap, group))
            newcomer.introduce()
            joined.append(newcomer)
            rejoin(*joined)
        yield joined


def rejoin(leader: ClassicMember, *followers: ClassicMember) -> None:
    """All join, the last one first, and the leader gives each its own id as its share."""
    *others, newcomer = (leader, *followers)
    start_rebalance(newcomer, *others)
    for member in others:
        member.start_joining()
    for member in (newcomer, *others):
        assert member.joined().error_code is ErrorCode.none
    for follower in followers:
        follower.start_syncing()
    leader.start_syncing({member.id: member.id.encode() for member in (leader, *followers)})
    for member in (leader, *followers):
        answer = member.synced()
        assert (answer.error_code, answer.assignment) == (ErrorCode.none, member.id.encode())


def start_rebalance(starter: ClassicMember, *others: ClassicMember) -> None:
    """One joins, and all others have noticed: only then does it count when they join too."""
    starter.start_joining()
    for member in others:
        eventually(functools.partial(_sees_a_rebalance, member), "the rebalance")


def _sees_a_rebalance(member: ClassicMember) -> bool:
    return member.heartbeat() is ErrorCode.rebalance_in_progress


def test_the_first_to_join_leads_and_only_it_hears_of_the_others(broker: Broker, wire: Wire) -> None:
    with members(broker, new_group(wire), 2) as (first, second):
        start_rebalance(first, second)
        second.start_joining()
        led, followed = first.joined(), second.joined()
        assert led.leader == followed.leader == first.id
        assert sorted(found.member_id for found in led.members) == sorted([first.id, second.id])
        assert followed.members == ()
        assert led.generation_id == followed.generation_id == 3


def test_the_first_protocol_that_all_can_speak_is_chosen(broker: Broker, wire: Wire) -> None:
    group = new_group(wire)
    first = ClassicMember(broker.bootstrap, group, protocols={"a": b"1", "b": b"2"})
    second = ClassicMember(broker.bootstrap, group, protocols={"c": b"3", "b": b"4"})
    with first, second:
        first.join()
        first.sync()
        second.introduce()
        start_rebalance(second, first)
        led = first.join()
        assert (led.protocol_name, second.joined().protocol_name) == ("b", "b")
        assert {found.member_id: found.metadata for found in led.members} == {first.id: b"2", second.id: b"4"}


def test_heartbeats_and_commits_tell_of_a_rebalance(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)
    with members(broker, new_group(wire), 1) as (old,), ClassicMember(broker.bootstrap, old.group) as newcomer:
        newcomer.introduce()
        start_rebalance(newcomer, old)
        # Until it has joined again the old member may still say how far it came; after that it is too late.
        assert old.commit(topic, 5) is ErrorCode.none
        answer = old.sync({old.id: b"late"})
        assert answer.error_code is ErrorCode.rebalance_in_progress
        old.join()
        newcomer.joined()
        assert old.commit(topic, 6) is ErrorCode.rebalance_in_progress
        assert committed(wire, old.group, topic)[0].committed_offset == 5


def test_followers_wait_for_the_leaders_word(broker: Broker, wire: Wire) -> None:
    with members(broker, new_group(wire), 2) as (leader, follower):
        start_rebalance(leader, follower)
        follower.start_joining()
        assert (leader.joined().error_code, follower.joined().error_code) == (ErrorCode.none, ErrorCode.none)
        follower.start_syncing({follower.id: b"a follower has no say"})
        described = wire.send("describe_groups", groups=[leader.group]).groups[0]
        assert described.group_state == "CompletingRebalance"
        leader.sync({follower.id: b"yours", leader.id: b"mine"})
        assert follower.synced().assignment == b"yours"


def test_a_member_that_never_syncs_is_put_out(broker: Broker, wire: Wire) -> None:
    group = new_group(wire)
    with (
        ClassicMember(broker.bootstrap, group) as leader,
        ClassicMember(broker.bootstrap, group, rebalance_timeout_ms=500, session_timeout_ms=500) as silent,
    ):
        leader.rebalance_timeout_ms = 500
        leader.join()
        leader.sync({leader.id: b"all"})
        silent.introduce()
        start_rebalance(silent, leader)
        leader.join()
        silent.joined()
        leader.sync({leader.id: b"all"})
        eventually(lambda: leader.heartbeat() is ErrorCode.rebalance_in_progress, "the silent one is put out")
        assert silent.heartbeat() is ErrorCode.unknown_member_id
        answer = leader.join()
        assert [found.member_id for found in answer.members] == [leader.id]


def test_a_member_that_stops_beating_is_put_out(broker: Broker, wire: Wire) -> None:
    group = new_group(wire)
    with ClassicMember(broker.bootstrap, group, session_timeout_ms=300) as member:
        member.join()
        member.sync({member.id: b"all"})
        described = wire.send("describe_groups", groups=[group]).groups[0]
        assert described.group_state == "Stable"

        def is_empty() -> bool:
            state: str = wire.send("describe_groups", groups=[group]).groups[0].group_state
            return state == "Empty"

        eventually(is_empty, "the end of the session")
        assert member.heartbeat() is ErrorCode.unknown_member_id


def test_an_id_that_was_given_and_never_used_is_forgotten(broker: Broker, wire: Wire) -> None:
    with ClassicMember(broker.bootstrap, new_group(wire), session_timeout_ms=200) as member:
        member.introduce()
        taken = member.id

        def forgotten() -> bool:
            (described,) = wire.send("describe_groups", groups=[member.group]).groups
            return not described.members

        eventually(forgotten, "nobody is there")
        # Only time takes the id away; the heartbeat of an id without a share does not keep it.
        eventually(lambda: member.heartbeat() is ErrorCode.unknown_member_id, "the id is forgotten")
        assert taken


def test_trap_a_member_that_joins_twice_at_once_is_still_known(broker: Broker, wire: Wire) -> None:
    """A client that lost its connection while it waited comes again with the same id: both waits are one member's."""
    with members(broker, new_group(wire), 2) as (leader, follower):
        follower.protocols = {"range": subscription("another-topic")}
        start_rebalance(follower, leader)
        with ClassicMember(broker.bootstrap, follower.group, protocols=follower.protocols) as again:
            again.id = follower.id
            again.start_joining()
            led = leader.join()
            answer = again.joined()
            assert (answer.error_code, answer.member_id) == (ErrorCode.none, follower.id)
            assert sorted(found.member_id for found in led.members) == sorted([leader.id, follower.id])
            again.start_syncing()
            leader.sync({leader.id: b"1", follower.id: b"2"})
            assert again.synced().assignment == b"2"


def test_trap_many_rebalances_at_once_lose_nobody(broker: Broker, wire: Wire) -> None:
    """Newcomers arrive while others still join and sync: whoever has an id is never told that it is unknown."""
    with members(broker, new_group(wire), 3) as old, contextlib.ExitStack() as stack:
        leader = old[0]
        newcomers = [stack.enter_context(ClassicMember(broker.bootstrap, leader.group)) for _ in range(3)]
        # A round waits for whoever has been given an id, so the third is not introduced yet.
        for newcomer in newcomers[:2]:
            newcomer.introduce()
        start_rebalance(newcomers[0], *old)
        for member in old[1:]:
            member.start_joining()
        newcomers[1].start_joining()
        leader.start_joining()
        generation = {leader.joined().generation_id}
        for member in (*old[1:], *newcomers[:2]):
            answer = member.joined()
            assert answer.error_code is ErrorCode.none
            generation.add(answer.generation_id)
        assert len(generation) == 1
        # The leader's word is late: another newcomer has started the next round.
        for member in old[1:]:
            member.start_syncing()
        newcomers[2].introduce()
        start_rebalance(newcomers[2], leader)
        for member in old[1:]:
            assert member.synced().error_code is ErrorCode.rebalance_in_progress
        assert leader.sync({}).error_code is ErrorCode.rebalance_in_progress
        for member in (*old[1:], *newcomers[:2], leader):
            assert member.heartbeat() is ErrorCode.rebalance_in_progress
            member.start_joining()
        for member in (*old, *newcomers):
            assert member.joined().error_code is ErrorCode.none


def test_a_group_takes_no_more_members_than_allowed(broker: Broker, wire: Wire) -> None:
    """Ten, by the settings of both brokers. Version 3 asks for no id first, so a join is one call."""
    with ClassicMember(broker.bootstrap, new_group(wire)) as first, contextlib.ExitStack() as stack:
        first.join()
        first.sync({first.id: b""})
        values = {**first.join_values(), "member_id": ""}
        waiting = [stack.enter_context(Wire(broker.bootstrap)) for _ in range(9)]
        for each in waiting:
            each.send_only("join_group", 3, **values)

        def is_full() -> bool:
            (described,) = wire.send("describe_groups", groups=[first.group]).groups
            return len(described.members) == 10

        eventually(is_full, "ten members")
        # A round that is still open may take more than will fit: it is counted when all are there.
        assert len(first.join().members) == 10
        assert wire.send("join_group", 3, **values).error_code is ErrorCode.group_max_size_reached
        assert first.heartbeat() is ErrorCode.none, "who is in stays in"


def test_a_consumer_group_takes_no_more_members_than_allowed(wire: Wire) -> None:
    topic, group = create_topic(wire), new_group(wire)
    for number in range(10):
        joined_consumer(wire, group, topic, f"member-{number}")
    late = ConsumerMember(wire, group, "late", subscribed_topic_names=[topic.name])
    assert late.join().error_code is ErrorCode.group_max_size_reached


def test_leaving_makes_the_others_rebalance(broker: Broker, wire: Wire) -> None:
    with members(broker, new_group(wire), 2) as (leader, follower):
        assert leader.leave() is ErrorCode.none
        assert leader.heartbeat() is ErrorCode.unknown_member_id
        assert follower.heartbeat() is ErrorCode.rebalance_in_progress
        answer = follower.join()
        assert (answer.leader, len(answer.members)) == (follower.id, 1)


def test_a_static_member_comes_back_without_a_rebalance(broker: Broker, wire: Wire) -> None:
    group = new_group(wire)
    with (
        ClassicMember(broker.bootstrap, group, instance_id="one") as before,
        ClassicMember(broker.bootstrap, group, instance_id="one") as after,
    ):
        first = before.join()
        before.sync({before.id: b"the share"})
        second = after.join()
        assert second.error_code is ErrorCode.none
        assert second.generation_id == first.generation_id
        assert after.id != before.id
        assert after.sync().assignment == b"the share"
        assert before.heartbeat() is ErrorCode.fenced_instance_id
        assert before.sync().error_code is ErrorCode.fenced_instance_id
        assert before.commit(create_topic(wire), 1) is ErrorCode.fenced_instance_id
        before.start_joining()
        assert before.joined().error_code is ErrorCode.fenced_instance_id
        assert after.heartbeat() is ErrorCode.none


def test_a_static_leader_that_is_back_is_told_to_skip_the_assignment(broker: Broker, wire: Wire) -> None:
    group = new_group(wire)
    with (
        ClassicMember(broker.bootstrap, group, instance_id="one") as before,
        ClassicMember(broker.bootstrap, group, instance_id="one") as after,
    ):
        before.join()
        before.sync({before.id: b"the share"})
        back = after.join()
        assert (back.leader, back.skip_assignment) == (after.id, True)
        assert [found.group_instance_id for found in back.members] == ["one"]


def test_a_static_member_that_changes_the_protocol_makes_the_group_rebalance(broker: Broker, wire: Wire) -> None:
    group = new_group(wire)
    wanted = subscription("a-topic")
    both, one = {"range": wanted, "roundrobin": wanted}, {"roundrobin": wanted}
    with (
        ClassicMember(broker.bootstrap, group, instance_id="one", protocols=both) as before,
        ClassicMember(broker.bootstrap, group, instance_id="one", protocols=one) as after,
    ):
        first = before.join()
        before.sync({before.id: b"the share"})
        assert after.join().generation_id == first.generation_id + 1


def test_a_static_member_is_removed_by_name(broker: Broker, wire: Wire) -> None:
    with ClassicMember(broker.bootstrap, new_group(wire), instance_id="one") as member:
        member.join()
        member.sync({member.id: b"the share"})
        gone = [{"member_id": "", "group_instance_id": "one"}]
        answer = wire.send("leave_group", group_id=member.group, members=gone)
        assert [found.error_code for found in answer.members] == [ErrorCode.none]
        assert member.heartbeat() is ErrorCode.unknown_member_id


def test_offsets_go_with_their_topic(wire: Wire) -> None:
    kept, gone, group = create_topic(wire), create_topic(wire), new_group(wire)
    for topic in (kept, gone):
        wire.send("offset_commit", group_id=group, topics=offsets_to_commit(topic, {0: 5}))
    wire.send("delete_topics", topics=[{"name": gone.name, "topic_id": None}], timeout=10_000)

    def topics() -> set[str]:
        (answer,) = wire.send("offset_fetch", groups=[{"group_id": group, "topics": None}]).groups
        return {found.name for found in answer.topics}

    eventually(lambda: topics() == {kept.name}, "its offsets are gone too")


def joined_consumer(wire: Wire, group: str, topic: Topic, name: str) -> ConsumerMember:
    member = ConsumerMember(wire, group, name, subscribed_topic_names=[topic.name])
    assert member.join().error_code is ErrorCode.none
    return member


def test_a_consumer_member_waits_until_its_partitions_are_free(wire: Wire) -> None:
    topic = create_topic(wire, partitions=2)
    group = new_group(wire, knows=topic)
    old = joined_consumer(wire, group, topic, "old")
    settle(old)
    assert old.partitions(topic) == [0, 1]
    newcomer = joined_consumer(wire, group, topic, "newcomer")
    assert newcomer.partitions(topic) == []
    old.heartbeat()
    assert len(old.partitions(topic)) == 1, "it is told to give one up"
    newcomer.heartbeat()
    assert newcomer.partitions(topic) == [], "which is not free before it says so"
    settle(old, newcomer)
    assert sorted(old.partitions(topic) + newcomer.partitions(topic)) == [0, 1]


def test_a_consumer_member_commits_and_fetches_only_in_its_epoch(wire: Wire) -> None:
    topic = create_topic(wire)
    group = new_group(wire, knows=topic)
    member = joined_consumer(wire, group, topic, "member")
    settle(member)

    def commit(epoch: int, member_id: str = "member") -> ErrorCode:
        identity = {"group_id": group, "member_id": member_id, "generation_id_or_member_epoch": epoch}
        answer = wire.send("offset_commit", **identity, topics=offsets_to_commit(topic, {0: 5}))
        error: ErrorCode = answer.topics[0].partitions[0].error_code
        return error

    def fetch(epoch: int, member_id: str | None = "member") -> ErrorCode:
        identity = {"group_id": group, "member_id": member_id, "member_epoch": epoch}
        (answer,) = wire.send("offset_fetch", groups=[{**identity, "topics": None}]).groups
        error: ErrorCode = answer.error_code
        return error

    stale, unknown = ErrorCode.stale_member_epoch, ErrorCode.unknown_member_id
    asked = [(member.epoch, "member"), (member.epoch - 1, "member"), (member.epoch, "stranger"), (-1, "")]
    assert [commit(*each) for each in asked] == [ErrorCode.none, stale, unknown, unknown]
    assert [fetch(*each) for each in asked] == [ErrorCode.none, stale, unknown, unknown]
    assert fetch(-1, None) is ErrorCode.none, "asked by nobody in particular"
    # A member of an old version that cannot be told of epochs hears of a generation.
    old = {"group_id": group, "member_id": "member", "generation_id_or_member_epoch": member.epoch - 1}
    answer = wire.send("offset_commit", 8, **old, topics=offsets_to_commit(topic, {0: 5}))
    assert answer.topics[0].partitions[0].error_code in (ErrorCode.unsupported_version, ErrorCode.illegal_generation)


def test_a_consumer_member_that_was_lost_is_replaced_after_its_session(wire: Wire) -> None:
    """Seconds, not milliseconds: the session of the new protocol is the broker's to set."""
    topic = create_topic(wire, partitions=2)
    group = new_group(wire, knows=topic)
    lost = joined_consumer(wire, group, topic, "lost")
    kept = joined_consumer(wire, group, topic, "kept")
    settle(lost, kept)

    def has_all() -> bool:
        kept.report_owned()
        return kept.partitions(topic) == [0, 1]

    eventually(has_all, "the lost member's share")
    assert lost.heartbeat().error_code is ErrorCode.unknown_member_id


def test_a_fenced_consumer_member_joins_again_under_its_id(wire: Wire) -> None:
    """Only from the epoch before its own: so it must have come from 0 in one step, to a group that knows the topic."""
    topic = create_topic(wire)
    group = new_group(wire, knows=topic)
    member = joined_consumer(wire, group, topic, "member")
    assert member.partitions(topic) == [0]
    assert member.heartbeat(member_epoch=member.epoch + 5).error_code is ErrorCode.fenced_member_epoch
    answer = member.join()
    assert (answer.error_code, member.partitions(topic)) == (ErrorCode.none, [0])
    assert member.heartbeat(member_epoch=LEAVING).error_code is ErrorCode.none
    assert member.heartbeat(member_epoch=JOINING, rebalance_timeout=1000, topic_partitions=[], **member.subscribed)


def test_classic_members_are_told_to_rebalance_by_a_consumer_group(broker: Broker, wire: Wire) -> None:
    """The first heartbeat of the new protocol turns the group over; the classic member goes on with its own calls."""
    topic, group = create_topic(wire, partitions=2), new_group(wire)
    protocols = {"range": subscription(topic.name)}
    with ClassicMember(broker.bootstrap, group, protocols=protocols) as classic:
        classic.join()
        classic.sync({classic.id: assignment(topic.name, 0, 1)})
        new = joined_consumer(wire, group, topic, "zzz")
        assert new.partitions(topic) == []
        assert classic.heartbeat() is ErrorCode.rebalance_in_progress
        answer = classic.join()
        assert (answer.error_code, answer.protocol_name) == (ErrorCode.none, "range")
        shared = classic.sync().assignment
        assert shared in (assignment(topic.name, 0), assignment(topic.name, 1))
        eventually(lambda: new.heartbeat() and len(new.partitions(topic)) == 1, "the other half")
        (described,) = wire.send("consumer_group_describe", group_ids=[group]).groups
        assert {found.member_id: found.member_type for found in described.members} == {classic.id: 0, "zzz": 1}
