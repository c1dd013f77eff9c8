"""A consumer group becomes a classic group when only classic members are left."""

from typing import Any

import pytest

from headwater.protocol.kafka_types import ErrorCode

from .building import GROUP
from .consumer_building import CONSUMER_SESSION_MS, ClassicConsumer, Consumer, ConsumerDriver


def mixed_group(
    *, cooperative: bool = False, instance: str | None = None, **settings: Any
) -> tuple[ConsumerDriver, Consumer, ClassicConsumer]:
    """One member of each protocol, both with what is theirs."""
    driver = ConsumerDriver(**settings)
    new = Consumer(driver, "new", "orders", instance=instance)
    old = ClassicConsumer(driver, "orders", cooperative=cooperative)
    for _ in range(5):
        new.beat()
        old.settle()
    assert driver.describe_consumer_group().group_state == "Stable"
    return driver, new, old


@pytest.mark.parametrize("cooperative", [False, True], ids=["eager", "cooperative"])
def test_the_classic_members_rebalance_among_themselves(cooperative: bool) -> None:
    driver, new, old = mixed_group(cooperative=cooperative)
    generation = old.generation
    new.leave()
    driver.pass_time(0)
    assert driver.state() == "PreparingRebalance"
    assert driver.heartbeat(old.member_id, generation) is ErrorCode.rebalance_in_progress
    old.settle()
    driver.pass_time(1)
    old.settle()
    assert (driver.state(), old.reads) == ("Stable", driver.all_partitions("orders"))
    assert old.generation == generation + 1


def test_a_member_whose_session_ends_makes_it_classic_too() -> None:
    driver, _, old = mixed_group()
    for _ in range(CONSUMER_SESSION_MS // 5_000):
        driver.pass_time(5_000)
        old.settle()
    assert driver.describe_consumer_group().error_code is ErrorCode.group_id_not_found
    assert driver.state() in ("PreparingRebalance", "CompletingRebalance", "Stable")


def test_a_restart_finds_the_classic_group() -> None:
    driver, new, old = mixed_group()
    driver.commit({("orders", 0): 3}, member_id="new", generation=new.epoch)
    new.leave()
    driver.restart()
    assert driver.state() == "Stable"
    assert driver.heartbeat(old.member_id, old.generation) is ErrorCode.none
    assert driver.committed() == {("orders", 0): 3}


def test_a_member_that_waits_for_partitions_is_not_given_what_others_have() -> None:
    driver, new, old = mixed_group()
    other = ClassicConsumer(driver, "orders")
    other.settle()
    new.leave()
    driver.restart()
    has = {member.member_id: member.member_assignment for member in driver.shard.describe(GROUP, 6).members}
    assert other.reads == frozenset()
    assert has[other.member_id].count(b"orders") == 0
    assert has[old.member_id].count(b"orders") == 1


def test_a_failed_write_leaves_the_consumer_group() -> None:
    driver, new, old = mixed_group()
    driver.fail_appends = True
    new.leave()
    driver.fail_appends = False
    driver.pass_time(1)
    assert driver.describe_consumer_group().group_state == "Stable"
    assert driver.heartbeat(old.member_id, old.generation) is ErrorCode.none


@pytest.mark.parametrize(
    "settings",
    [
        {"group_consumer_migration_policy": "disabled"},
        {"group_consumer_migration_policy": "upgrade"},
    ],
    ids=["disabled", "one way only"],
)
def test_a_group_that_may_not_be_downgraded_stays_a_consumer_group(settings: dict[str, Any]) -> None:
    driver, new, old = mixed_group(**settings)
    new.leave()
    assert driver.describe_consumer_group().group_state == "Assigning"
    for _ in range(3):
        old.settle()
    assert old.reads == driver.all_partitions("orders")


def test_a_group_too_large_to_be_classic_stays_a_consumer_group() -> None:
    driver, new, _ = mixed_group(group_max_size=1)
    more = ClassicConsumer(driver, "orders")
    for _ in range(4):
        more.settle()
        new.beat()
    new.leave()
    assert driver.describe_consumer_group().group_state == "Assigning"


def test_when_the_last_member_leaves_the_group_is_empty_and_of_no_other_kind() -> None:
    driver, new, old = mixed_group()
    old.leave()
    new.leave()
    assert driver.describe_consumer_group().group_state == "Empty"


def test_an_empty_consumer_group_is_replaced_by_a_classic_one() -> None:
    driver = ConsumerDriver(group_consumer_migration_policy="disabled")
    driver.enter_as_consumer("new", "orders")
    driver.beat("new", -1)
    driver.commit({("orders", 0): 4})
    old = ClassicConsumer(driver, "orders")
    old.settle()
    driver.pass_time(1)
    old.settle()
    assert (driver.state(), old.generation, driver.committed()) == ("Stable", 1, {("orders", 0): 4})
    driver.restart()
    assert (driver.state(), driver.committed()) == ("Stable", {("orders", 0): 4})


def test_a_static_member_that_is_rolled_back_makes_the_group_classic() -> None:
    """The last member of the consumer protocol comes back speaking the classic one, with its instance id."""
    driver, _, old = mixed_group(instance="i")
    back = ClassicConsumer(driver, "orders", instance="i")
    back.settle()
    assert driver.describe_consumer_group().error_code is ErrorCode.group_id_not_found
    assert (driver.state(), back.generation) == ("Stable", old.generation), "nothing changed for the others"
    assert back.reads | old.reads == driver.all_partitions("orders")
    assert driver.heartbeat(old.member_id, old.generation) is ErrorCode.none


def test_a_static_member_that_is_rolled_back_with_another_subscription_makes_it_rebalance() -> None:
    driver, _, old = mixed_group(instance="i")
    back = ClassicConsumer(driver, "orders", "payments", instance="i")
    back.step()
    driver.pass_time(0)
    assert driver.state() == "PreparingRebalance"
    for _ in range(5):
        back.settle()
        old.settle()
        driver.pass_time(1)
    assert driver.state() == "Stable"
    assert back.reads | old.reads == driver.all_partitions("orders", "payments")


def test_an_administrator_may_put_out_members_of_either_protocol() -> None:
    driver, _, _ = mixed_group(instance="i")
    response = driver.leave(("", "i"), "nobody")
    assert [member.error_code for member in response.members] == [ErrorCode.none, ErrorCode.unknown_member_id]
    assert response.members[0].group_instance_id == "i"
    assert driver.describe_consumer_group().error_code is ErrorCode.group_id_not_found
    assert driver.state() == "Stable"
    driver.pass_time(0)
    assert driver.state() == "PreparingRebalance"
