"""Members of consumer groups: how they come, stay, are told apart from strangers, and go."""

from headwater.protocol.kafka_types import ErrorCode

from .building import GROUP, REBALANCE_MS
from .consumer_building import BEAT_MS, CONSUMER_SESSION_MS, Consumer, ConsumerDriver, assigned, numbers


def test_the_first_member_gets_everything_with_its_first_heartbeat() -> None:
    driver = ConsumerDriver()
    call = driver.enter_as_consumer("a", "orders")
    assert (call.response.member_id, call.response.member_epoch) == ("a", 1)
    assert call.response.heartbeat_interval.total_seconds() * 1000 == BEAT_MS
    assert assigned(call) == driver.all_partitions("orders")


def test_an_assignment_is_told_once_and_again_to_whoever_says_all_of_itself() -> None:
    driver = ConsumerDriver()
    driver.enter_as_consumer("a", "orders")
    assert assigned(driver.beat("a", 1)) is None
    everything = driver.all_partitions("orders")
    assert assigned(driver.beat("a", 1, topics=["orders"], owned=(), rebalance_ms=REBALANCE_MS)) == everything
    written = len(driver.log)
    driver.beat("a", 1, owned=everything)
    assert len(driver.log) == written, "a heartbeat without news writes nothing"


def test_a_heartbeat_to_a_group_that_is_not_there_is_refused() -> None:
    driver = ConsumerDriver()
    assert driver.beat("a", 5).error is ErrorCode.group_id_not_found
    assert driver.beat("a", -1).error is ErrorCode.group_id_not_found


def test_a_stranger_is_refused() -> None:
    driver = ConsumerDriver()
    driver.enter_as_consumer("a", "orders")
    assert driver.beat("b", 1).error is ErrorCode.unknown_member_id
    assert driver.beat("b", -1).error is ErrorCode.unknown_member_id


def test_a_member_in_another_epoch_is_fenced() -> None:
    driver = ConsumerDriver()
    driver.enter_as_consumer("a", "orders")
    assert driver.beat("a", 2).error is ErrorCode.fenced_member_epoch
    driver.enter_as_consumer("b", "orders")
    driver.beat("a", 1, owned=())
    assert driver.consumer_group().members["a"].epoch == 2
    assert driver.beat("a", 0, topics=["orders"], owned=(), rebalance_ms=1).error is ErrorCode.fenced_member_epoch


def test_the_epoch_before_is_good_for_a_member_that_missed_a_response() -> None:
    driver = ConsumerDriver()
    driver.enter_as_consumer("a", "orders")
    again = driver.enter_as_consumer("a", "orders")
    assert (again.error, again.response.member_epoch) == (ErrorCode.none, 1)
    driver.enter_as_consumer("b", "orders")
    driver.beat("a", 1, owned=())
    kept = driver.consumer_group().members["a"].assigned
    assert driver.beat("a", 1, owned=kept).response.member_epoch == 2
    assert driver.beat("a", 1).error is ErrorCode.fenced_member_epoch, "it must say what it owns"
    everything = driver.all_partitions("orders")
    assert driver.beat("a", 1, owned=everything).error is ErrorCode.fenced_member_epoch, "and own no more than it may"


def test_a_member_that_waits_may_miss_one_response_after_another() -> None:
    driver = ConsumerDriver()
    driver.enter_as_consumer("a", "orders")
    for _ in range(3):
        call = driver.enter_as_consumer("b", "orders")
        assert (call.error, call.response.member_epoch) == (ErrorCode.none, 2)


def test_a_group_takes_no_more_members_than_it_may() -> None:
    driver = ConsumerDriver(group_consumer_max_size=1)
    driver.enter_as_consumer("a", "orders")
    assert driver.enter_as_consumer("b", "orders").error is ErrorCode.group_max_size_reached
    assert driver.beat("a", 1).error is ErrorCode.none


def test_a_member_that_leaves_is_gone_and_its_partitions_go_to_the_others() -> None:
    driver = ConsumerDriver()
    a, b = Consumer(driver, "a", "orders"), Consumer(driver, "b", "orders")
    for consumer in (a, b, a, b, a, b):
        consumer.beat()
    assert a.leave().response.member_epoch == -1
    group = driver.describe_consumer_group()
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Assigning", 3, 2)
    b.beat()
    assert b.reads == driver.all_partitions("orders")
    b.leave()
    group = driver.describe_consumer_group()
    assert (group.group_state, group.group_epoch, group.members) == ("Empty", 4, ())


