"""JoinGroup: who gets in, how a generation is formed, who leads it and by which protocol."""

import pytest

from headwater.coordinator.group.records import ClassicGroupValue
from headwater.protocol.kafka_types import ErrorCode

from .building import GROUP, REBALANCE_MS, SESSION_MS, Driver, subscription


def test_the_first_member_leads_and_is_told_who_else_is_there() -> None:
    driver = Driver()
    joined = driver.enter()
    driver.pass_time(0)
    answer = joined.response
    assert (answer.error_code, answer.generation_id, answer.leader) == (ErrorCode.none, 1, answer.member_id)
    assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
    assert [(member.member_id, member.metadata) for member in answer.members] == [
        (answer.member_id, subscription("orders"))
    ]
    assert driver.state() == "CompletingRebalance"


def test_a_member_without_id_is_given_one_from_its_client_id_and_told_to_join_with_it() -> None:
    driver = Driver()
    answer = driver.join(client="reader").response
    assert answer.error_code is ErrorCode.member_id_required
    assert answer.member_id.startswith("reader-")
    assert driver.state() == "Empty"


def test_before_v4_a_member_joins_with_its_first_request() -> None:
    driver = Driver()
    joined = driver.join(version=3)
    driver.pass_time(0)
    assert joined.response.generation_id == 1


def test_an_id_that_was_never_given_out_is_unknown() -> None:
    driver = Driver()
    assert driver.join("made-up").error is ErrorCode.unknown_member_id
    driver.stable_group()
    assert driver.join("made-up").error is ErrorCode.unknown_member_id


def test_an_id_that_is_not_used_within_its_session_timeout_is_forgotten() -> None:
    driver = Driver()
    given = driver.join().response.member_id
    driver.pass_time(SESSION_MS)
    assert driver.join(given).error is ErrorCode.unknown_member_id


def test_a_rebalance_waits_for_those_who_were_given_an_id() -> None:
    driver = Driver()
    [leader] = driver.stable_group()
    expected = driver.join()
    rejoined = driver.join(leader.member_id)
    assert rejoined.waits
    arrived = driver.join(expected.response.member_id)
    assert (rejoined.response.generation_id, arrived.response.generation_id) == (2, 2)


def test_an_id_whose_holder_stays_away_does_not_hold_up_the_rebalance_for_ever() -> None:
    driver = Driver()
    [leader] = driver.stable_group()
    driver.join()
    rejoined = driver.join(leader.member_id)
    driver.pass_time(SESSION_MS)
    assert rejoined.response.generation_id == 2


@pytest.mark.parametrize("session_ms", [5999, 1_800_001])
def test_session_timeouts_out_of_bounds_are_refused(session_ms: int) -> None:
    driver = Driver()
    assert driver.join(session_ms=session_ms).error is ErrorCode.invalid_session_timeout


def test_a_group_needs_a_name() -> None:
    assert Driver().join(group="").error is ErrorCode.invalid_group_id


def test_what_no_record_can_hold_is_refused() -> None:
    driver = Driver()
    assert driver.join(client="c" * 32_767).error is ErrorCode.invalid_request
    assert list(driver.shard.list_groups()) == []


def test_members_must_have_a_protocol_in_common() -> None:
    driver = Driver()
    driver.stable_group()
    assert driver.join(protocols={"sticky": b""}).error is ErrorCode.inconsistent_group_protocol
    assert driver.join(protocol_type="connect").error is ErrorCode.inconsistent_group_protocol


def test_a_group_is_not_made_by_a_member_that_fits_nowhere() -> None:
    driver = Driver()
    assert driver.join(protocol_type="").error is ErrorCode.inconsistent_group_protocol
    assert list(driver.shard.list_groups()) == []


def test_the_protocol_that_most_members_like_best_is_chosen_from_those_all_support() -> None:
    driver = Driver(group_initial_rebalance_delay_ms=3000)
    first = driver.enter(protocols={"only-mine": b"", "sticky": b"s1", "range": b"r1"})
    driver.enter(protocols={"range": b"r2", "sticky": b"s2"})
    driver.enter(protocols={"range": b"r3", "sticky": b"s3"})
    driver.pass_time(10_000)
    answer = first.response
    assert answer.protocol_name == "range"
    assert [member.metadata for member in answer.members] == [b"r1", b"r2", b"r3"]


def test_a_new_member_makes_everybody_join_again() -> None:
    driver = Driver()
    [leader] = driver.stable_group()
    newcomer = driver.enter()
    assert newcomer.waits
    assert driver.state() == "PreparingRebalance"
    assert driver.heartbeat(leader.member_id, 1) is ErrorCode.rebalance_in_progress
    rejoined = driver.join(leader.member_id)
    assert rejoined.response.generation_id == newcomer.response.generation_id == 2
    assert len(rejoined.response.members) == 2
    assert newcomer.response.members == ()
    assert newcomer.response.leader == leader.member_id


