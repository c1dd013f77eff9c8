"""OffsetCommit and OffsetFetch: who may commit, what is kept, what is told."""

from uuid import UUID

import pytest

from headwater.coordinator.group.records import OffsetKey, OffsetValue
from headwater.protocol.kafka_types import ErrorCode

from .building import GROUP, ORDERS_ID, SESSION_MS, Driver

_OFFSETS = {("orders", 0): 42}


def test_a_commit_without_generation_makes_a_group_that_only_keeps_offsets() -> None:
    driver = Driver()
    assert driver.commit(_OFFSETS) == [ErrorCode.none]
    assert driver.committed() == _OFFSETS
    [listed] = driver.shard.list_groups()
    assert (listed.group_id, listed.protocol_type, listed.group_state) == (GROUP, "", "Empty")


def test_everything_that_was_committed_is_kept() -> None:
    driver = Driver()
    driver.commit({("orders", 0): (42, "where I was: 왼쪽")}, leader_epoch=3)
    assert driver.written() == [
        (
            OffsetKey(GROUP, "orders", 0),
            OffsetValue(
                offset=42,
                leader_epoch=3,
                metadata="where I was: 왼쪽",
                commit_timestamp_ms=driver.now_ms,
                topic_id=ORDERS_ID,
            ),
        )
    ]
    driver.restart()
    [topic] = driver.fetch(("orders", 0)).topics
    [partition] = topic.partitions
    assert (partition.committed_offset, partition.committed_leader_epoch) == (42, 3)
    assert (partition.metadata, partition.error_code) == ("where I was: 왼쪽", ErrorCode.none)


def test_a_member_commits_with_its_generation() -> None:
    driver = Driver()
    [member] = driver.stable_group()
    assert driver.commit(_OFFSETS, member_id=member.member_id, generation=1) == [ErrorCode.none]
    assert driver.commit(_OFFSETS, member_id=member.member_id, generation=0) == [ErrorCode.illegal_generation]
    assert driver.commit(_OFFSETS, member_id="stranger", generation=1) == [ErrorCode.unknown_member_id]


def test_who_is_no_member_cannot_commit_for_a_group_that_has_some() -> None:
    driver = Driver()
    driver.stable_group()
    assert driver.commit(_OFFSETS) == [ErrorCode.unknown_member_id]
    assert driver.committed() == {}


def test_a_generation_of_a_group_that_is_not_there_is_refused_in_the_words_of_the_version() -> None:
    driver = Driver()
    assert driver.commit(_OFFSETS, member_id="m", generation=1, version=8) == [ErrorCode.illegal_generation]
    assert driver.commit(_OFFSETS, member_id="m", generation=1, version=9) == [ErrorCode.group_id_not_found]
    assert list(driver.shard.list_groups()) == []


def test_offsets_of_the_old_generation_may_be_committed_while_members_join() -> None:
    driver = Driver()
    leader, follower = driver.stable_group(2)
    driver.join(leader.member_id)
    assert driver.state() == "PreparingRebalance"
    assert driver.commit(_OFFSETS, member_id=follower.member_id, generation=2) == [ErrorCode.none]


def test_no_offsets_are_committed_while_assignments_are_awaited() -> None:
    driver = Driver()
    leader, follower = driver.stable_group(2)
    driver.join(leader.member_id)
    driver.join(follower.member_id)
    assert driver.state() == "CompletingRebalance"
    refused = driver.commit(_OFFSETS, member_id=follower.member_id, generation=3)
    assert refused == [ErrorCode.rebalance_in_progress]


def test_a_commit_keeps_the_session_as_a_heartbeat_does() -> None:
    driver = Driver()
    [member] = driver.stable_group()
    for _ in range(3):
        driver.pass_time(SESSION_MS - 1)
        driver.commit(_OFFSETS, member_id=member.member_id, generation=1)
    assert driver.heartbeat(member.member_id, 1) is ErrorCode.none


def test_partitions_that_do_not_exist_are_refused_and_the_others_committed() -> None:
    driver = Driver()
    codes = driver.commit({("orders", 2): 1, ("orders", 3): 1, ("orders", -1): 1, ("nowhere", 0): 1})
    unknown = ErrorCode.unknown_topic_or_partition
    assert codes == [ErrorCode.none, unknown, unknown, unknown]
    assert driver.committed() == {("orders", 2): 1}


def test_metadata_that_is_too_long_is_refused_and_the_others_committed() -> None:
    driver = Driver(offset_metadata_max_bytes=5)
    codes = driver.commit({("orders", 0): (1, "12345"), ("orders", 1): (1, "123456"), ("orders", 2): (1, None)})
    assert codes == [ErrorCode.none, ErrorCode.offset_metadata_too_large, ErrorCode.none]
    assert set(driver.committed()) == {("orders", 0), ("orders", 2)}


def test_a_group_may_have_no_name_but_not_one_that_cannot_be_kept() -> None:
    driver = Driver()
    assert driver.commit(_OFFSETS, group="") == [ErrorCode.none]
    assert driver.committed("") == _OFFSETS
    assert driver.commit(_OFFSETS, group="g" * 32_768) == [ErrorCode.invalid_group_id]


def test_a_commit_that_could_not_be_written_has_not_happened() -> None:
    driver = Driver()
    driver.commit(_OFFSETS)
    driver.fail_appends = True
    with pytest.raises(AssertionError, match="0 answers"):
        driver.commit({("orders", 0): 50})
    assert driver.committed() == _OFFSETS


def test_an_offset_may_be_moved_back_by_a_commit() -> None:
    driver = Driver()
    driver.commit(_OFFSETS)
    driver.commit({("orders", 0): 7})
    assert driver.committed() == {("orders", 0): 7}


def test_what_was_never_committed_is_minus_one() -> None:
    driver = Driver()
    for _ in range(2):  # without the group, and with it
        response = driver.fetch(("orders", 1), ("nowhere", 5))
        assert response.error_code is ErrorCode.none
        for topic in response.topics:
            [partition] = topic.partitions
            told = (partition.committed_offset, partition.committed_leader_epoch, partition.metadata)
            assert told == (-1, -1, "")
            assert partition.error_code is ErrorCode.none
        driver.commit(_OFFSETS)


def test_fetching_all_tells_every_offset_of_that_group_only() -> None:
    driver = Driver()
    driver.commit({("orders", 0): 1, ("orders", 2): 3, ("payments", 1): 5})
    driver.commit({("orders", 1): 9}, group="other")
    assert driver.committed() == {("orders", 0): 1, ("orders", 2): 3, ("payments", 1): 5}
    assert driver.fetch(group="absent").topics == ()


def test_the_offset_of_an_earlier_topic_of_the_same_name_is_none() -> None:
    driver = Driver()
    driver.commit(_OFFSETS)
    driver.topics.ids["orders"] = UUID(int=99)
    assert driver.committed() == {("orders", 0): -1}
    driver.commit({("orders", 0): 1})
    assert driver.committed() == {("orders", 0): 1}
