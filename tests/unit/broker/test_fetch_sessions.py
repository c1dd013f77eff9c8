"""Fetch sessions: the rules that their module states, and that no client ends up with a wrong picture."""

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.broker.services import fetch_sessions
from headwater.broker.services.fetch_sessions import FetchContext, FetchSessions, Session
from headwater.protocol.errors import ApiError, ErrorCode
from headwater.protocol.fetch_lane import FetchPartition, FetchRequest, PartitionResult

Results = list[tuple[str | bytes, PartitionResult]]
LAST_EPOCH = 2**31 - 1
LONG_UNUSED_S = 120.0


def wish(partition: int, offset: int = 0) -> FetchPartition:
    return FetchPartition(
        partition=partition,
        current_leader_epoch=-1,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        max_bytes=1000,
    )


def request(
    session_id: int, epoch: int, wishes: Iterable[FetchPartition] = (), forgotten: Iterable[int] = (), topic: str = "t"
) -> FetchRequest:
    wishes, forgotten = list(wishes), list(forgotten)
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1000,
        isolation_level=0,
        session_id=session_id,
        session_epoch=epoch,
        topics=[(topic, wishes)] if wishes else [],
        forgotten=[(topic, forgotten)] if forgotten else [],
    )


def result(
    partition: int, high_watermark: int = 0, *, size: int = 0, error: int = 0, start: int = 0
) -> PartitionResult:
    return PartitionResult(
        partition=partition,
        error_code=error,
        high_watermark=-1 if error else high_watermark,
        log_start_offset=-1 if error else start,
        records=b"x" * size or None,
        records_size=size,
    )


def new_session(sessions: FetchSessions, *partitions: int, now_s: float = 0.0) -> int:
    """The id of a new session whose client was told of all its partitions, at high watermark 0."""
    context = sessions.context(request(0, 0, map(wish, partitions)), False, now_s)
    sent = context.select([("t", result(partition)) for partition in partitions])
    assert [entry.partition for _, entry in sent] == list(partitions)
    return context.session_id


def wanted(context: FetchContext) -> list[int]:
    return [each.partition for _, each in context.wanted]


def told(context: FetchContext, *results: PartitionResult) -> list[int]:
    """The partitions that the client hears of."""
    return [entry.partition for _, entry in context.select([("t", each) for each in results])]


def error_of(sessions: FetchSessions, asked: FetchRequest, by_topic_id: bool = False) -> ErrorCode:
    with pytest.raises(ApiError) as raised:
        sessions.context(asked, by_topic_id, 0.0)
    return raised.value.code


@pytest.fixture
def sessions() -> FetchSessions:
    return FetchSessions(slots=10)


def test_epoch_minus_1_is_a_fetch_without_a_session(sessions: FetchSessions) -> None:
    context = sessions.context(request(0, -1, [wish(0), wish(1)]), False, 0.0)
    assert (context.session_id, wanted(context)) == (0, [0, 1])
    assert told(context, result(0), result(1)) == [0, 1], "everything is told, news or not"
    assert len(sessions) == 0


def test_epoch_0_makes_a_session_and_tells_everything_once(sessions: FetchSessions) -> None:
    context = sessions.context(request(0, 0, [wish(0), wish(1)]), False, 0.0)
    assert context.session_id > 0
    assert told(context, result(0), result(1)) == [0, 1]
    again = sessions.context(request(context.session_id, 1), False, 0.0)
    assert again.session_id == context.session_id
    assert wanted(again) == [0, 1], "remembered"
    assert told(again, result(0), result(1)) == []


def test_sessions_have_ids_of_their_own(sessions: FetchSessions) -> None:
    assert len({new_session(sessions, 0) for _ in range(10)}) == 10


