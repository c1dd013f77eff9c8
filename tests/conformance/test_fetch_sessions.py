"""Fetch sessions (KIP-227): the broker remembers what a client wants, and answers only with what changed."""

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from .actions import Topic, create_topic, fetch_topic, produce_ok, unique_name
from .batches import batch, values
from .wire import Wire

FULL, INITIAL_EPOCH, NO_SESSION_EPOCH = 0, 0, -1


@pytest.fixture
def topic(wire: Wire) -> Topic:
    """Three partitions with one record each."""
    made = create_topic(wire, partitions=3)
    for partition in range(3):
        produce_ok(wire, made, batch(b"first of %d" % partition), partition=partition)
    return made


def ask(
    wire: Wire,
    session_id: int,
    epoch: int,
    *topics: dict[str, Any],
    forget: list[dict[str, Any]] | None = None,
    version: int | None = None,
    **limits: int,
) -> Any:
    return wire.send(
        "fetch",
        version,
        session_id=session_id,
        session_epoch=epoch,
        topics=topics,
        forgotten_topics_data=forget or [],
        **{"max_wait": 0, "min_bytes": 0, "max_bytes": 10_000_000, **limits},
    )


def partitions(answer: Any) -> dict[int, list[bytes | None]]:
    assert answer.error_code is ErrorCode.none, answer
    return {part.partition_index: values(part.records) for found in answer.responses for part in found.partitions}


def start(wire: Wire, topic: Topic) -> int:
    answer = ask(wire, 0, INITIAL_EPOCH, fetch_topic(topic, {0: 0, 1: 0, 2: 0}))
    assert len(partitions(answer)) == 3
    assert answer.session_id > 0
    session_id: int = answer.session_id
    return session_id


def test_a_full_fetch_starts_a_session_and_brings_all(wire: Wire, topic: Topic) -> None:
    start(wire, topic)


def test_without_a_session_none_is_started(wire: Wire, topic: Topic) -> None:
    answer = ask(wire, 0, NO_SESSION_EPOCH, fetch_topic(topic, {0: 0}))
    assert (answer.session_id, len(partitions(answer))) == (0, 1)


def test_an_incremental_fetch_with_nothing_new_is_empty(wire: Wire, topic: Topic) -> None:
    session_id = start(wire, topic)
    moved_on = ask(wire, session_id, 1, fetch_topic(topic, {0: 1, 1: 1, 2: 1}))
    assert moved_on.session_id == session_id
    assert partitions(moved_on) == {}
    assert partitions(ask(wire, session_id, 2)) == {}


def test_only_partitions_with_news_are_in_an_incremental_answer(wire: Wire, topic: Topic) -> None:
    session_id = start(wire, topic)
    ask(wire, session_id, 1, fetch_topic(topic, {0: 1, 1: 1, 2: 1}))
    produce_ok(wire, topic, batch(b"news"), partition=1)
    assert partitions(ask(wire, session_id, 2)) == {1: [b"news"]}
    # The client did not move its offset, so the same record is still new to it.
    assert partitions(ask(wire, session_id, 3)) == {1: [b"news"]}
    assert partitions(ask(wire, session_id, 4, fetch_topic(topic, {1: 2}))) == {}


def test_a_partition_can_be_added_to_a_session(wire: Wire, topic: Topic) -> None:
    session_id = ask(wire, 0, INITIAL_EPOCH, fetch_topic(topic, {0: 0})).session_id
    ask(wire, session_id, 1, fetch_topic(topic, {0: 1}))
    assert partitions(ask(wire, session_id, 2, fetch_topic(topic, {2: 0}))) == {2: [b"first of 2"]}


def test_a_forgotten_partition_is_not_answered_any_more(wire: Wire, topic: Topic) -> None:
    session_id = start(wire, topic)
    ask(wire, session_id, 1, fetch_topic(topic, {0: 1, 1: 1, 2: 1}))
    produce_ok(wire, topic, batch(b"news 0"), partition=0)
    produce_ok(wire, topic, batch(b"news 1"), partition=1)
    forget = [{"topic": topic.name, "topic_id": topic.id, "partitions": [1]}]
    assert partitions(ask(wire, session_id, 2, forget=forget)) == {0: [b"news 0"]}
    assert partitions(ask(wire, session_id, 3)) == {0: [b"news 0"]}


def test_a_wrong_epoch_is_refused(wire: Wire, topic: Topic) -> None:
    session_id = start(wire, topic)
    answer = ask(wire, session_id, 5)
    assert answer.error_code is ErrorCode.invalid_fetch_session_epoch
    assert answer.responses == ()
    assert ask(wire, session_id, 1).error_code is ErrorCode.none, "the right one still goes"
    assert ask(wire, session_id, 1).error_code is ErrorCode.invalid_fetch_session_epoch, "but not twice"


