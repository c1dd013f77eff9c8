"""SyncGroup and Heartbeat: the leader's assignment is written, then everybody has it; silence ends a membership."""

import pytest

from headwater.protocol.kafka_types import ErrorCode

from .building import REBALANCE_MS, SESSION_MS, Driver

from kio.schema.join_group.v9.response import JoinGroupResponse  # isort: skip


def _new_generation(driver: Driver) -> tuple[JoinGroupResponse, JoinGroupResponse]:
    """A leader and a follower that have joined, and have not asked for their assignments."""
    leader, follower = driver.stable_group(2)
    calls = [driver.join(leader.member_id), driver.join(follower.member_id)]
    return calls[0].response, calls[1].response


def test_everybody_gets_what_the_leader_assigned_once_it_is_written() -> None:
    driver = Driver()
    leader, follower = _new_generation(driver)
    waiting = driver.sync(follower)
    assert waiting.waits
    given = driver.sync(leader, {leader.member_id: b"mine", follower.member_id: b"yours"})
    assert (given.response.assignment, waiting.response.assignment) == (b"mine", b"yours")
    assert (given.response.protocol_type, given.response.protocol_name) == ("consumer", "range")
    assert driver.state() == "Stable"
    assert {member.assignment for member in driver.written()[-1][1].members} == {b"mine", b"yours"}


def test_a_member_that_the_leader_forgot_has_an_empty_assignment() -> None:
    driver = Driver()
    leader, follower = _new_generation(driver)
    driver.sync(leader, {leader.member_id: b"all"})
    assert driver.sync(follower).response.assignment == b""


def test_a_member_that_comes_late_gets_its_assignment_from_the_stable_group() -> None:
    driver = Driver()
    leader, follower = _new_generation(driver)
    driver.sync(leader, {follower.member_id: b"yours"})
    assert driver.sync(follower).response.assignment == b"yours"


def test_the_assignment_is_nobodys_when_it_could_not_be_written() -> None:
    driver = Driver()
    leader, follower = _new_generation(driver)
    waiting = driver.sync(follower)
    driver.fail_appends = True
    failed = driver.sync(leader, {leader.member_id: b"mine", follower.member_id: b"yours"})
    assert failed.failed_append
    assert waiting.failed_append
    assert driver.state() == "PreparingRebalance"
    driver.fail_appends = False
    calls = [driver.join(leader.member_id), driver.join(follower.member_id)]
    assert [call.response.generation_id for call in calls] == [4, 4]


def test_a_sync_of_another_generation_is_refused() -> None:
    driver = Driver()
    leader, _ = _new_generation(driver)
    assert driver.sync(leader, generation=1).error is ErrorCode.illegal_generation
    assert driver.sync(leader, generation=9).error is ErrorCode.illegal_generation


def test_a_sync_with_another_protocol_than_agreed_is_refused() -> None:
    driver = Driver()
    leader, _ = _new_generation(driver)
    assert driver.sync(leader, protocol="sticky").error is ErrorCode.inconsistent_group_protocol
    assert driver.sync(leader, protocol_type="connect").error is ErrorCode.inconsistent_group_protocol


def test_a_sync_is_for_members() -> None:
    driver = Driver()
    leader, _ = _new_generation(driver)
    assert driver.sync(leader, group="elsewhere").error is ErrorCode.unknown_member_id
    assert driver.sync(leader, group="").error is ErrorCode.invalid_group_id
    driver.leave(leader.member_id)
    assert driver.sync(leader).error is ErrorCode.unknown_member_id


def test_a_sync_during_a_rebalance_sends_the_member_back_to_join() -> None:
    driver = Driver()
    leader, follower = driver.stable_group(2)
    driver.join(leader.member_id)
    assert driver.sync(follower).error is ErrorCode.rebalance_in_progress


def test_a_sync_that_the_client_has_given_up_is_answered_when_it_tries_again() -> None:
    driver = Driver()
    _, follower = _new_generation(driver)
    first_try = driver.sync(follower)
    second_try = driver.sync(follower)
    assert first_try.error is ErrorCode.rebalance_in_progress
    assert second_try.waits


