"""OffsetDelete, DeleteGroups, and how offsets and groups go by age or with their topics."""

from headwater.coordinator.group.records import OFFSET, OffsetKey, OffsetValue
from headwater.protocol.kafka_types import ErrorCode

from .building import GROUP, SESSION_MS, Driver, LogRecord, subscription

_MINUTE_MS = 60_000
_KEY = ("orders", 0)


def _codes(response: object) -> list[ErrorCode]:
    return [partition.error_code for topic in response.topics for partition in topic.partitions]  # type: ignore[attr-defined]


def test_offsets_are_deleted_one_by_one() -> None:
    driver = Driver()
    driver.commit({_KEY: 1, ("orders", 1): 2})
    response = driver.delete_offsets(_KEY, ("orders", 2), ("orders", 9)).response
    assert response.error_code is ErrorCode.none
    assert _codes(response) == [ErrorCode.none, ErrorCode.none, ErrorCode.unknown_topic_or_partition]
    assert driver.committed() == {("orders", 1): 2}
    driver.restart()
    assert driver.committed() == {("orders", 1): 2}


def test_offsets_of_topics_that_members_read_stay() -> None:
    driver = Driver()
    driver.commit({_KEY: 1, ("payments", 0): 2})
    driver.stable_group(protocols={"range": subscription("orders")})
    response = driver.delete_offsets(_KEY, ("payments", 0)).response
    assert _codes(response) == [ErrorCode.group_subscribed_to_topic, ErrorCode.none]
    assert driver.committed() == {_KEY: 1}


def test_members_whose_subscription_cannot_be_read_may_read_anything() -> None:
    driver = Driver()
    driver.commit({_KEY: 1})
    driver.stable_group(protocols={"range": b"gibberish"})
    assert _codes(driver.delete_offsets(_KEY).response) == [ErrorCode.group_subscribed_to_topic]


def test_offsets_of_a_group_that_is_not_of_consumers_stay_while_it_has_members() -> None:
    driver = Driver()
    driver.commit({_KEY: 1})
    driver.stable_group(protocol_type="connect")
    assert driver.delete_offsets(_KEY).error is ErrorCode.non_empty_group


def test_offsets_of_a_group_that_is_not_there_cannot_be_deleted() -> None:
    driver = Driver()
    assert driver.delete_offsets(_KEY).error is ErrorCode.group_id_not_found
    assert driver.delete_offsets(_KEY, group="").error is ErrorCode.invalid_group_id


def test_a_group_is_deleted_with_its_offsets() -> None:
    driver = Driver()
    [member] = driver.stable_group()
    driver.commit({_KEY: 1}, member_id=member.member_id, generation=1)
    assert driver.delete_group() is ErrorCode.non_empty_group
    driver.leave(member.member_id)
    assert driver.delete_group() is ErrorCode.none
    assert driver.delete_group() is ErrorCode.group_id_not_found
    driver.restart()
    assert list(driver.shard.list_groups()) == []
    assert driver.committed() == {}


def test_the_offsets_of_deleted_topics_go() -> None:
    driver = Driver()
    driver.commit({_KEY: 1, ("payments", 0): 2})
    driver.commit({("payments", 1): 2}, group="other")
    driver.commit_in_transaction(5, {("payments", 1): 3})
    driver.carry_out_all(driver.shard.topics_deleted(["payments"], driver.now_ms))
    driver.end_transaction(5, committed=True)
    assert driver.committed() == {_KEY: 1}
    assert driver.committed("other") == {}


def test_offsets_without_a_group_age_from_their_commit() -> None:
    driver = Driver(offsets_retention_minutes=10)
    driver.commit({_KEY: 1})
    driver.pass_time(4 * _MINUTE_MS)
    driver.commit({("orders", 1): 2})
    driver.pass_time(6 * _MINUTE_MS - 1)
    driver.expire_offsets()
    assert set(driver.committed()) == {_KEY, ("orders", 1)}
    driver.pass_time(1)
    driver.expire_offsets()
    assert set(driver.committed()) == {("orders", 1)}
    driver.pass_time(4 * _MINUTE_MS)
    driver.expire_offsets()
    assert list(driver.shard.list_groups()) == []


def test_offsets_of_a_group_age_from_when_its_last_member_went() -> None:
    driver = Driver(offsets_retention_minutes=10)
    [member] = driver.stable_group(session_ms=1_800_000)
    driver.commit({_KEY: 1}, member_id=member.member_id, generation=1)
    driver.pass_time(20 * _MINUTE_MS)
    driver.expire_offsets()
    driver.leave(member.member_id)
    driver.restart()
    driver.pass_time(10 * _MINUTE_MS - 1)
    driver.expire_offsets()
    assert driver.committed() == {_KEY: 1}
    driver.pass_time(1)
    driver.expire_offsets()
    assert list(driver.shard.list_groups()) == []


