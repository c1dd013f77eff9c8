"""TxnOffsetCommit: offsets that count when their transaction commits."""

from headwater.protocol.kafka_types import ErrorCode

from .building import Driver

_PRODUCER, _OTHER = 7, 8
_KEY = ("orders", 0)


def test_offsets_of_a_transaction_count_when_it_commits() -> None:
    driver = Driver()
    driver.commit({_KEY: 1})
    assert driver.commit_in_transaction(_PRODUCER, {_KEY: 5}) == [ErrorCode.none]
    assert driver.committed() == {_KEY: 1}
    driver.end_transaction(_PRODUCER, committed=True)
    assert driver.committed() == {_KEY: 5}


def test_offsets_of_a_transaction_that_aborts_never_count() -> None:
    driver = Driver()
    driver.commit_in_transaction(_PRODUCER, {_KEY: 5})
    driver.end_transaction(_PRODUCER, committed=False)
    assert driver.committed() == {}
    driver.end_transaction(_PRODUCER, committed=True)
    assert driver.committed() == {}


def test_the_records_are_part_of_the_producers_transaction() -> None:
    driver = Driver()
    driver.commit_in_transaction(_PRODUCER, {_KEY: 5})
    assert [entry.producer_id for entry in driver.log] == [_PRODUCER]


def test_what_a_transaction_is_about_to_change_is_unstable() -> None:
    driver = Driver()
    driver.commit({_KEY: 1, ("orders", 1): 2})
    driver.commit_in_transaction(_PRODUCER, {_KEY: 5})
    for asked in ((_KEY, ("orders", 1)), ()):
        fetched = driver.fetch(*asked, require_stable=True)
        told = {
            partition.partition_index: (partition.error_code, partition.committed_offset)
            for topic in fetched.topics
            for partition in topic.partitions
        }
        assert told == {0: (ErrorCode.unstable_offset_commit, -1), 1: (ErrorCode.none, 2)}
    driver.end_transaction(_PRODUCER, committed=False)
    [topic] = driver.fetch(_KEY, require_stable=True).topics
    assert topic.partitions[0].committed_offset == 1


def test_transactions_of_different_producers_end_on_their_own() -> None:
    driver = Driver()
    driver.commit_in_transaction(_PRODUCER, {_KEY: 5})
    driver.commit_in_transaction(_OTHER, {_KEY: 6})
    driver.end_transaction(_PRODUCER, committed=True)
    assert driver.committed() == {_KEY: 5}
    [topic] = driver.fetch(_KEY, require_stable=True).topics
    assert topic.partitions[0].error_code is ErrorCode.unstable_offset_commit
    driver.end_transaction(_OTHER, committed=True)
    assert driver.committed() == {_KEY: 6}


def test_a_commit_outside_that_came_later_holds_against_the_end_of_the_transaction() -> None:
    driver = Driver()
    driver.commit_in_transaction(_PRODUCER, {_KEY: 5})
    driver.commit({_KEY: 9})
    driver.end_transaction(_PRODUCER, committed=True)
    assert driver.committed() == {_KEY: 9}
    driver.restart()
    assert driver.committed() == {_KEY: 9}


def test_an_open_transaction_outlives_a_restart() -> None:
    driver = Driver()
    driver.commit({_KEY: 1})
    driver.commit_in_transaction(_PRODUCER, {_KEY: 5})
    driver.restart()
    assert driver.committed() == {_KEY: 1}
    driver.end_transaction(_PRODUCER, committed=True)
    assert driver.committed() == {_KEY: 5}


def test_members_commit_with_their_generation_even_while_assignments_are_awaited() -> None:
    driver = Driver()
    leader, follower = driver.stable_group(2)
    driver.join(leader.member_id)
    driver.join(follower.member_id)
    assert driver.state() == "CompletingRebalance"
    offsets = {_KEY: 5}
    options = {"member_id": follower.member_id}
    assert driver.commit_in_transaction(_PRODUCER, offsets, generation=3, **options) == [ErrorCode.none]  # type: ignore[arg-type]
    refused = driver.commit_in_transaction(_PRODUCER, offsets, generation=2, **options)  # type: ignore[arg-type]
    assert refused == [ErrorCode.illegal_generation]
    refused = driver.commit_in_transaction(_PRODUCER, offsets, generation=3, member_id="stranger")
    assert refused == [ErrorCode.unknown_member_id]


def test_producers_that_tell_nothing_of_a_member_are_let_through() -> None:
    driver = Driver()
    driver.stable_group()
    assert driver.commit_in_transaction(_PRODUCER, {_KEY: 5}, version=2) == [ErrorCode.none]


def test_a_generation_of_a_group_that_is_not_there_is_refused() -> None:
    driver = Driver()
    refused = driver.commit_in_transaction(_PRODUCER, {_KEY: 5}, member_id="m", generation=1)
    assert refused == [ErrorCode.illegal_generation]
    assert driver.commit_in_transaction(_PRODUCER, {_KEY: 5}, group="") == [ErrorCode.invalid_group_id]
    assert driver.commit_in_transaction(_PRODUCER, {("orders", 9): 5}) == [ErrorCode.unknown_topic_or_partition]


def test_deleting_a_group_forgets_what_its_transactions_would_commit() -> None:
    driver = Driver()
    driver.commit_in_transaction(_PRODUCER, {_KEY: 5})
    assert driver.delete_group() is ErrorCode.none
    driver.end_transaction(_PRODUCER, committed=True)
    assert driver.committed() == {}
    assert list(driver.shard.list_groups()) == []
