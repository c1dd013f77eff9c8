"""A classic group becomes a consumer group when a member of the consumer protocol joins it."""

import pytest

from headwater.coordinator.group.consumer_group import ConsumerGroup
from headwater.coordinator.group.consumer_protocol import Assignment, NamedPartitions, write_assignment
from headwater.coordinator.group.records import CLASSIC_GROUP, GroupKey
from headwater.coordinator.outcome import CoordinatorRecord
from headwater.protocol.kafka_types import ErrorCode

from .building import GROUP, SESSION_MS, LogRecord
from .consumer_building import ClassicConsumer, Consumer, ConsumerDriver, assigned, state_of


def with_classic_members(*consumers: ClassicConsumer) -> None:
    """All of them, in one classic group that is stable."""
    driver = consumers[0].driver
    for _ in range(10):
        for consumer in consumers:
            consumer.step()
        driver.pass_time(1)
    assert driver.state() == "Stable"


def settle(driver: ConsumerDriver, *consumers: Consumer | ClassicConsumer) -> None:
    for _ in range(10):
        for consumer in consumers:
            consumer.step()
        driver.pass_time(1_000)


@pytest.mark.parametrize("cooperative", [False, True], ids=["eager", "cooperative"])
def test_classic_members_stay_and_share_with_the_new_one(cooperative: bool) -> None:
    driver = ConsumerDriver()
    old = [ClassicConsumer(driver, "orders", cooperative=cooperative) for _ in range(2)]
    with_classic_members(*old)
    had = {consumer.member_id: consumer.reads for consumer in old}
    new = Consumer(driver, "new", "orders")
    new.beat()
    group = driver.consumer_group()
    assert (new.epoch, new.reads) == (driver.consumer_group().epoch, frozenset())
    assert {member_id: group.members[member_id].assigned for member_id in had} == had
    settle(driver, new, *old)
    assert driver.describe_consumer_group().group_state == "Stable"
    assert [len(new.reads), *(len(consumer.reads) for consumer in old)] == [1, 1, 1]


def test_the_record_of_the_classic_group_goes_before_the_new_ones_come() -> None:
    driver = ConsumerDriver()
    with_classic_members(ClassicConsumer(driver, "orders"))
    before = len(driver.log)
    driver.enter_as_consumer("new", "orders")
    first, *rest = [entry for entry in driver.log[before:] if isinstance(entry, LogRecord)]
    assert CoordinatorRecord(first.key, first.value) == CLASSIC_GROUP.record(GroupKey(GROUP), None)
    assert all(entry.value is not None for entry in rest)
    replayed = driver.replayed()._groups[GROUP]
    assert isinstance(replayed, ConsumerGroup)
    assert state_of(replayed) == state_of(driver.consumer_group())


def test_the_generation_becomes_the_epoch() -> None:
    driver = ConsumerDriver()
    old = ClassicConsumer(driver, "orders")
    with_classic_members(old)
    joined = driver.enter_as_consumer("new", "orders")
    assert joined.response.member_epoch == old.generation + 1
    assert driver.heartbeat(old.member_id, old.generation) is ErrorCode.rebalance_in_progress


def test_members_that_wait_in_a_rebalance_are_told_to_join_again() -> None:
    driver = ConsumerDriver()
    old = ClassicConsumer(driver, "orders")
    with_classic_members(old)
    other = ClassicConsumer(driver, "orders")
    other.step()
    other.step()
    other.step()
    assert other.is_waiting
    assert driver.state() == "PreparingRebalance"
    new = Consumer(driver, "new", "orders")
    new.beat()
    assert not other.is_waiting
    settle(driver, new, old, other)
    assert sorted(len(consumer.reads) for consumer in (new, old, other)) == [1, 1, 1]


def test_nobody_who_waits_is_let_go_when_the_newcomer_is_refused() -> None:
    driver = ConsumerDriver()
    old = ClassicConsumer(driver, "orders")
    with_classic_members(old)
    other = ClassicConsumer(driver, "orders")
    for _ in range(3):
        other.step()
    assert driver.enter_as_consumer("new", regex="(").error is ErrorCode.invalid_regular_expression
    assert other.is_waiting
    assert driver.state() == "PreparingRebalance"


def test_a_group_that_could_not_be_rewritten_stays_classic_and_works() -> None:
    driver = ConsumerDriver()
    old = ClassicConsumer(driver, "orders")
    with_classic_members(old)
    driver.fail_appends = True
    driver.enter_as_consumer("new", "orders")
    driver.fail_appends = False
    settle(driver, old)
    assert driver.state() == "Stable"
    assert old.reads == driver.all_partitions("orders")


