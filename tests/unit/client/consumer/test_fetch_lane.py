"""The client's Fetch lane against kio, version by version: same bytes, same meaning; bytes of an enemy are refused."""

import io
import typing
import uuid
from collections.abc import Callable
from datetime import timedelta
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_writer

from headwater.client.errors import NotKafkaError
from headwater.protocol import messages
from headwater.protocol.apis import FETCH
from headwater.protocol.kafka_types import ErrorCode

Form = Callable[[str], ModuleType]

TOPIC_ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
VERSIONS = range(4, 18)

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
names = st.text(min_size=1, max_size=12)
ids = st.uuids().filter(lambda topic_id: topic_id.int != 0)
wanted_partitions = st.lists(st.tuples(int32, int32, int64, int32, int64, int32), max_size=3)
aborted_lists = st.none() | st.lists(st.tuples(int64, int64), max_size=3)
answered_partitions = st.lists(
    st.tuples(int32, st.sampled_from(ErrorCode), int64, int64, int64, aborted_lists, int32, st.binary(max_size=20)),
    max_size=3,
)
pairs = st.none() | st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1))


def nested(entity: type[Any], field: str) -> type[Any]:
    found = messages.entity_in(typing.get_type_hints(entity)[field])
    assert found is not None
    return found


def known(entity: type[Any], **values: Any) -> Any:
    """An entity of any version: the fields that this version has."""
    return entity(**{name: value for name, value in values.items() if name in entity.__dataclass_fields__})