def test_each_epoch_follows_the_last(sessions: FetchSessions) -> None:
    session_id = new_session(sessions, 0)
    for epoch in (1, 2, 3):
        sessions.context(request(session_id, epoch), False, 0.0)
    for wrong in (3, 2, 1, 5, LAST_EPOCH):
        assert error_of(sessions, request(session_id, wrong)) is ErrorCode.invalid_fetch_session_epoch
    assert sessions.context(request(session_id, 4), False, 0.0).session_id == session_id, "it is none the worse"


def test_the_epoch_wraps_to_1(sessions: FetchSessions) -> None:
    session_id = new_session(sessions, 0)
    (session,) = held(sessions)
    session.epoch = LAST_EPOCH
    sessions.context(request(session_id, LAST_EPOCH), False, 0.0)
    assert error_of(sessions, request(session_id, 2)) is ErrorCode.invalid_fetch_session_epoch
    assert sessions.context(request(session_id, 1), False, 0.0).session_id == session_id


def held(sessions: FetchSessions) -> list[Session]:
    return list(sessions._sessions.values())


def test_an_unknown_session_is_said_to_be(sessions: FetchSessions) -> None:
    session_id = new_session(sessions, 0)
    assert error_of(sessions, request(session_id + 1, 1)) is ErrorCode.fetch_session_id_not_found


@pytest.mark.parametrize("epoch", [-1, 0])
def test_a_client_ends_its_session_with_a_full_fetch(sessions: FetchSessions, epoch: int) -> None:
    session_id = new_session(sessions, 0)
    context = sessions.context(request(session_id, epoch, [wish(7)]), False, 0.0)
    assert wanted(context) == [7]
    assert error_of(sessions, request(session_id, 1)) is ErrorCode.fetch_session_id_not_found
    assert len(sessions) == (epoch == 0)


def test_names_and_ids_of_topics_do_not_mix_in_a_session(sessions: FetchSessions) -> None:
    session_id = new_session(sessions, 0)
    assert error_of(sessions, request(session_id, 1), by_topic_id=True) is ErrorCode.fetch_session_topic_id_error
    assert sessions.context(request(session_id, 1), False, 0.0).session_id == session_id


def test_partitions_are_added_changed_and_forgotten(sessions: FetchSessions) -> None:
    session_id = new_session(sessions, 0, 1, 2)
    context = sessions.context(request(session_id, 1, [wish(1, offset=50), wish(3)], [0]), False, 0.0)
    assert [(each.partition, each.fetch_offset) for _, each in context.wanted] == [(1, 50), (2, 0), (3, 0)]
    assert told(context, result(1), result(2), result(3)) == [3], "the new one is news"


def test_forgetting_what_it_does_not_have_is_fine(sessions: FetchSessions) -> None:
    session_id = new_session(sessions, 0)
    assert wanted(sessions.context(request(session_id, 1, forgotten=[8]), False, 0.0)) == [0]


def test_a_session_without_partitions_is_gone(sessions: FetchSessions) -> None:
    session_id = new_session(sessions, 0)
    context = sessions.context(request(session_id, 1, forgotten=[0]), False, 0.0)
    assert (context.session_id, wanted(context)) == (0, [])
    assert len(sessions) == 0


@pytest.mark.parametrize(
    ("change", "is_news"),
    [
        (result(0), False),
        (result(0, size=10), True),
        (result(0, high_watermark=1), True),
        (result(0, start=1), True),
        (result(0, error=3), True),
        (result(0)._replace(diverging_epoch=(1, 5)), True),
        (result(0)._replace(last_stable_offset=5), False),
    ],
)
def test_only_news_is_told(sessions: FetchSessions, change: PartitionResult, is_news: bool) -> None:
    session_id = new_session(sessions, 0)
    context = sessions.context(request(session_id, 1), False, 0.0)
    assert told(context, change) == [0] * is_news


def test_a_changed_high_watermark_is_told_once(sessions: FetchSessions) -> None:
    session_id = new_session(sessions, 0)
    changed = result(0, high_watermark=9)
    assert told(sessions.context(request(session_id, 1), False, 0.0), changed) == [0]
    assert told(sessions.context(request(session_id, 2), False, 0.0), changed) == []


