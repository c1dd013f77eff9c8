"""What a shard tells of its groups, and what it does when it moves elsewhere."""

from headwater.coordinator.group.records import CLASSIC_GROUP, CONSUMER_GROUP, ConsumerGroupValue, GroupKey
from headwater.coordinator.outcome import Answer, CoordinatorRecord
from headwater.protocol.kafka_types import ErrorCode

from .building import GROUP, Call, Driver, LogRecord, subscription


def test_groups_are_listed_with_type_and_state() -> None:
    driver = Driver()
    driver.stable_group()
    driver.commit({("orders", 0): 1}, group="simple")
    driver.join(group="joining")
    told = {
        (group.group_id, group.protocol_type, group.group_state, group.group_type)
        for group in list(driver.shard.list_groups())
    }
    assert told == {
        (GROUP, "consumer", "Stable", "classic"),
        ("simple", "", "Empty", "classic"),
        ("joining", "", "Empty", "classic"),
    }


def test_a_stable_group_is_described_with_what_its_members_read_and_were_given() -> None:
    driver = Driver()
    [member] = driver.stable_group(client="reader")
    group = driver.shard.describe(GROUP, 6)
    assert (group.error_code, group.group_state) == (ErrorCode.none, "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    [described] = group.members
    assert (described.member_id, described.group_instance_id) == (member.member_id, None)
    assert (described.client_id, described.client_host) == ("reader", "/127.0.0.1")
    assert described.member_metadata == subscription("orders")
    assert described.member_assignment == member.member_id.encode()


def test_during_a_rebalance_the_members_are_told_with_what_they_had() -> None:
    driver = Driver()
    leader, follower = driver.stable_group(2)
    driver.join(leader.member_id)
    group = driver.shard.describe(GROUP, 6)
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("PreparingRebalance", "consumer", "")
    assert [(member.member_metadata, member.member_assignment) for member in group.members] == [
        (b"", leader.member_id.encode()),
        (b"", follower.member_id.encode()),
    ]


def test_a_group_that_is_not_there_is_dead_and_from_v6_on_an_error() -> None:
    driver = Driver()
    group = driver.shard.describe("absent", 5)
    assert (group.error_code, group.group_state, group.error_message) == (ErrorCode.none, "Dead", None)
    group = driver.shard.describe("absent", 6)
    assert (group.error_code, group.group_state) == (ErrorCode.group_id_not_found, "Dead")
    assert group.error_message == "Group absent not found."


def test_whoever_waits_is_sent_to_the_new_coordinator_when_the_shard_moves() -> None:
    driver = Driver()
    leader, follower = driver.stable_group(2)
    calls = [driver.join(leader.member_id), driver.join(follower.member_id)]
    syncing = driver.sync(calls[1].response)
    joining = driver.enter(group="other")
    answers = driver.shard.unload()
    assert _by_call(answers) == {syncing: ErrorCode.not_coordinator, joining: ErrorCode.not_coordinator}


def _by_call(answers: list[Answer]) -> dict[Call, ErrorCode]:
    return {waiter: response.error_code for waiter, response in answers}  # type: ignore[misc]


def test_a_log_without_anything_makes_a_shard_without_anything() -> None:
    driver = Driver()
    driver.restart()
    assert list(driver.shard.list_groups()) == []
    assert driver.shard.next_deadline_ms() is None


def _load(driver: Driver, *records: CoordinatorRecord) -> None:
    """The broker comes back and finds these records too."""
    driver.log += [LogRecord(record.key, record.value, -1) for record in records]
    driver.restart()


def _types(driver: Driver) -> dict[str, str]:
    return {group.group_id: group.group_type for group in list(driver.shard.list_groups())}


def test_a_group_whose_record_is_gone_lives_on_while_it_has_offsets() -> None:
    driver = Driver(offsets_retention_minutes=10)
    driver.stable_group()
    _load(driver, CLASSIC_GROUP.record(GroupKey("billing"), None))
    assert list(driver.shard.list_groups()) == []
    driver.commit({("orders", 0): 1})
    _load(driver, CLASSIC_GROUP.record(GroupKey("billing"), None))
    assert _types(driver) == {GROUP: "classic"}
    driver.pass_time(600_000)
    driver.expire_offsets()
    assert list(driver.shard.list_groups()) == []


def test_a_classic_member_may_join_a_consumer_group_that_has_no_members_left() -> None:
    driver = Driver()
    _load(driver, CONSUMER_GROUP.record(GroupKey(GROUP), ConsumerGroupValue(epoch=3)))
    driver.commit({("orders", 0): 1})
    assert _types(driver) == {GROUP: "consumer"}
    driver.stable_group()
    assert _types(driver) == {GROUP: "classic"}
    driver.restart()
    assert (_types(driver), driver.state()) == ({GROUP: "classic"}, "Stable")
    assert driver.committed() == {("orders", 0): 1}


def test_the_offsets_of_the_consumer_group_are_kept_when_the_broker_dies_in_between() -> None:
    driver = Driver()
    _load(driver, CONSUMER_GROUP.record(GroupKey(GROUP), ConsumerGroupValue(epoch=3)))
    driver.commit({("orders", 0): 1})
    assert driver.join().error is ErrorCode.member_id_required
    driver.restart()
    assert _types(driver) == {GROUP: "classic"}
    assert driver.committed() == {("orders", 0): 1}


def test_the_consumer_group_stays_when_its_end_could_not_be_written() -> None:
    driver = Driver()
    _load(driver, CONSUMER_GROUP.record(GroupKey(GROUP), ConsumerGroupValue(epoch=3)))
    driver.fail_appends = True
    assert driver.join(version=3).error is ErrorCode.coordinator_not_available
    assert driver.join().failed_append
    driver.fail_appends = False
    assert _types(driver) == {GROUP: "consumer"}


def test_a_member_of_nothing_does_not_end_a_consumer_group() -> None:
    driver = Driver()
    _load(driver, CONSUMER_GROUP.record(GroupKey(GROUP), ConsumerGroupValue(epoch=3)))
    assert driver.join("made-up").error is ErrorCode.unknown_member_id
    assert driver.join(protocol_type="").error is ErrorCode.inconsistent_group_protocol
    assert _types(driver) == {GROUP: "consumer"}
