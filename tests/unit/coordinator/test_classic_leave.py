"""LeaveGroup: members go at once, by id or by instance, one or many."""

from headwater.protocol.kafka_types import ErrorCode

from .building import Driver


def test_who_leaves_makes_the_others_rebalance() -> None:
    driver = Driver()
    leader, follower = driver.stable_group(2)
    response = driver.leave(leader.member_id)
    assert [member.error_code for member in response.members] == [ErrorCode.none]
    assert driver.heartbeat(follower.member_id, 2) is ErrorCode.rebalance_in_progress
    assert driver.join(follower.member_id).response.leader == follower.member_id


def test_the_last_one_to_leave_leaves_an_empty_group() -> None:
    driver = Driver()
    [member] = driver.stable_group()
    driver.leave(member.member_id)
    assert driver.state() == "Empty"
    driver.restart()
    assert driver.state() == "Empty"


def test_many_leave_with_one_request_and_each_hears_its_own_result() -> None:
    driver = Driver()
    first, second, third = driver.stable_group(3)
    response = driver.leave(first.member_id, "stranger", third.member_id)
    assert [member.error_code for member in response.members] == [
        ErrorCode.none,
        ErrorCode.unknown_member_id,
        ErrorCode.none,
    ]
    assert response.error_code is ErrorCode.none
    assert driver.join(second.member_id).response.generation_id == 4


def test_up_to_v2_the_one_result_is_the_response() -> None:
    driver = Driver()
    [member] = driver.stable_group()
    assert driver.leave("stranger", version=2).error_code is ErrorCode.unknown_member_id
    assert driver.leave(member.member_id, version=2).error_code is ErrorCode.none


def test_nobody_can_leave_a_group_that_is_not_there() -> None:
    driver = Driver()
    response = driver.leave("a", "b", group="elsewhere")
    assert response.error_code is ErrorCode.none
    assert [member.error_code for member in response.members] == [ErrorCode.unknown_member_id] * 2
    assert driver.leave("a", group="elsewhere", version=1).error_code is ErrorCode.unknown_member_id
    assert driver.leave("a", group="").error_code is ErrorCode.invalid_group_id


def test_a_join_of_a_member_that_leaves_is_answered() -> None:
    driver = Driver()
    _, follower = driver.stable_group(2)
    driver.enter()
    waiting = driver.join(follower.member_id)
    driver.leave(follower.member_id)
    assert waiting.error is ErrorCode.unknown_member_id


def test_a_sync_of_a_member_that_leaves_is_answered() -> None:
    driver = Driver()
    leader, follower = driver.stable_group(2)
    calls = [driver.join(leader.member_id), driver.join(follower.member_id)]
    waiting = driver.sync(calls[1].response)
    driver.leave(follower.member_id)
    assert waiting.error is ErrorCode.unknown_member_id


def test_the_rebalance_ends_when_the_one_that_was_missed_leaves() -> None:
    driver = Driver()
    leader, follower = driver.stable_group(2)
    waiting = driver.join(leader.member_id)
    driver.leave(follower.member_id)
    assert waiting.response.generation_id == 3


def test_an_id_that_was_given_out_can_be_given_back() -> None:
    driver = Driver()
    [leader] = driver.stable_group()
    expected = driver.join().response.member_id
    assert driver.leave(expected).members[0].error_code is ErrorCode.none
    assert driver.state() == "Stable"
    assert driver.join(expected).error is ErrorCode.unknown_member_id
    assert driver.heartbeat(leader.member_id, 1) is ErrorCode.none


def test_an_operator_puts_a_static_member_out_by_its_instance_id() -> None:
    driver = Driver()
    joined = driver.join(instance="i1")
    driver.pass_time(0)
    driver.sync_all([joined.response])
    assert driver.leave(("", "i2")).members[0].error_code is ErrorCode.unknown_member_id
    assert driver.leave(("", "i1")).members[0].error_code is ErrorCode.none
    assert driver.state() == "Empty"


def test_only_the_current_holder_of_an_instance_id_can_leave_with_it() -> None:
    driver = Driver()
    joined = driver.join(instance="i1")
    driver.pass_time(0)
    driver.sync_all([joined.response])
    assert driver.leave(("other", "i1")).members[0].error_code is ErrorCode.fenced_instance_id
    assert driver.leave(("other", "i2")).members[0].error_code is ErrorCode.unknown_member_id
    assert driver.state() == "Stable"
