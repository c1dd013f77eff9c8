"""What is told of a consumer group, and who may commit and fetch its offsets."""

import pytest

from headwater.protocol.errors import ApiError
from headwater.protocol.kafka_types import ErrorCode

from .consumer_building import ClassicConsumer, Consumer, ConsumerDriver


def test_a_group_is_described_with_what_its_members_have_and_are_to_have() -> None:
    driver = ConsumerDriver()
    driver.enter_as_consumer("a", "orders", instance="i", rack="r1")
    driver.enter_as_consumer("b", "payments", "orders")
    group = driver.describe_consumer_group()
    assert (group.error_code, group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name) == (
        ErrorCode.none,
        "Reconciling",
        2,
        2,
        "uniform",
    )
    a, b = sorted(group.members, key=lambda member: member.member_id)
    assert (a.member_id, a.instance_id, a.rack_id, a.member_epoch, a.client_id, a.client_host, a.member_type) == (
        "a",
        "i",
        "r1",
        1,
        "c",
        "/127.0.0.1",
        1,
    )
    assert (b.subscribed_topic_names, b.subscribed_topic_regex) == (("orders", "payments"), "")
    (has,) = a.assignment.topic_partitions
    assert (has.topic_name, has.topic_id, has.partitions) == ("orders", driver.topics.ids["orders"], (0, 1, 2))
    assert [row.topic_name for row in b.target_assignment.topic_partitions] == ["payments"]


def test_members_of_both_protocols_are_told_apart() -> None:
    driver = ConsumerDriver()
    driver.enter_as_consumer("a", regex="orders")
    ClassicConsumer(driver, "orders").settle()
    types = {member.member_id: member.member_type for member in driver.describe_consumer_group().members}
    assert types == {"a": 1, "id1": 0}


def test_partitions_of_topics_that_are_gone_are_not_told() -> None:
    driver = ConsumerDriver()
    driver.enter_as_consumer("a", "orders")
    driver.delete("orders")
    assert driver.describe_consumer_group().members[0].assignment.topic_partitions == ()


def test_a_group_that_is_none_is_not_found() -> None:
    driver = ConsumerDriver()
    assert driver.describe_consumer_group().error_code is ErrorCode.group_id_not_found
    driver.stable_group()
    assert driver.describe_consumer_group().error_code is ErrorCode.group_id_not_found


OFFSET = {("orders", 0): 5}


def test_a_member_commits_in_its_epoch() -> None:
    driver = ConsumerDriver()
    driver.enter_as_consumer("a", "orders")
    assert driver.commit(OFFSET, member_id="a", generation=1) == [ErrorCode.none]
    assert driver.commit(OFFSET, member_id="a", generation=2) == [ErrorCode.stale_member_epoch]
    assert driver.commit(OFFSET, member_id="a", generation=0) == [ErrorCode.stale_member_epoch]
    assert driver.commit(OFFSET, member_id="b", generation=1) == [ErrorCode.unknown_member_id]
    assert driver.committed() == {("orders", 0): 5}


def test_an_old_commit_is_not_for_members_of_the_consumer_protocol() -> None:
    driver = ConsumerDriver()
    driver.enter_as_consumer("a", "orders")
    assert driver.commit(OFFSET, member_id="a", generation=1, version=8) == [ErrorCode.unsupported_version]


def test_a_commit_from_outside_needs_a_group_without_members() -> None:
    driver = ConsumerDriver()
    driver.enter_as_consumer("a", "orders")
    assert driver.commit(OFFSET) == [ErrorCode.unknown_member_id]
    driver.beat("a", -1)
    assert driver.commit(OFFSET) == [ErrorCode.none]


def test_a_classic_member_commits_in_its_generation_with_any_version() -> None:
    driver = ConsumerDriver()
    Consumer(driver, "a", "orders").beat()
    classic = ClassicConsumer(driver, "orders")
    classic.settle()
    for generation, expected in ((0, ErrorCode.none), (1, ErrorCode.illegal_generation)):
        generation += classic.generation
        assert driver.commit(OFFSET, member_id=classic.member_id, generation=generation, version=7) == [expected]


def test_offsets_of_a_transaction_may_come_without_a_member() -> None:
    driver = ConsumerDriver()
    driver.enter_as_consumer("a", "orders")
    assert driver.commit_in_transaction(1, OFFSET) == [ErrorCode.none]
    assert driver.commit_in_transaction(1, OFFSET, member_id="a", generation=1) == [ErrorCode.none]
    stale = driver.commit_in_transaction(1, OFFSET, member_id="a", generation=9)
    assert stale == [ErrorCode.illegal_generation], "TxnOffsetCommit knows no other word for it"


def test_who_says_to_be_a_member_fetches_offsets_in_its_epoch() -> None:
    driver = ConsumerDriver()
    driver.enter_as_consumer("a", "orders")
    group = driver.consumer_group()
    group.check_offset_fetch(member_id=None, member_epoch=-1)
    group.check_offset_fetch(member_id="a", member_epoch=1)
    with pytest.raises(ApiError) as stale:
        group.check_offset_fetch(member_id="a", member_epoch=2)
    with pytest.raises(ApiError) as unknown:
        group.check_offset_fetch(member_id="b", member_epoch=1)
    assert (stale.value.code, unknown.value.code) == (ErrorCode.stale_member_epoch, ErrorCode.unknown_member_id)


def test_offsets_of_topics_that_a_member_reads_are_kept() -> None:
    driver = ConsumerDriver(offsets_retention_minutes=1)
    a = Consumer(driver, "a", "orders")
    a.beat()
    driver.commit({("orders", 0): 5, ("payments", 0): 6}, member_id="a", generation=1)
    for _ in range(20):
        driver.pass_time(5_000)
        a.beat()
    driver.expire_offsets()
    assert driver.committed() == {("orders", 0): 5}
    assert [answer.error for answer in [driver.delete_offsets(("orders", 0))]] == [ErrorCode.none]
    assert driver.committed() == {("orders", 0): 5}
