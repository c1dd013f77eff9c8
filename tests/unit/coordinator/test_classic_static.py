"""Static members (KIP-345): back within the session timeout they keep their place, and who they were is fenced."""

from headwater.protocol.kafka_types import ErrorCode

from .building import REBALANCE_MS, SESSION_MS, Driver, subscription

from kio.schema.join_group.v9.response import JoinGroupResponse  # isort: skip


def _static_pair(driver: Driver) -> tuple[JoinGroupResponse, JoinGroupResponse]:
    """A stable group of the instances i1, which leads, and i2."""
    driver.configure(group_initial_rebalance_delay_ms=1000)
    calls = [driver.join(instance="i1"), driver.join(instance="i2")]
    driver.pass_time(2000)
    members = [call.response for call in calls]
    driver.sync_all(members)
    return members[0], members[1]


def test_a_static_member_needs_no_second_try_and_is_named_after_its_instance() -> None:
    driver = Driver()
    joined = driver.join(instance="i1")
    driver.pass_time(0)
    assert joined.response.member_id.startswith("i1-")
    assert joined.response.members[0].group_instance_id == "i1"


def test_a_follower_that_comes_back_keeps_its_assignment_and_nobody_rebalances() -> None:
    driver = Driver()
    leader, follower = _static_pair(driver)
    back = driver.join(instance="i2").response
    assert (back.error_code, back.generation_id, back.leader) == (ErrorCode.none, 1, leader.member_id)
    assert back.member_id != follower.member_id
    assert driver.sync(back, instance="i2").response.assignment == follower.member_id.encode()
    assert driver.state() == "Stable"
    assert driver.heartbeat(leader.member_id, 1, instance="i1") is ErrorCode.none


def test_the_old_incarnation_is_fenced() -> None:
    driver = Driver()
    _, follower = _static_pair(driver)
    driver.join(instance="i2")
    fenced = ErrorCode.fenced_instance_id
    assert driver.heartbeat(follower.member_id, 1, instance="i2") is fenced
    assert driver.join(follower.member_id, instance="i2").error is fenced
    assert driver.sync(follower, instance="i2").error is fenced
    offsets = {("orders", 0): 1}
    assert driver.commit(offsets, member_id=follower.member_id, generation=1, instance="i2") == [fenced]
    assert driver.commit_in_transaction(5, offsets, member_id=follower.member_id, generation=1, instance="i2") == [
        fenced
    ]


def test_the_new_member_id_outlives_a_restart() -> None:
    driver = Driver()
    _, follower = _static_pair(driver)
    back = driver.join(instance="i2").response
    driver.restart()
    assert driver.heartbeat(back.member_id, 1, instance="i2") is ErrorCode.none
    assert driver.heartbeat(follower.member_id, 1, instance="i2") is ErrorCode.fenced_instance_id


def test_from_v9_a_leader_that_comes_back_leads_on_but_need_not_assign() -> None:
    driver = Driver()
    _static_pair(driver)
    back = driver.join(instance="i1").response
    assert (back.leader, back.skip_assignment) == (back.member_id, True)
    assert {member.group_instance_id for member in back.members} == {"i1", "i2"}
    assert back.member_id in {member.member_id for member in back.members}


def test_before_v9_a_leader_that_comes_back_is_made_to_follow() -> None:
    driver = Driver()
    leader, _ = _static_pair(driver)
    back = driver.join(instance="i1", version=8).response
    assert (back.leader, back.skip_assignment, back.members) == (leader.member_id, False, ())
    assert driver.sync(back, instance="i1").response.assignment == leader.member_id.encode()


def test_who_comes_back_with_another_best_protocol_causes_a_rebalance() -> None:
    driver = Driver()
    first = driver.join(instance="i1", protocols={"range": b"r", "sticky": b"s"})
    driver.pass_time(0)
    driver.sync_all([first.response])
    back = driver.join(instance="i1", protocols={"sticky": b"s", "range": b"r"})
    assert back.response.generation_id == 2
    assert back.response.protocol_name == "sticky"