def test_an_error_is_repeated_until_it_is_over_and_its_end_is_news(sessions: FetchSessions) -> None:
    session_id = new_session(sessions, 0)
    for epoch in (1, 2):
        assert told(sessions.context(request(session_id, epoch), False, 0.0), result(0, error=3)) == [0]
    assert told(sessions.context(request(session_id, 3), False, 0.0), result(0)) == [0]
    assert told(sessions.context(request(session_id, 4), False, 0.0), result(0)) == []


def test_a_partition_that_gave_records_goes_to_the_back_of_the_row(sessions: FetchSessions) -> None:
    session_id = new_session(sessions, 0, 1, 2)
    context = sessions.context(request(session_id, 1), False, 0.0)
    told(context, result(0, size=5), result(1), result(2))
    context = sessions.context(request(session_id, 2), False, 0.0)
    assert wanted(context) == [1, 2, 0]
    told(context, result(1, size=5), result(2, size=5), result(0))
    assert wanted(sessions.context(request(session_id, 3), False, 0.0)) == [0, 1, 2]


def test_a_partition_forgotten_while_a_fetch_waits_is_not_told(sessions: FetchSessions) -> None:
    session_id = new_session(sessions, 0, 1)
    waiting = sessions.context(request(session_id, 1), False, 0.0)
    sessions.context(request(session_id, 2, forgotten=[0]), False, 0.0)
    assert told(waiting, result(0, size=5), result(1, size=5)) == [1]


def test_a_full_cache_answers_without_a_session() -> None:
    sessions = FetchSessions(slots=2)
    for _ in range(2):
        new_session(sessions, 0)
    context = sessions.context(request(0, 0, [wish(0)]), False, LONG_UNUSED_S - 1)
    assert context.session_id == 0
    assert told(context, result(0)) == [0]
    assert len(sessions) == 2


def test_a_cache_without_slots_never_makes_one() -> None:
    assert FetchSessions(slots=0).context(request(0, 0, [wish(0)]), False, 0.0).session_id == 0


def test_a_session_unused_for_long_makes_room_for_a_new_one() -> None:
    sessions = FetchSessions(slots=2)
    first, second = new_session(sessions, 0, now_s=0), new_session(sessions, 0, now_s=1)
    sessions.context(request(first, 1), False, 50.0)
    third = new_session(sessions, 0, now_s=1 + LONG_UNUSED_S)
    assert third
    assert len(sessions) == 2
    assert error_of(sessions, request(second, 1)) is ErrorCode.fetch_session_id_not_found
    assert sessions.context(request(first, 2), False, 0.0).session_id == first, "it was used since"


# What happens to a partition between two fetches: bytes that it gives, records appended, records deleted, an error.
CHANGES = st.tuples(st.integers(0, 3), st.sampled_from(["append", "delete", "fail", "recover"]), st.integers(1, 5))
STEPS = st.lists(
    st.tuples(
        st.lists(CHANGES, max_size=4),
        st.sets(st.integers(0, 3), max_size=2),
        st.sets(st.integers(0, 3), max_size=2),
        st.booleans(),
    ),
    max_size=15,
)


class Truth:
    """Four partitions as they are."""

    def __init__(self) -> None:
        self.high_watermark = [0] * 4
        self.start = [0] * 4
        self.failing = [False] * 4

    def change(self, partition: int, kind: str, count: int) -> None:
        if kind == "append":
            self.high_watermark[partition] += count
        elif kind == "delete":
            self.start[partition] = min(self.start[partition] + count, self.high_watermark[partition])
        else:
            self.failing[partition] = kind == "fail"

    def result(self, partition: int, offset: int) -> PartitionResult:
        if self.failing[partition]:
            return result(partition, error=6)
        size = max(self.high_watermark[partition] - offset, 0)
        return result(partition, self.high_watermark[partition], start=self.start[partition], size=size)

    def picture(self, partition: int) -> tuple[int, int] | str:
        if self.failing[partition]:
            return "error"
        return self.high_watermark[partition], self.start[partition]