def test_an_unknown_session_is_refused(wire: Wire, topic: Topic) -> None:
    answer = ask(wire, 2_000_000_001, 1, fetch_topic(topic, {0: 0}))
    assert answer.error_code is ErrorCode.fetch_session_id_not_found
    assert (answer.session_id, answer.responses) == (0, ())


def test_the_last_epoch_closes_the_session(wire: Wire, topic: Topic) -> None:
    session_id = start(wire, topic)
    closing = ask(wire, session_id, NO_SESSION_EPOCH, fetch_topic(topic, {0: 0}))
    assert (closing.session_id, partitions(closing)) == (0, {0: [b"first of 0"]})
    assert ask(wire, session_id, 1).error_code is ErrorCode.fetch_session_id_not_found


def test_epoch_0_with_a_session_id_starts_anew(wire: Wire, topic: Topic) -> None:
    session_id = start(wire, topic)
    again = ask(wire, session_id, INITIAL_EPOCH, fetch_topic(topic, {0: 0}))
    assert again.session_id not in (0, session_id)
    assert ask(wire, session_id, 1).error_code is ErrorCode.fetch_session_id_not_found


def test_an_error_is_told_in_an_incremental_fetch_each_time(wire: Wire, topic: Topic) -> None:
    session_id = ask(wire, 0, INITIAL_EPOCH, fetch_topic(topic, {0: 1})).session_id
    for epoch in (1, 2):
        answer = ask(wire, session_id, epoch, *([fetch_topic(topic, {1: 77})] if epoch == 1 else []))
        (part,) = answer.responses[0].partitions
        assert (part.partition_index, part.error_code) == (1, ErrorCode.offset_out_of_range)


def test_a_moved_log_start_is_news(wire: Wire, topic: Topic) -> None:
    session_id = ask(wire, 0, INITIAL_EPOCH, fetch_topic(topic, {0: 1})).session_id
    assert partitions(ask(wire, session_id, 1)) == {}
    removal = {"name": topic.name, "partitions": [{"partition_index": 0, "offset": 1}]}
    wire.send("delete_records", topics=[removal], timeout=10_000)
    (part,) = ask(wire, session_id, 2).responses[0].partitions
    assert (part.log_start_offset, part.high_watermark, values(part.records)) == (1, 1, [])
    assert partitions(ask(wire, session_id, 3)) == {}


def test_a_long_poll_in_a_session_waits_and_wakes(wire: Wire, topic: Topic) -> None:
    session_id = start(wire, topic)
    idle = ask(wire, session_id, 1, fetch_topic(topic, {0: 1, 1: 1, 2: 1}), max_wait=200, min_bytes=1)
    assert partitions(idle) == {}
    produce_ok(wire, topic, batch(b"news"), partition=2)
    assert partitions(ask(wire, session_id, 2, max_wait=5000, min_bytes=1)) == {2: [b"news"]}


def test_partitions_take_turns_when_the_limit_is_small(wire: Wire, topic: Topic) -> None:
    """A partition that was answered goes to the end of the session's row, so that none starves."""
    session_id = ask(wire, 0, INITIAL_EPOCH, fetch_topic(topic, {0: 0, 1: 0, 2: 0}), max_bytes=1).session_id
    seen: list[int] = []
    for epoch in range(1, 4):
        got = partitions(ask(wire, session_id, epoch, max_bytes=1))
        seen += [partition for partition, records in got.items() if records]
    assert sorted(seen) == [0, 1, 2]


def test_sessions_by_name_in_version_12(wire: Wire, topic: Topic) -> None:
    session_id = ask(wire, 0, INITIAL_EPOCH, fetch_topic(topic, {0: 0, 1: 0}), version=12).session_id
    assert partitions(ask(wire, session_id, 1, fetch_topic(topic, {0: 1, 1: 1}), version=12)) == {}
    produce_ok(wire, topic, batch(b"news"), partition=1)
    assert partitions(ask(wire, session_id, 2, version=12)) == {1: [b"news"]}


def test_a_session_keeps_an_unknown_topic_and_reports_it(wire: Wire, topic: Topic) -> None:
    absent = Topic(name=unique_name("absent"), id=topic.id)
    answer = ask(wire, 0, INITIAL_EPOCH, fetch_topic(absent, {0: 0}), version=12)
    assert answer.responses[0].partitions[0].error_code is ErrorCode.unknown_topic_or_partition
    again = ask(wire, answer.session_id, 1, version=12)
    assert again.responses[0].partitions[0].error_code is ErrorCode.unknown_topic_or_partition
