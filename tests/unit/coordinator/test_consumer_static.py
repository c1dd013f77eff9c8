"""Static members of consumer groups: the instance id is the member, whatever the member id."""

from headwater.protocol.kafka_types import ErrorCode

from .consumer_building import CONSUMER_SESSION_MS, Consumer, ConsumerDriver, assigned


def with_static_member() -> ConsumerDriver:
    driver = ConsumerDriver()
    driver.enter_as_consumer("a1", "orders", instance="i")
    return driver


def test_an_instance_id_in_use_is_not_given_to_another() -> None:
    driver = with_static_member()
    assert driver.enter_as_consumer("a2", "orders", instance="i").error is ErrorCode.unreleased_instance_id


def test_a_first_join_whose_response_was_lost_may_be_sent_again() -> None:
    driver = with_static_member()
    again = driver.enter_as_consumer("a1", "orders", instance="i")
    assert (again.error, assigned(again)) == (ErrorCode.none, driver.all_partitions("orders"))


def test_a_member_that_went_away_finds_its_partitions_when_it_is_back() -> None:
    driver = with_static_member()
    other = Consumer(driver, "b", "orders")
    other.beat()
    away = driver.beat("a1", -2, instance="i")
    assert (away.error, away.response.member_epoch) == (ErrorCode.none, -2)
    assert driver.describe_consumer_group().group_state == "Reconciling"
    epoch = driver.consumer_group().epoch
    target = driver.consumer_group().targets["a1"]
    back = driver.enter_as_consumer("a2", "orders", instance="i")
    assert (back.response.member_epoch, assigned(back)) == (epoch, target)
    assert driver.consumer_group().epoch == epoch, "nobody else notices"
    other.beat()
    other.beat()
    assert driver.describe_consumer_group().group_state == "Stable"


def test_a_member_that_is_back_with_another_subscription_makes_a_new_epoch() -> None:
    driver = with_static_member()
    driver.beat("a1", -2, instance="i")
    back = driver.enter_as_consumer("a2", "payments", instance="i")
    assert (back.response.member_epoch, assigned(back)) == (2, driver.all_partitions("payments"))


def test_the_old_incarnation_is_fenced() -> None:
    driver = with_static_member()
    driver.beat("a1", -2, instance="i")
    driver.enter_as_consumer("a2", "orders", instance="i")
    assert driver.beat("a1", 1, instance="i").error is ErrorCode.fenced_instance_id
    assert driver.beat("a1", -1, instance="i").error is ErrorCode.fenced_instance_id
    assert driver.beat("a1", 1).error is ErrorCode.unknown_member_id


def test_a_member_that_is_away_sends_no_heartbeats() -> None:
    driver = with_static_member()
    driver.beat("a1", -2, instance="i")
    assert driver.beat("a1", 1, instance="i").error is ErrorCode.fenced_member_epoch


def test_an_instance_id_that_nobody_has_is_unknown() -> None:
    driver = with_static_member()
    assert driver.beat("a1", 1, instance="j").error is ErrorCode.unknown_member_id


def test_a_member_that_does_not_come_back_is_put_out_when_its_session_ends() -> None:
    driver = with_static_member()
    driver.pass_time(10_000)
    driver.beat("a1", -2, instance="i")
    driver.pass_time(CONSUMER_SESSION_MS - 10_001)
    assert "a1" in driver.consumer_group().members
    driver.pass_time(1)
    assert driver.consumer_group().is_empty
    assert driver.enter_as_consumer("a2", "orders", instance="i").error is ErrorCode.none


def test_a_static_member_may_leave_for_good() -> None:
    driver = with_static_member()
    assert driver.beat("a1", -1, instance="i").error is ErrorCode.none
    assert driver.consumer_group().is_empty


def test_a_full_group_takes_its_static_member_back() -> None:
    driver = ConsumerDriver(group_consumer_max_size=1)
    driver.enter_as_consumer("a1", "orders", instance="i")
    driver.beat("a1", -2, instance="i")
    assert driver.enter_as_consumer("a2", "orders", instance="i").error is ErrorCode.none


def test_what_it_was_told_to_give_back_is_free_while_it_is_away() -> None:
    driver = with_static_member()
    b = Consumer(driver, "b", "orders")
    b.beat()
    driver.beat("a1", 1)
    driver.beat("a1", -2, instance="i")
    b.beat()
    assert b.reads == driver.consumer_group().targets["b"]