@settings(max_examples=200, deadline=None)
@given(first=st.sets(st.integers(0, 3), min_size=1), steps=STEPS)
def test_a_client_knows_the_truth_about_its_partitions_after_every_answer(
    first: set[int], steps: list[tuple[list[tuple[int, str, int]], set[int], set[int], bool]]
) -> None:
    """Whatever happens, and however few partitions an answer holds: nothing that the client must know is left out."""
    sessions, truth = FetchSessions(slots=1), Truth()
    offsets = dict.fromkeys(first, 0)
    known: dict[int, tuple[int, int] | str] = {}
    session_id, epoch = 0, 0
    asked = request(0, 0, [wish(partition) for partition in sorted(first)])
    for changes, added, forgotten, retried in [([], set(), set(), False), *steps]:
        for change in changes:
            truth.change(*change)
        if epoch:
            forgotten &= offsets.keys()
            if forgotten == offsets.keys() and not added - forgotten:
                forgotten = set()
            for partition in forgotten:
                del offsets[partition], known[partition]
            # Of the partitions it keeps, the client names those whose offset moved since, and the new ones.
            moved = {partition for partition in offsets if offsets[partition]}
            offsets |= {partition: 0 for partition in added - forgotten if partition not in offsets}
            named = [wish(partition, offsets[partition]) for partition in sorted(moved | added - forgotten)]
            asked = request(session_id, epoch, named, sorted(forgotten))
        context = sessions.context(asked, False, 0.0)
        if retried and epoch:
            assert error_of(sessions, asked) is ErrorCode.invalid_fetch_session_epoch
        assert sorted(wanted(context)) == sorted(offsets)
        results: Results = [("t", truth.result(each.partition, each.fetch_offset)) for _, each in context.wanted]
        answer = context.select(results)
        for _, entry in answer:
            known[entry.partition] = "error" if entry.error_code else (entry.high_watermark, entry.log_start_offset)
            offsets[entry.partition] += entry.records_size
        assert known == {partition: truth.picture(partition) for partition in offsets}
        if epoch:
            for topic, entry in answer:
                assert (topic, entry) in results
        session_id, epoch = context.session_id, epoch + 1


@settings(max_examples=100, deadline=None)
@given(
    slots=st.integers(0, 4),
    uses=st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 3), st.floats(0, 100)), max_size=40),
)
def test_the_cache_never_holds_more_than_its_slots(slots: int, uses: list[tuple[int, int, float]]) -> None:
    sessions, made, now_s = FetchSessions(slots), [0], 0.0
    for which, epoch, pause_s in uses:
        now_s += pause_s
        try:
            context = sessions.context(request(made[which % len(made)], epoch, [wish(0)]), False, now_s)
        except ApiError:  # a session that is gone, or an epoch that is not the next
            continue
        made.append(context.session_id)
        assert len(sessions) <= slots


def test_a_partition_that_is_named_twice_is_fetched_once_as_it_was_named_last() -> None:
    sessions = FetchSessions(10)
    for epoch in (-1, 0):
        context = sessions.context(request(0, epoch, [wish(0, 1), wish(1, 5), wish(0, 9)]), False, 0.0)
        assert [(wanted.partition, wanted.fetch_offset) for _, wanted in context.wanted] == [(0, 9), (1, 5)]


def test_all_sessions_together_are_bounded_in_their_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "_MOST_PARTITIONS", 5)
    sessions = FetchSessions(10)
    first = new_session(sessions, 0, 1, 2)
    assert sessions.context(request(0, 0, map(wish, range(3))), False, 0.0).session_id == 0
    with pytest.raises(ApiError):
        sessions.context(request(first, 1, map(wish, range(6))), False, 0.0)
    assert len(sessions) == 0
    assert new_session(sessions, *range(5))