def encoded(entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def kio_request(version: int, topics: Any, forgotten: Any, limits: Any, session: Any, rack: str) -> bytes:
    request_type = messages.request_type(FETCH.key, version)
    topic_type = nested(request_type, "topics")
    partition_type = nested(topic_type, "partitions")
    fields = (
        "partition", "current_leader_epoch", "fetch_offset", "last_fetched_epoch", "log_start_offset",
        "partition_max_bytes",
    )  # fmt: skip
    values: dict[str, Any] = {
        "replica_id": -1, "max_wait": timedelta(milliseconds=limits[0]), "min_bytes": limits[1],
        "max_bytes": limits[2], "isolation_level": limits[3], "session_id": session[0], "session_epoch": session[1],
        "rack_id": rack,
        "topics": tuple(
            known(topic_type, topic=name, topic_id=topic_id, partitions=tuple(
                known(partition_type, **dict(zip(fields, partition, strict=True))) for partition in partitions
            ))
            for name, topic_id, partitions in topics
        ),
    }  # fmt: skip
    if version >= 7:
        forgotten_type = nested(request_type, "forgotten_topics_data")
        values["forgotten_topics_data"] = tuple(
            known(forgotten_type, topic=name, topic_id=topic_id, partitions=tuple(indexes))
            for name, topic_id, indexes in forgotten
        )
    return encoded(known(request_type, **values))


@given(
    version=st.sampled_from(VERSIONS),
    topics=st.lists(st.tuples(names, ids, wanted_partitions), max_size=3),
    forgotten=st.lists(st.tuples(names, ids, st.lists(int32, max_size=3)), max_size=2),
    limits=st.tuples(st.integers(0, 2**31 - 1), int32, int32, st.integers(0, 1)),
    session=st.tuples(int32, int32),
    rack=st.text(max_size=8),
)
def test_a_request_is_what_kio_writes(
    form: Form, version: int, topics: Any, forgotten: Any, limits: Any, session: Any, rack: str
) -> None:
    lane = form("fetch_lane")
    by_id = version >= 13
    body = lane.encode_fetch(
        version,
        [(i.bytes if by_id else name, [lane.FetchPartition(*row) for row in rows]) for name, i, rows in topics],
        max_wait_ms=limits[0],
        min_bytes=limits[1],
        max_bytes=limits[2],
        isolation_level=limits[3],
        session_id=session[0],
        session_epoch=session[1],
        forgotten=[(topic_id.bytes if by_id else name, indexes) for name, topic_id, indexes in forgotten],
        rack_id=rack,
    )
    assert b"".join(body) == kio_request(version, topics, forgotten, limits, session, rack)


def kio_answer(
    version: int, top: tuple[int, Any, int], topics: Any, diverging: Any, leader: Any, endpoints: Any
) -> bytes:
    response_type = messages.response_type(FETCH.key, version)
    topic_type = nested(response_type, "responses")
    partition_type = nested(topic_type, "partitions")
    aborted_type = nested(partition_type, "aborted_transactions")

    def partition(row: Any) -> Any:
        index, error, high_watermark, stable, start, aborted, preferred, records = row
        extra: dict[str, Any] = {}
        if version >= 12 and diverging is not None:
            epoch_type = nested(partition_type, "diverging_epoch")
            extra["diverging_epoch"] = epoch_type(epoch=diverging[0], end_offset=diverging[1])
        if version >= 12 and leader is not None:
            leader_type = nested(partition_type, "current_leader")
            extra["current_leader"] = leader_type(leader_id=leader[0], leader_epoch=leader[1])
        if aborted is not None:
            aborted = tuple(aborted_type(producer_id=producer, first_offset=first) for producer, first in aborted)
        return known(
            partition_type, partition_index=index, error_code=error, high_watermark=high_watermark,
            last_stable_offset=stable, log_start_offset=start, aborted_transactions=aborted,
            preferred_read_replica=preferred, records=records, **extra,
        )  # fmt: skip

    extra: dict[str, Any] = {}
    if version >= 16:
        endpoint_type = nested(response_type, "node_endpoints")
        fields = ("node_id", "host", "port", "rack")
        extra["node_endpoints"] = tuple(endpoint_type(**dict(zip(fields, row, strict=True))) for row in endpoints)
    return encoded(
        known(
            response_type, throttle_time=timedelta(milliseconds=top[0]), error_code=top[1], session_id=top[2],
            responses=tuple(
                known(topic_type, topic=name, topic_id=topic_id, partitions=tuple(partition(row) for row in rows))
                for name, topic_id, rows in topics
            ),
            **extra,
        )
    )  # fmt: skip


@given(
    version=st.sampled_from(VERSIONS),
    top=st.tuples(st.integers(0, 2**31 - 1), st.sampled_from(ErrorCode), int32),
    topics=st.lists(st.tuples(names, ids, answered_partitions), max_size=3),
    diverging=pairs,
    leader=pairs,
    endpoints=st.lists(st.tuples(int32, names, int32, st.none() | names), max_size=2),
)
def test_an_answer_that_kio_wrote_is_read_with_the_same_meaning(
    form: Form, version: int, top: Any, topics: Any, diverging: Any, leader: Any, endpoints: Any
) -> None:
    lane = form("fetch_lane")
    answer = lane.decode_fetch(version, memoryview(kio_answer(version, top, topics, diverging, leader, endpoints)))
    assert (answer.throttle_ms, answer.error_code, answer.session_id) == (
        top if version >= 7 else (top[0], ErrorCode.none, 0)
    )
    assert [tuple(endpoint) for endpoint in answer.endpoints] == (endpoints if version >= 16 else [])
    expected = [
        (
            topic_id.bytes if version >= 13 else name,
            index,
            error,
            high_watermark,
            stable,
            start if version >= 5 else -1,
            aborted,
            preferred if version >= 11 else -1,
            records,
            diverging if version >= 12 else None,
            leader if version >= 12 else None,
        )
        for name, topic_id, rows in topics
        for index, error, high_watermark, stable, start, aborted, preferred, records in rows
    ]
    assert [(*partition[:8], bytes(partition.records), *partition[9:]) for partition in answer.partitions] == expected


def full_answer(version: int) -> bytes:
    rows = [
        (0, ErrorCode.none, 100, 90, 5, [(7, 55), (8, 60)], 3, b"RECORDS"),
        (1, ErrorCode.offset_out_of_range, -1, -1, -1, None, -1, b""),
    ]
    topics = [("orders", TOPIC_ID, rows), ("bills", TOPIC_ID, rows[:1])]
    return kio_answer(version, (5, ErrorCode.none, 77), topics, (3, 8), (2, 4), [(2, "host", 9092, "rack")])


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_that_ends_too_early_is_refused_wherever_it_ends(form: Form, version: int) -> None:
    lane = form("fetch_lane")
    whole = full_answer(version)
    assert len(lane.decode_fetch(version, memoryview(whole)).partitions) == 3
    for size in range(len(whole)):
        with pytest.raises(NotKafkaError, match=f"fetch .version {version}. with bytes that make no sense"):
            lane.decode_fetch(version, memoryview(whole)[:size])


@given(
    version=st.sampled_from(VERSIONS),
    data=st.binary(max_size=120),
    changes=st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_hostile_answers_are_refused_or_read_but_never_anything_else(
    form: Form, version: int, data: bytes, changes: list[tuple[int, int]]
) -> None:
    changed = bytearray(full_answer(version))
    for at, octet in changes:
        changed[at % len(changed)] = octet
    for body in (data, bytes(changed)):
        try:
            answer = form("fetch_lane").decode_fetch(version, memoryview(body))
        except NotKafkaError:
            continue
        assert sum(len(partition.records) for partition in answer.partitions) <= len(body)


def test_records_stay_in_the_memory_of_the_answer(form: Form) -> None:
    body = bytearray(full_answer(12))
    first = form("fetch_lane").decode_fetch(12, memoryview(body)).partitions[0]
    body[body.index(b"RECORDS")] = ord("r")
    assert bytes(first.records) == b"rECORDS"


@pytest.mark.parametrize("count", [b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x08"])
def test_a_list_longer_than_the_answer_is_refused_before_anything_is_made(form: Form, count: bytes) -> None:
    with pytest.raises(NotKafkaError, match="array of"):
        form("fetch_lane").decode_fetch(13, memoryview(bytes(10) + count + bytes(30)))


def test_versions_and_topics_that_do_not_go_together_are_the_callers_error(form: Form) -> None:
    lane = form("fetch_lane")
    limits = {"max_wait_ms": 1, "min_bytes": 1, "max_bytes": 1}
    for version in (3, 18):
        with pytest.raises(ValueError, match="only 4 to 17"):
            lane.encode_fetch(version, [], **limits)
        with pytest.raises(ValueError, match="only 4 to 17"):
            lane.decode_fetch(version, memoryview(b""))
    with pytest.raises(TypeError, match="by name"):
        lane.encode_fetch(12, [(TOPIC_ID.bytes, [])], **limits)
    for topic in ("orders", b"orders"):
        with pytest.raises(TypeError, match="16 bytes"):
            lane.encode_fetch(13, [(topic, [])], **limits)