def test_a_member_that_is_not_heard_of_is_put_out_when_its_session_ends() -> None:
    driver = ConsumerDriver()
    driver.enter_as_consumer("a", "orders")
    driver.pass_time(CONSUMER_SESSION_MS - 1)
    driver.beat("a", 1)
    driver.pass_time(CONSUMER_SESSION_MS - 1)
    assert driver.describe_consumer_group().group_state == "Stable"
    driver.pass_time(1)
    assert driver.describe_consumer_group().group_state == "Empty"
    assert driver.beat("a", 1).error is ErrorCode.unknown_member_id


def test_a_fenced_heartbeat_does_not_keep_a_session() -> None:
    driver = ConsumerDriver()
    driver.enter_as_consumer("a", "orders")
    driver.pass_time(CONSUMER_SESSION_MS - 1)
    driver.beat("a", 7)
    driver.pass_time(1)
    assert driver.describe_consumer_group().group_state == "Empty"


def test_sessions_begin_anew_after_a_restart() -> None:
    driver = ConsumerDriver()
    driver.enter_as_consumer("a", "orders")
    driver.pass_time(CONSUMER_SESSION_MS - 1)
    driver.restart()
    driver.pass_time(CONSUMER_SESSION_MS - 1)
    assert driver.describe_consumer_group().group_state == "Stable"
    driver.pass_time(1)
    assert driver.describe_consumer_group().group_state == "Empty"


def test_a_member_that_could_not_be_put_out_is_put_out_later() -> None:
    driver = ConsumerDriver()
    driver.enter_as_consumer("a", "orders")
    driver.fail_appends = True
    driver.pass_time(CONSUMER_SESSION_MS)
    driver.fail_appends = False
    assert "a" in driver.consumer_group().members
    driver.pass_time(1_000)
    assert driver.consumer_group().is_empty


def test_a_join_that_could_not_be_written_did_not_happen() -> None:
    driver = ConsumerDriver()
    driver.fail_appends = True
    assert driver.enter_as_consumer("a", "orders").failed_append
    driver.fail_appends = False
    assert driver.describe_consumer_group().error_code is ErrorCode.group_id_not_found
    assert driver.enter_as_consumer("a", "orders").response.member_epoch == 1


def test_a_group_lives_on_empty_with_its_epoch() -> None:
    driver = ConsumerDriver()
    driver.enter_as_consumer("a", "orders")
    driver.beat("a", -1)
    assert driver.enter_as_consumer("b", "orders").response.member_epoch == 3


def test_only_an_empty_group_may_be_deleted() -> None:
    driver = ConsumerDriver()
    driver.enter_as_consumer("a", "orders")
    assert driver.delete_group() is ErrorCode.non_empty_group
    driver.beat("a", -1)
    assert driver.delete_group() is ErrorCode.none
    assert driver.describe_consumer_group().error_code is ErrorCode.group_id_not_found
    assert driver.replayed()._groups == {}


def test_a_group_without_members_is_told_by_name_and_kind() -> None:
    driver = ConsumerDriver()
    driver.enter_as_consumer("a", "orders")
    (listed,) = list(driver.shard.list_groups())
    assert (listed.group_id, listed.protocol_type, listed.group_state, listed.group_type) == (
        GROUP,
        "consumer",
        "Stable",
        "consumer",
    )


def test_the_assignor_that_most_members_prefer_is_taken() -> None:
    driver = ConsumerDriver()
    for name, assignor in (("a", None), ("b", "range"), ("c", "uniform"), ("d", "range")):
        driver.enter_as_consumer(name, "orders", assignor=assignor)
    assert driver.describe_consumer_group().assignor_name == "range"
    targets = driver.consumer_group().targets
    assert [numbers(targets[name]) for name in "abcd"] == [[0], [1], [2], []]
    driver.beat("d", -1)
    assert driver.describe_consumer_group().assignor_name == "uniform", "the default, when as many want the one"
