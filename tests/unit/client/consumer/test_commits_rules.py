"""When offsets are committed without being asked to, and what a refused commit means."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.client.consumer.commits import AutoCommit, Verdict, verdict_on
from headwater.client.consumer.membership import GroupMetadata, OffsetAndMetadata
from headwater.client.consumer.offset_requests import commit_request
from headwater.protocol.kafka_types import ErrorCode
from headwater.types import TopicPartition


def test_the_first_commit_comes_one_interval_after_the_first_poll() -> None:
    auto = AutoCommit(interval_s=5, retry_s=0.1)
    assert not auto.due(100)
    assert not auto.due(104.9)
    assert auto.due(105)
    assert not auto.due(105)


def test_a_new_assignment_counts_from_its_own_time() -> None:
    auto = AutoCommit(interval_s=5, retry_s=0.1)
    auto.due(100)
    auto.restart(104)
    assert not auto.due(108)
    assert auto.due(109)


def test_one_that_failed_is_repeated_soon() -> None:
    auto = AutoCommit(interval_s=5, retry_s=0.1)
    auto.due(100)
    assert auto.due(105)
    auto.failed(105)
    assert auto.due(105.1)


@given(st.lists(st.floats(0, 2), min_size=1))
def test_commits_are_never_closer_than_the_interval(steps: list[float]) -> None:
    auto, now, last = AutoCommit(interval_s=3, retry_s=0.1), 0.0, None
    for step in steps:
        now += step
        if auto.due(now):
            assert last is None or now - last >= 3
            last = now


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (ErrorCode.none, Verdict.DONE),
        (ErrorCode.not_coordinator, Verdict.AGAIN),
        (ErrorCode.coordinator_load_in_progress, Verdict.AGAIN),
        (ErrorCode.unknown_topic_or_partition, Verdict.AGAIN),
        (ErrorCode.unstable_offset_commit, Verdict.AGAIN),
        (ErrorCode.rebalance_in_progress, Verdict.REBALANCING),
        (ErrorCode.illegal_generation, Verdict.OUT_OF_GROUP),
        (ErrorCode.stale_member_epoch, Verdict.OUT_OF_GROUP),
        (ErrorCode.fenced_instance_id, Verdict.FENCED),
        (ErrorCode.offset_metadata_too_large, Verdict.REFUSED),
        (ErrorCode.topic_authorization_failed, Verdict.REFUSED),
    ],
)
def test_what_a_code_means_for_a_commit(code: ErrorCode, verdict: Verdict) -> None:
    assert verdict_on(code) is verdict


def test_a_commit_names_the_member_and_says_all_of_the_offsets() -> None:
    member = GroupMetadata("billing", 7, "ann", "first")
    request = commit_request(member, {TopicPartition("a", 1): OffsetAndMetadata(5, 3, "note")})
    assert (request.group_id, request.generation_id_or_member_epoch, request.member_id) == ("billing", 7, "ann")
    assert request.group_instance_id == "first"
    (partition,) = request.topics[0].partitions
    assert (partition.committed_offset, partition.committed_leader_epoch) == (5, 3)
    assert partition.committed_metadata == "note"


def test_an_offset_before_the_first_cannot_be_committed() -> None:
    with pytest.raises(ValueError, match="offset -1 of partition a-0"):
        commit_request(GroupMetadata("billing"), {TopicPartition("a", 0): OffsetAndMetadata(-1)})