def test_members_that_do_not_join_again_in_time_are_put_out() -> None:
    driver = Driver()
    leader, follower = driver.stable_group(2)
    newcomer = driver.enter()
    driver.join(follower.member_id)
    for _ in range(6):  # the silent leader keeps its session, but does not join
        driver.pass_time(REBALANCE_MS // 6 - 1)
        driver.heartbeat(leader.member_id, leader.generation_id)
    driver.pass_time(6)
    answer = newcomer.response
    assert answer.leader == follower.member_id
    assert driver.heartbeat(leader.member_id, 3) is ErrorCode.unknown_member_id


def test_the_rebalance_lasts_as_long_as_the_most_patient_member_allows() -> None:
    driver = Driver()
    patient = driver.enter(rebalance_ms=40_000, session_ms=60_000)
    driver.pass_time(0)
    driver.sync_all([patient.response])
    newcomer = driver.enter(rebalance_ms=10_000, session_ms=60_000)
    driver.pass_time(39_999)
    assert newcomer.waits
    driver.pass_time(1)
    assert newcomer.response.generation_id == 2


def test_before_v1_the_session_timeout_bounds_the_rebalance() -> None:
    driver = Driver()
    first = driver.join(version=0, rebalance_ms=-1, session_ms=20_000)
    driver.pass_time(0)
    driver.sync_all([first.response])
    newcomer = driver.join(version=0, rebalance_ms=-1, session_ms=6_000)
    driver.pass_time(19_999)
    driver.heartbeat(first.response.member_id, 1)
    assert newcomer.waits
    driver.pass_time(1)
    assert newcomer.response.generation_id == 2


def test_a_new_group_waits_a_while_for_more_members() -> None:
    driver = Driver(group_initial_rebalance_delay_ms=3000)
    first = driver.enter()
    driver.pass_time(2999)
    assert first.waits
    driver.pass_time(1)
    assert first.response.generation_id == 1


def test_the_wait_is_extended_while_members_come_up_to_the_rebalance_timeout() -> None:
    driver = Driver(group_initial_rebalance_delay_ms=3000)
    calls = [driver.enter(rebalance_ms=10_000)]
    for _ in range(4):
        driver.pass_time(2000)
        calls.append(driver.enter(rebalance_ms=10_000))
    driver.pass_time(1999)
    assert all(call.waits for call in calls)
    driver.pass_time(1)
    assert {call.response.generation_id for call in calls} == {1}


def test_a_group_takes_no_more_members_than_allowed() -> None:
    driver = Driver(group_max_size=2)
    driver.stable_group(2)
    refused = driver.join()
    assert (refused.error, refused.response.member_id) == (ErrorCode.group_max_size_reached, "")
    assert driver.state() == "Stable"


def test_a_group_that_is_too_large_after_a_restart_loses_the_last_ones_to_join_again() -> None:
    driver = Driver()
    members = driver.stable_group(3)
    driver.configure(group_max_size=2)
    driver.restart()
    assert driver.state() == "PreparingRebalance"
    calls = [driver.join(member.member_id) for member in members]
    assert calls[2].error is ErrorCode.group_max_size_reached
    assert [call.error for call in calls[:2]] == [ErrorCode.none, ErrorCode.none]


def test_a_follower_that_joins_again_as_before_is_told_where_the_group_is() -> None:
    driver = Driver()
    _, follower = driver.stable_group(2)
    again = driver.join(follower.member_id).response
    assert (again.error_code, again.generation_id, again.members) == (ErrorCode.none, 2, ())
    assert driver.state() == "Stable"


def test_a_leader_that_joins_again_begins_a_rebalance() -> None:
    driver = Driver()
    leader, _ = driver.stable_group(2)
    assert driver.join(leader.member_id).waits
    assert driver.state() == "PreparingRebalance"


def test_a_follower_that_wants_something_else_begins_a_rebalance() -> None:
    driver = Driver()
    _, follower = driver.stable_group(2)
    assert driver.join(follower.member_id, protocols={"range": subscription("payments")}).waits
    assert driver.state() == "PreparingRebalance"


def test_a_member_whose_join_response_was_lost_gets_it_again() -> None:
    driver = Driver()
    joined = driver.enter()
    driver.pass_time(0)
    again = driver.join(joined.response.member_id).response
    assert again == joined.response


def test_a_member_that_wants_something_else_sends_those_who_wait_for_assignments_back() -> None:
    driver = Driver()
    leader, follower = driver.stable_group(2)
    rejoined = [driver.join(leader.member_id), driver.join(follower.member_id)]
    waiting = driver.sync(rejoined[1].response)
    driver.join(leader.member_id, protocols={"range": subscription("payments")})
    assert waiting.error is ErrorCode.rebalance_in_progress


def test_a_join_that_the_client_has_given_up_is_answered_when_it_tries_again() -> None:
    driver = Driver()
    _, follower = driver.stable_group(2)
    driver.enter()
    first_try = driver.join(follower.member_id)
    second_try = driver.join(follower.member_id)
    assert first_try.error is ErrorCode.rebalance_in_progress
    assert second_try.waits


def test_a_new_member_does_not_wait_longer_than_five_minutes_for_its_first_generation() -> None:
    driver = Driver()
    [leader] = driver.stable_group(rebalance_ms=900_000)
    newcomer = driver.enter(rebalance_ms=900_000)
    for _ in range(60):
        driver.pass_time(5_000)
        driver.heartbeat(leader.member_id, 1)
    assert newcomer.error is ErrorCode.unknown_member_id


def test_a_generation_is_written_only_when_it_has_its_assignment() -> None:
    driver = Driver()
    driver.enter()
    driver.pass_time(0)
    assert driver.log == []


def test_a_group_that_lost_its_members_goes_on_counting_generations() -> None:
    driver = Driver()
    [member] = driver.stable_group()
    driver.leave(member.member_id)
    key, value = driver.written()[-1]
    assert key.group == GROUP
    assert value == ClassicGroupValue(
        protocol_type="consumer",
        generation=2,
        protocol=None,
        leader=None,
        state_timestamp_ms=driver.now_ms,
        members=(),
    )
    driver.restart()
    assert driver.stable_group()[0].generation_id == 3