def test_members_that_never_ask_for_their_assignment_are_put_out() -> None:
    driver = Driver()
    leader, follower = _new_generation(driver)
    driver.sync(leader, {leader.member_id: b"all"})
    for _ in range(7):  # both keep their sessions
        driver.pass_time(SESSION_MS - 1000)
        driver.heartbeat(leader.member_id, leader.generation_id)
        driver.heartbeat(follower.member_id, follower.generation_id)
    assert driver.heartbeat(follower.member_id, follower.generation_id) is ErrorCode.unknown_member_id
    assert driver.heartbeat(leader.member_id, leader.generation_id) is ErrorCode.rebalance_in_progress


def test_a_leader_that_never_assigns_is_put_out_and_the_next_one_leads() -> None:
    driver = Driver()
    leader, follower = _new_generation(driver)
    waiting = driver.sync(follower)
    for _ in range(7):
        driver.pass_time(REBALANCE_MS // 7)
        driver.heartbeat(leader.member_id, leader.generation_id)
    driver.pass_time(10)
    assert waiting.error is ErrorCode.rebalance_in_progress
    assert driver.join(follower.member_id).response.leader == follower.member_id


def test_a_session_does_not_end_while_the_member_waits_for_its_assignment() -> None:
    driver = Driver()
    leader, follower = _new_generation(driver)
    waiting = driver.sync(follower)
    for _ in range(3):
        driver.pass_time(SESSION_MS - 1)
        driver.heartbeat(leader.member_id, leader.generation_id)
    driver.sync(leader, {follower.member_id: b"yours"})
    assert waiting.response.assignment == b"yours"
    driver.pass_time(SESSION_MS - 1)
    assert driver.heartbeat(follower.member_id, follower.generation_id) is ErrorCode.none


def test_heartbeats_keep_a_member_in_the_group() -> None:
    driver = Driver()
    [member] = driver.stable_group()
    for _ in range(5):
        driver.pass_time(SESSION_MS - 1)
        assert driver.heartbeat(member.member_id, 1) is ErrorCode.none


def test_a_member_that_falls_silent_is_put_out() -> None:
    driver = Driver()
    leader, follower = driver.stable_group(2)
    driver.pass_time(SESSION_MS - 1)
    driver.heartbeat(leader.member_id, 2)
    driver.pass_time(1)
    assert driver.state() == "PreparingRebalance"
    assert driver.heartbeat(leader.member_id, 2) is ErrorCode.rebalance_in_progress
    assert driver.heartbeat(follower.member_id, 2) is ErrorCode.unknown_member_id


def test_when_all_fall_silent_in_the_same_moment_the_group_is_empty() -> None:
    driver = Driver()
    driver.stable_group(3)
    driver.pass_time(SESSION_MS)
    assert driver.state() == "Empty"


@pytest.mark.parametrize("generation", [-1, 1, 3])
def test_heartbeats_of_another_generation_are_refused(generation: int) -> None:
    driver = Driver()
    leader, _ = driver.stable_group(2)
    assert driver.heartbeat(leader.member_id, generation) is ErrorCode.illegal_generation


def test_heartbeats_are_for_members() -> None:
    driver = Driver()
    assert driver.heartbeat("m", 1) is ErrorCode.unknown_member_id
    assert driver.heartbeat("m", 1, group="") is ErrorCode.invalid_group_id
    driver.stable_group()
    assert driver.heartbeat("m", 1) is ErrorCode.unknown_member_id


def test_between_join_and_sync_heartbeats_are_taken_as_normal() -> None:
    driver = Driver()
    leader, _ = _new_generation(driver)
    assert driver.heartbeat(leader.member_id, leader.generation_id) is ErrorCode.none


def test_after_a_restart_the_group_is_as_it_was_and_sessions_begin_anew() -> None:
    driver = Driver()
    leader, follower = driver.stable_group(2)
    driver.pass_time(SESSION_MS - 1)
    driver.restart()
    assert driver.state() == "Stable"
    driver.pass_time(SESSION_MS - 1)
    assert driver.heartbeat(leader.member_id, 2) is ErrorCode.none
    assert driver.sync(follower).response.assignment == follower.member_id.encode()
    driver.pass_time(1)
    assert driver.heartbeat(follower.member_id, 2) is ErrorCode.unknown_member_id


def test_a_rebalance_that_a_restart_interrupts_begins_again_from_the_last_generation() -> None:
    driver = Driver()
    leader, follower = _new_generation(driver)
    driver.restart()
    assert driver.state() == "Stable"
    assert driver.heartbeat(leader.member_id, leader.generation_id) is ErrorCode.illegal_generation
    calls = [driver.join(leader.member_id), driver.join(follower.member_id)]
    assert [call.response.generation_id for call in calls] == [3, 3]