def test_offsets_of_topics_that_a_group_no_longer_reads_age_although_it_has_members() -> None:
    driver = Driver(offsets_retention_minutes=10)
    driver.commit({_KEY: 1, ("payments", 0): 2})
    driver.stable_group(protocols={"range": subscription("orders")}, session_ms=1_800_000)
    driver.pass_time(10 * _MINUTE_MS)
    driver.expire_offsets()
    assert driver.committed() == {_KEY: 1}
    assert driver.state() == "Stable"


def test_no_offset_ages_while_the_group_rebalances_or_is_not_of_consumers() -> None:
    driver = Driver(offsets_retention_minutes=10)
    driver.commit({_KEY: 1})
    driver.commit({_KEY: 1}, group="workers")
    leader, _ = driver.stable_group(2, session_ms=1_800_000, protocols={"range": subscription("payments")})
    driver.stable_group(group="workers", protocol_type="connect", session_ms=1_800_000)
    driver.pass_time(10 * _MINUTE_MS - 1)
    driver.join(leader.member_id, session_ms=1_800_000, protocols={"range": subscription("payments")})
    driver.pass_time(1)
    assert driver.state() == "PreparingRebalance"
    driver.expire_offsets()
    assert driver.committed() == driver.committed("workers") == {_KEY: 1}


def test_no_offset_goes_while_a_transaction_is_about_to_change_it() -> None:
    driver = Driver(offsets_retention_minutes=10)
    driver.commit({_KEY: 1})
    driver.commit_in_transaction(5, {_KEY: 2})
    driver.pass_time(10 * _MINUTE_MS)
    driver.expire_offsets()
    assert driver.committed() == {_KEY: 1}
    driver.end_transaction(5, committed=False)
    driver.expire_offsets()
    assert list(driver.shard.list_groups()) == []


def test_a_group_stays_while_a_transaction_is_about_to_commit_its_first_offset() -> None:
    driver = Driver()
    driver.commit_in_transaction(5, {_KEY: 2})
    driver.expire_offsets()
    driver.end_transaction(5, committed=True)
    assert driver.committed() == {_KEY: 2}


def test_old_clients_may_ask_for_a_retention_of_their_own() -> None:
    driver = Driver(offsets_retention_minutes=10)
    driver.commit({_KEY: 1}, version=4, retention_ms=90 * _MINUTE_MS)
    driver.restart()
    driver.pass_time(90 * _MINUTE_MS - 1)
    driver.expire_offsets()
    assert driver.committed() == {_KEY: 1}
    driver.pass_time(1)
    driver.expire_offsets()
    assert driver.committed() == {}


def test_offsets_that_older_brokers_wrote_expire_when_they_say() -> None:
    driver = Driver(offsets_retention_minutes=10)
    value = OffsetValue(
        offset=3, metadata="", commit_timestamp_ms=driver.now_ms, expire_timestamp_ms=driver.now_ms + _MINUTE_MS
    )
    record = OFFSET.record(OffsetKey(GROUP, *_KEY), value, 1)
    driver.log.append(LogRecord(record.key, record.value, -1))
    driver.restart()
    assert driver.committed() == {_KEY: 3}
    driver.pass_time(_MINUTE_MS)
    driver.expire_offsets()
    assert driver.committed() == {}


def test_a_group_without_members_and_offsets_goes() -> None:
    driver = Driver()
    [member] = driver.stable_group()
    driver.expire_offsets()
    assert driver.state() == "Stable"
    driver.leave(member.member_id)
    driver.expire_offsets()
    assert list(driver.shard.list_groups()) == []
    driver.restart()
    assert list(driver.shard.list_groups()) == []


def test_who_was_given_an_id_by_a_group_that_went_asks_for_another() -> None:
    driver = Driver()
    given = driver.join().response.member_id
    driver.expire_offsets()
    assert driver.join(given).error is ErrorCode.unknown_member_id
    driver.pass_time(SESSION_MS)
    assert driver.stable_group()[0].generation_id == 1


def test_many_offsets_go_in_parts_and_a_commit_in_between_is_kept() -> None:
    driver = Driver(offsets_retention_minutes=10)
    names = [f"group-{number}" for number in range(3000)]
    for name in names:
        driver.commit({_KEY: 1}, group=name)
    driver.pass_time(10 * _MINUTE_MS)
    parts = []
    for outcome in driver.shard.expire_offsets(driver.now_ms):
        parts.append(len(outcome.records))
        driver.carry_out(outcome)
        if len(parts) == 1:
            driver.commit({_KEY: 7}, group=names[-1])
    assert len(parts) > 3
    assert max(parts) < 1500
    assert [group.group_id for group in list(driver.shard.list_groups())] == [names[-1]]
    assert driver.committed(group=names[-1]) == {_KEY: 7}