def test_a_static_classic_member_is_replaced_by_its_updated_self() -> None:
    driver = ConsumerDriver()
    old = ClassicConsumer(driver, "orders", instance="i")
    with_classic_members(old)
    call = driver.enter_as_consumer("new", "orders", instance="i")
    assert (call.error, assigned(call)) == (ErrorCode.none, driver.all_partitions("orders"))
    assert set(driver.consumer_group().members) == {"new"}


def test_what_the_classic_group_had_not_assigned_yet_is_assigned() -> None:
    driver = ConsumerDriver()
    old = ClassicConsumer(driver, "orders", instance="i")
    old.step()
    driver.pass_time(0)
    assert driver.state() == "CompletingRebalance"
    call = driver.enter_as_consumer("new", "orders", instance="i")
    assert assigned(call) == driver.all_partitions("orders")


def test_an_empty_classic_group_is_replaced() -> None:
    driver = ConsumerDriver(group_consumer_migration_policy="disabled")
    old = ClassicConsumer(driver, "orders")
    with_classic_members(old)
    old.leave()
    driver.commit({("orders", 0): 7})
    assert driver.enter_as_consumer("new", "orders").response.member_epoch == 1
    assert driver.committed() == {("orders", 0): 7}
    driver.restart()
    assert driver.consumer_group().epoch == 1


def test_a_group_that_only_kept_offsets_is_replaced_and_keeps_them() -> None:
    driver = ConsumerDriver()
    driver.commit({("orders", 0): 7})
    driver.enter_as_consumer("new", "orders")
    assert driver.committed() == {("orders", 0): 7}
    driver.restart()
    assert (driver.committed(), driver.consumer_group().epoch) == ({("orders", 0): 7}, 1)


@pytest.mark.parametrize(
    ("settings", "classic"),
    [
        ({"group_consumer_migration_policy": "disabled"}, {}),
        ({"group_consumer_migration_policy": "DOWNGRADE"}, {}),
        ({"group_consumer_max_size": 1}, {}),
        ({}, {"protocol_type": "connect"}),
        ({}, {"protocols": {"range": b"\0\0\xff"}}),
    ],
    ids=["disabled", "one way only", "too many members", "no consumers", "cannot be read"],
)
def test_a_group_that_may_not_be_upgraded_stays_classic(
    settings: dict[str, object], classic: dict[str, object]
) -> None:
    driver = ConsumerDriver(**settings)
    driver.stable_group(size=2, **classic)
    before = driver.state()
    assert driver.enter_as_consumer("new", "orders").error is ErrorCode.group_id_not_found
    assert driver.state() == before


def test_an_assignor_that_keeps_data_of_its_own_would_lose_it() -> None:
    driver = ConsumerDriver()
    joined = driver.enter()
    driver.pass_time(0)
    kept = Assignment(partitions=(NamedPartitions("orders", (0,)),), user_data=b"mine")
    driver.sync(joined.response, {joined.response.member_id: write_assignment(kept, 1)})
    assert driver.enter_as_consumer("new", "orders").error is ErrorCode.group_id_not_found


def test_a_partition_that_two_members_were_given_has_one_holder() -> None:
    driver = ConsumerDriver()
    joined = [driver.enter(), driver.enter()]
    driver.pass_time(0)
    twice = write_assignment(Assignment(partitions=(NamedPartitions("orders", (0, 1)),)), 0)
    for call in joined:
        driver.sync(call.response, {each.response.member_id: twice for each in joined})
    driver.enter_as_consumer("new", "payments")
    holders = [member.assigned for member in driver.consumer_group().members.values()]
    assert sorted(len(held) for held in holders) == [0, 2, 2], "the newcomer has both payments"


def test_a_heartbeat_with_an_epoch_upgrades_nothing() -> None:
    driver = ConsumerDriver()
    with_classic_members(ClassicConsumer(driver, "orders"))
    assert driver.beat("new", 1).error is ErrorCode.group_id_not_found
    assert driver.beat("new", -1).error is ErrorCode.group_id_not_found


def test_classic_sessions_go_on_in_the_consumer_group() -> None:
    driver = ConsumerDriver()
    old = ClassicConsumer(driver, "orders")
    with_classic_members(old)
    new = Consumer(driver, "new", "orders")
    new.beat()
    driver.pass_time(SESSION_MS - 1)
    assert old.member_id in driver.consumer_group().members
    driver.pass_time(1)
    assert old.member_id not in driver.consumer_group().members
    new.beat()
    assert new.reads == driver.all_partitions("orders")
