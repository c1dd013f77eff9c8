"""Consumer groups from their records: in the order in which a compacted log has them, and in stranger ones."""

import struct

from headwater.coordinator.group.consumer_member import ConsumerMember
from headwater.coordinator.group.records import (
    CONSUMER_GROUP,
    CONSUMER_MEMBER,
    CURRENT_MEMBER,
    REGEX,
    TARGET_EPOCH,
    TARGET_MEMBER,
    GroupKey,
    MemberKey,
    RecordType,
    RegexKey,
)
from headwater.coordinator.outcome import CoordinatorRecord

from .building import GROUP
from .consumer_building import Consumer, ConsumerDriver, state_of


def lived_through() -> ConsumerDriver:
    """A group in which members came, shared and left."""
    driver = ConsumerDriver()
    a, b, c = Consumer(driver, "a", "orders"), Consumer(driver, "b", regex="orders"), Consumer(driver, "c", "orders")
    for consumer in (a, b, c, a, b, c, a, b, c):
        consumer.beat()
    b.leave()
    for consumer in (a, c, a, c):
        consumer.beat()
    return driver


def test_a_compacted_log_gives_the_same_group() -> None:
    driver = lived_through()
    for keep_tombstones in (True, False):
        replayed = driver.replayed_after_compaction(keep_tombstones=keep_tombstones)._groups[GROUP]
        assert vars(replayed).keys() == vars(driver.consumer_group()).keys()
        assert state_of(replayed) == state_of(driver.consumer_group())  # type: ignore[arg-type]


def test_a_log_that_was_compacted_halfway_gives_the_same_group() -> None:
    driver = lived_through()
    for end in range(len(driver.log)):
        begin, rest = driver.log[:end], driver.log[end:]
        last = {entry.key: entry for entry in begin}  # type: ignore[union-attr]
        shard = driver.new_shard()
        driver.replay_into(shard, [entry for entry in begin if last[entry.key] is entry])  # type: ignore[union-attr]
        driver.replay_into(shard, rest)
        assert state_of(shard._groups[GROUP]) == state_of(driver.consumer_group())  # type: ignore[arg-type]


def test_tombstones_of_what_is_not_there_mean_nothing() -> None:
    driver = ConsumerDriver()
    kinds: list[tuple[RecordType, object]] = [
        (CURRENT_MEMBER, MemberKey(GROUP, "a")),
        (TARGET_MEMBER, MemberKey(GROUP, "a")),
        (TARGET_EPOCH, GroupKey(GROUP)),
        (CONSUMER_MEMBER, MemberKey(GROUP, "a")),
        (REGEX, RegexKey(GROUP, "a")),
        (CONSUMER_GROUP, GroupKey(GROUP)),
    ]
    tombstones = [kind.record(key, None) for kind, key in kinds]
    for tombstone in tombstones:
        driver.shard.replay(tombstone)
    assert driver.shard._groups == {}
    driver.enter_as_consumer("b", "orders")
    for tombstone in tombstones[:2] + tombstones[3:5]:
        driver.shard.replay(tombstone)
    assert set(driver.consumer_group().members) == {"b"}


def test_a_member_that_goes_does_not_take_along_what_is_anothers_by_now() -> None:
    driver = ConsumerDriver()
    partitions = driver.all_partitions("orders")

    def holds(name: str) -> CoordinatorRecord:
        return CURRENT_MEMBER.record(
            MemberKey(GROUP, name), ConsumerMember(member_id=name, assigned=partitions).current()
        )

    for record in (holds("a"), holds("b"), CURRENT_MEMBER.record(MemberKey(GROUP, "a"), None)):
        driver.shard.replay(record)
    assert {driver.consumer_group().holder(partition) for partition in partitions} == {"b"}


def test_records_of_consumer_groups_that_apache_no_longer_writes_are_passed_over() -> None:
    driver = lived_through()
    before = state_of(driver.consumer_group())
    partition_metadata = struct.pack(">hh", 4, len(GROUP)) + GROUP.encode()
    driver.shard.replay(CoordinatorRecord(partition_metadata, None))
    assert state_of(driver.consumer_group()) == before


def test_a_decision_changes_nothing_until_it_is_replayed() -> None:
    driver = lived_through()
    group, before = driver.consumer_group(), state_of(driver.consumer_group().copy())
    driver.fail_appends = True
    Consumer(driver, "d", "orders", "payments").beat()
    driver.beat("a", -1)
    driver.grow("orders", 9)
    assert driver.consumer_group() is group
    assert state_of(group) == before
