"""Members of the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""

import pytest

from headwater.coordinator.group.consumer_member import MemberState
from headwater.coordinator.group.consumer_protocol import (
    Assignment,
    Subscription,
    read_assignment,
    write_subscription,
)
from headwater.protocol.kafka_types import ErrorCode

from .building import REBALANCE_MS, SESSION_MS, subscription
from .consumer_building import ClassicConsumer, Consumer, ConsumerDriver, numbers


def with_consumer(**settings: object) -> tuple[ConsumerDriver, Consumer]:
    driver = ConsumerDriver(**settings)
    consumer = Consumer(driver, "new", "orders")
    consumer.beat()
    return driver, consumer


def keep_alive(driver: ConsumerDriver, *consumers: Consumer, ms: int) -> None:
    for _ in range(ms // 1_000):
        driver.pass_time(1_000)
        for consumer in consumers:
            consumer.beat()


def test_a_new_member_is_given_an_id_first() -> None:
    driver, _ = with_consumer()
    call = driver.join()
    assert (call.error, call.response.member_id) == (ErrorCode.member_id_required, "id1")
    joined = driver.join("id1").response
    assert (joined.error_code, joined.generation_id, joined.protocol_type, joined.protocol_name) == (
        ErrorCode.none,
        2,
        "consumer",
        "range",
    )
    assert (joined.leader, joined.members) == ("", ()), "nobody leads: the broker assigns"


def test_old_versions_and_static_members_join_at_once() -> None:
    driver, _ = with_consumer()
    assert driver.join(version=3).error is ErrorCode.none
    assert driver.join(instance="i").error is ErrorCode.none


def test_a_member_is_told_what_it_may_read_when_it_syncs() -> None:
    driver, consumer = with_consumer()
    joined = driver.enter().response
    synced = driver.sync(joined).response
    assert (synced.error_code, synced.protocol_type, synced.protocol_name) == (ErrorCode.none, "consumer", "range")
    assert read_assignment(synced.assignment) == Assignment(partitions=()), "the other has not given back yet"
    assert driver.heartbeat(joined.member_id, joined.generation_id) is ErrorCode.none
    consumer.beat()
    consumer.beat()
    assert driver.heartbeat(joined.member_id, joined.generation_id) is ErrorCode.rebalance_in_progress
    joined = driver.join(joined.member_id).response
    (given,) = read_assignment(driver.sync(joined).response.assignment).partitions
    assert (given.topic, given.partitions) == ("orders", (2,))


@pytest.mark.parametrize("version", [0, 1, 3, 9])
def test_an_assignment_has_the_version_that_the_member_speaks(version: int) -> None:
    driver, _ = with_consumer()
    metadata = write_subscription(Subscription(topics=("orders",)), min(version, 3))
    joined = driver.enter(protocols={"range": version.to_bytes(2, "big") + metadata[2:]}).response
    assert driver.sync(joined).response.assignment[:2] == min(version, 3).to_bytes(2, "big")


def test_a_cooperative_member_keeps_reading_what_it_keeps() -> None:
    driver = ConsumerDriver(group_consumer_migration_policy="upgrade")
    driver.enter_as_consumer("new", "orders")
    old = ClassicConsumer(driver, "orders", cooperative=True)
    old.settle()
    driver.beat("new", -1)
    old.settle()
    assert numbers(old.reads) == [0, 1, 2]
    driver.enter_as_consumer("newer", "orders")
    old.step()
    assert numbers(old.reads) == [0, 1, 2], "it reads on while it joins"
    old.step()
    assert driver.consumer_group().members[old.member_id].state is MemberState.UNREVOKED_PARTITIONS
    old.settle()
    assert (numbers(old.reads), old.is_settled) == ([0, 1], True)


def test_sync_and_heartbeat_are_refused_to_those_who_are_not_what_they_say() -> None:
    driver, consumer = with_consumer()
    joined = driver.enter().response
    assert driver.sync(joined, generation=1).error is ErrorCode.illegal_generation
    assert driver.sync(joined, protocol="roundrobin").error is ErrorCode.inconsistent_group_protocol
    assert driver.sync(joined, protocol_type="connect").error is ErrorCode.inconsistent_group_protocol
    assert driver.heartbeat(joined.member_id, 9) is ErrorCode.illegal_generation
    assert driver.heartbeat("nobody", 2) is ErrorCode.unknown_member_id
    assert driver.heartbeat(consumer.member_id, 1) is ErrorCode.unknown_member_id, "it speaks the other protocol"


def test_a_sync_in_an_epoch_that_is_over_sends_the_member_back() -> None:
    driver, _ = with_consumer()
    joined = driver.enter().response
    driver.enter_as_consumer("newer", "orders")
    assert driver.sync(joined).error is ErrorCode.rebalance_in_progress


@pytest.mark.parametrize(
    "join",
    [
        {"protocol_type": "connect"},
        {"protocols": {"roundrobin": subscription("orders")}},
        {"protocols": {"range": b"\0"}},
    ],
    ids=["no consumer", "nothing in common", "cannot be read"],
)
def test_a_member_that_does_not_fit_is_refused(join: dict[str, object]) -> None:
    driver, _ = with_consumer()
    driver.enter()
    assert driver.join("x", **join).error is ErrorCode.inconsistent_group_protocol  # type: ignore[arg-type]


def test_a_full_group_takes_no_classic_members_either() -> None:
    driver, _ = with_consumer(group_consumer_max_size=1)
    assert driver.join().error is ErrorCode.group_max_size_reached


def test_a_member_that_is_told_to_join_and_does_not_is_put_out() -> None:
    driver, consumer = with_consumer()
    old = ClassicConsumer(driver, "orders", session_ms=1_800_000)
    for _ in range(4):
        old.settle()
        consumer.beat()
    newer = Consumer(driver, "newer", "orders")
    newer.beat()
    assert driver.heartbeat(old.member_id, old.generation) is ErrorCode.rebalance_in_progress
    keep_alive(driver, consumer, newer, ms=REBALANCE_MS - 1_000)
    assert driver.heartbeat(old.member_id, old.generation) is ErrorCode.rebalance_in_progress
    keep_alive(driver, consumer, newer, ms=1_000)
    assert driver.heartbeat(old.member_id, old.generation) is ErrorCode.unknown_member_id


def test_a_member_that_joins_and_does_not_sync_is_put_out() -> None:
    driver, consumer = with_consumer()
    joined = driver.enter(session_ms=1_800_000).response
    keep_alive(driver, consumer, ms=REBALANCE_MS - 1_000)
    assert joined.member_id in driver.consumer_group().members
    keep_alive(driver, consumer, ms=1_000)
    assert joined.member_id not in driver.consumer_group().members


def test_a_member_that_falls_silent_is_put_out_after_the_session_that_it_asked_for() -> None:
    driver, consumer = with_consumer()
    old = ClassicConsumer(driver, "orders")
    old.settle()
    keep_alive(driver, consumer, ms=SESSION_MS - 1_000)
    driver.restart()
    keep_alive(driver, consumer, ms=SESSION_MS - 1_000)
    assert old.member_id in driver.consumer_group().members
    keep_alive(driver, consumer, ms=1_000)
    assert old.member_id not in driver.consumer_group().members


def test_a_member_that_was_put_out_lets_go_of_what_it_had_before_it_joins_again() -> None:
    driver, consumer = with_consumer()
    old = ClassicConsumer(driver, "orders", cooperative=True)
    for _ in range(4):
        old.settle()
        consumer.beat()
    newer = Consumer(driver, "newer", "orders")
    newer.beat()
    old.step()
    assert (numbers(old.reads), old.is_settled) == ([2], False), "it was told to join again, and is slow"
    keep_alive(driver, consumer, newer, ms=SESSION_MS)
    old.step()
    old.step()
    assert (old.reads, old.member_id) == (frozenset(), "")
    for _ in range(4):
        old.settle()
        consumer.beat()
        newer.beat()
    assert sorted(numbers(old.reads | consumer.reads | newer.reads)) == [0, 1, 2]


def test_a_static_member_that_comes_back_takes_its_place() -> None:
    driver, consumer = with_consumer()
    old = ClassicConsumer(driver, "orders", instance="i")
    for _ in range(4):
        old.settle()
        consumer.beat()
    epoch = driver.consumer_group().epoch
    back = ClassicConsumer(driver, "orders", instance="i")
    back.settle()
    assert (back.reads, driver.consumer_group().epoch) == (old.reads, epoch)
    assert driver.heartbeat(old.member_id, old.generation, instance="i") is ErrorCode.fenced_instance_id
    assert driver.join(old.member_id, instance="i").error is ErrorCode.fenced_instance_id
    assert driver.join("x", instance="j").error is ErrorCode.unknown_member_id


def test_members_leave_one_by_one_or_together() -> None:
    driver, consumer = with_consumer()
    ids = [driver.enter().response.member_id for _ in range(3)]
    assert driver.leave(ids[0]).members[0].error_code is ErrorCode.none
    response = driver.leave(ids[1], ids[2], "nobody")
    assert [member.error_code for member in response.members] == [
        ErrorCode.none,
        ErrorCode.none,
        ErrorCode.unknown_member_id,
    ]
    assert set(driver.consumer_group().members) == {consumer.member_id}
    assert driver.leave("nobody", version=2).error_code is ErrorCode.unknown_member_id


def test_a_classic_member_may_go_over_to_the_consumer_protocol_and_stay() -> None:
    driver, consumer = with_consumer()
    joined = driver.enter().response
    driver.beat(joined.member_id, joined.generation_id, topics=["orders"], owned=(), rebalance_ms=REBALANCE_MS)
    assert not driver.consumer_group().members[joined.member_id].is_classic
    for _ in range(REBALANCE_MS // 1_000 + 1):
        driver.pass_time(1_000)
        driver.beat(joined.member_id, joined.generation_id)
        consumer.beat()
    assert joined.member_id in driver.consumer_group().members, "it need not sync"
