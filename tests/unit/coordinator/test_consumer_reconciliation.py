"""On the way to the target: a partition goes to its next reader when the one before has let go of it."""

from headwater.coordinator.group.consumer_member import MemberState
from headwater.coordinator.group.records import CurrentMemberValue
from headwater.protocol.kafka_types import ErrorCode

from .building import REBALANCE_MS
from .consumer_building import CONSUMER_SESSION_MS, Consumer, ConsumerDriver, assigned, numbers


def with_two_members() -> tuple[ConsumerDriver, Consumer, Consumer]:
    """The second has just joined, so the first must give partition 2 back."""
    driver = ConsumerDriver()
    a, b = Consumer(driver, "a", "orders", is_slow=True), Consumer(driver, "b", "orders")
    a.beat()
    b.beat()
    return driver, a, b


def state(driver: ConsumerDriver, member_id: str) -> tuple[MemberState, int]:
    member = driver.consumer_group().members[member_id]
    return member.state, member.epoch


def test_a_new_member_waits_until_others_gave_back_what_is_to_be_its_own() -> None:
    driver, a, b = with_two_members()
    assert (b.epoch, b.reads) == (2, frozenset())
    assert state(driver, "b") == (MemberState.UNRELEASED_PARTITIONS, 2)
    told = a.beat()
    assert told is not None
    assert (a.epoch, numbers(assigned(told))) == (1, [0, 1])
    assert state(driver, "a") == (MemberState.UNREVOKED_PARTITIONS, 1)
    a.beat()
    b.beat()
    assert b.reads == frozenset(), "the first still reads it"
    a.finish_revoking()
    a.beat()
    assert state(driver, "a") == (MemberState.STABLE, 2)
    b.beat()
    assert numbers(b.reads) == [2]
    assert driver.describe_consumer_group().group_state == "Stable"


def test_silence_about_what_it_owns_gives_nothing_back() -> None:
    driver, a, _ = with_two_members()
    a.beat()
    driver.beat("a", 1)
    assert state(driver, "a") == (MemberState.UNREVOKED_PARTITIONS, 1)


def test_a_member_that_does_not_give_back_in_time_is_put_out() -> None:
    driver, a, b = with_two_members()
    a.beat()
    for _ in range(REBALANCE_MS // 10_000 - 1):
        driver.pass_time(10_000)
        a.beat()
        b.beat()
    driver.pass_time(9_999)
    assert "a" in driver.consumer_group().members
    driver.pass_time(1)
    assert "a" not in driver.consumer_group().members
    b.beat()
    assert numbers(b.reads) == [0, 1, 2]
    call = a.beat()
    assert call is not None
    assert call.error is ErrorCode.unknown_member_id


def test_a_member_that_gave_back_in_time_stays() -> None:
    driver, a, b = with_two_members()
    a.beat()
    driver.pass_time(REBALANCE_MS // 2)
    a.finish_revoking()
    a.beat()
    b.beat()
    driver.pass_time(REBALANCE_MS // 2)
    assert set(driver.consumer_group().members) == {"a", "b"}


def test_the_time_to_give_back_begins_anew_after_a_restart() -> None:
    driver, a, _ = with_two_members()
    a.beat()
    for _ in range(3):
        driver.pass_time(REBALANCE_MS // 2)
        driver.restart()
        a.beat()
    assert "a" in driver.consumer_group().members


def test_the_partitions_of_a_member_that_fell_silent_are_free_when_its_session_ends() -> None:
    driver, _, b = with_two_members()
    driver.pass_time(CONSUMER_SESSION_MS - 1)
    b.beat()
    assert b.reads == frozenset()
    driver.pass_time(1)
    b.beat()
    assert numbers(b.reads) == [0, 1, 2]


def test_a_member_that_is_behind_by_several_epochs_goes_straight_to_the_last() -> None:
    driver, a, _ = with_two_members()
    a.is_slow = False
    Consumer(driver, "c", "orders").beat()
    a.beat()
    assert a.epoch == 1, "what it has too much is told first"
    a.beat()
    assert (a.epoch, len(a.reads)) == (3, 1)


def test_a_partition_that_comes_back_before_it_was_given_up_is_kept() -> None:
    _, a, b = with_two_members()
    a.beat()
    b.leave()
    a.finish_revoking()
    a.beat()
    a.finish_revoking()
    assert (a.epoch, numbers(a.reads)) == (3, [0, 1, 2])


def test_a_member_that_subscribes_to_less_gives_the_rest_back() -> None:
    driver = ConsumerDriver()
    a = Consumer(driver, "a", "orders", "payments")
    a.beat()
    a.subscribe("payments")
    a.beat()
    a.beat()
    assert a.reads == driver.all_partitions("payments")
    assert driver.describe_consumer_group().group_state == "Stable"
    assert not driver.consumer_group().is_subscribed_to("orders")


def test_a_member_in_a_state_of_a_newer_broker_must_join_again() -> None:
    driver = ConsumerDriver()
    driver.enter_as_consumer("a", "orders")
    member = driver.consumer_group().members["a"]
    value = CurrentMemberValue(
        epoch=1, previous_epoch=1, state=9, assigned=member.current().assigned, pending_revocation=()
    )
    driver.consumer_group()._apply_current("a", value)
    assert state(driver, "a") == (MemberState.UNKNOWN, 1)
    assert driver.beat("a", 1, owned=member.assigned).error is ErrorCode.fenced_member_epoch
    assert driver.beat("a", 1, owned=()).error is ErrorCode.none
    assert state(driver, "a") == (MemberState.STABLE, 1)


def test_a_failed_write_leaves_a_member_where_it_was() -> None:
    driver, a, b = with_two_members()
    driver.fail_appends = True
    a.beat()
    driver.fail_appends = False
    assert state(driver, "a") == (MemberState.STABLE, 1)
    a.is_slow = False
    for consumer in (a, a, b):
        consumer.beat()
    assert (numbers(a.reads), numbers(b.reads)) == ([0, 1], [2])