def test_who_comes_back_during_a_rebalance_takes_part_in_it() -> None:
    driver = Driver()
    leader, follower = _static_pair(driver)
    waiting = driver.join(leader.member_id, instance="i1")
    old_try = driver.join(follower.member_id, instance="i2", protocols={"range": subscription("payments")})
    assert old_try.response.generation_id == 2
    back = driver.join(instance="i2")
    assert back.waits
    assert waiting.response.generation_id == 2
    again = driver.join(leader.member_id, instance="i1")
    assert back.response.generation_id == again.response.generation_id == 3


def test_a_join_of_the_old_incarnation_that_waits_is_fenced() -> None:
    driver = Driver()
    _, follower = _static_pair(driver)
    driver.enter()
    waiting = driver.join(follower.member_id, instance="i2")
    driver.join(instance="i2")
    assert waiting.error is ErrorCode.fenced_instance_id


def test_a_sync_of_the_old_incarnation_that_waits_is_fenced() -> None:
    driver = Driver()
    leader, follower = _static_pair(driver)
    calls = [driver.join(leader.member_id, instance="i1"), driver.join(follower.member_id, instance="i2")]
    waiting = driver.sync(calls[1].response, instance="i2")
    driver.join(instance="i2")
    assert waiting.error is ErrorCode.fenced_instance_id


def test_nothing_has_changed_when_the_return_could_not_be_written() -> None:
    driver = Driver()
    _, follower = _static_pair(driver)
    driver.fail_appends = True
    assert driver.join(instance="i2").failed_append
    driver.fail_appends = False
    assert driver.heartbeat(follower.member_id, 1, instance="i2") is ErrorCode.none
    driver.pass_time(SESSION_MS - 1)
    assert driver.heartbeat(follower.member_id, 1, instance="i2") is ErrorCode.none


def test_a_static_member_that_stays_away_longer_than_its_session_is_put_out() -> None:
    driver = Driver()
    leader, follower = _static_pair(driver)
    driver.pass_time(SESSION_MS - 1)
    driver.heartbeat(leader.member_id, 1, instance="i1")
    driver.pass_time(1)
    assert driver.heartbeat(follower.member_id, 1, instance="i2") is ErrorCode.unknown_member_id


def test_a_static_member_that_misses_a_rebalance_keeps_its_place_until_its_session_ends() -> None:
    driver = Driver()
    driver.configure(group_initial_rebalance_delay_ms=1000)
    options = {"session_ms": 100_000, "rebalance_ms": REBALANCE_MS}
    calls = [driver.join(instance="i1", **options), driver.join(instance="i2", **options)]  # type: ignore[arg-type]
    driver.pass_time(2000)
    members = [call.response for call in calls]
    driver.sync_all(members)
    rejoined = driver.join(members[0].member_id, instance="i1", **options)  # type: ignore[arg-type]
    driver.pass_time(REBALANCE_MS)
    assert rejoined.response.generation_id == 2
    assert {member.group_instance_id for member in rejoined.response.members} == {"i1", "i2"}


def test_when_only_absent_static_members_are_left_the_rebalance_waits_for_them() -> None:
    driver = Driver()
    driver.configure(group_initial_rebalance_delay_ms=1000)
    static = driver.join(instance="i1", session_ms=200_000)
    driver.pass_time(2000)
    driver.sync_all([static.response])
    given = driver.join().response.member_id
    driver.join(given)
    driver.leave(given)
    driver.pass_time(REBALANCE_MS)
    assert driver.state() == "PreparingRebalance"
    back = driver.join(static.response.member_id, instance="i1", session_ms=200_000)
    assert back.response.generation_id == 2


def test_a_static_member_finds_room_in_a_full_group() -> None:
    driver = Driver(group_max_size=2)
    _static_pair(driver)
    assert driver.join(instance="i2").error is ErrorCode.none
    assert driver.join(instance="i3").error is ErrorCode.group_max_size_reached


def test_an_instance_id_that_nobody_holds_is_unknown() -> None:
    driver = Driver()
    leader, _ = _static_pair(driver)
    assert driver.heartbeat(leader.member_id, 1, instance="i9") is ErrorCode.unknown_member_id
    assert driver.join(leader.member_id, instance="i9").error is ErrorCode.unknown_member_id
