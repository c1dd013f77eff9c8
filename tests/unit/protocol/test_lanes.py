"""The byte lanes of Produce and Fetch against kio, version by version: same bytes, same meaning."""

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
from kio.serial import entity_reader, entity_writer

from headwater.protocol import messages
from headwater.protocol.apis import FETCH, PRODUCE
from headwater.protocol.errors import MalformedRequestError
from headwater.protocol.kafka_types import ErrorCode

Form = Callable[[str], ModuleType]

TOPIC_ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
PRODUCE_VERSIONS = range(PRODUCE.min_version, PRODUCE.max_version + 1)
FETCH_VERSIONS = range(FETCH.min_version, FETCH.max_version + 1)


def nested(entity: type[Any], field: str) -> type[Any]:
    found = messages.entity_in(typing.get_type_hints(entity)[field])
    assert found is not None
    return found


def known(entity: type[Any], **values: Any) -> Any:
    """An entity of any version: the fields that this version has."""
    return entity(**{name: value for name, value in values.items() if name in entity.__dataclass_fields__})


def encoded(entity: Any) -> memoryview:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return memoryview(out.getvalue())


def produce_request(version: int, records: list[bytes | None]) -> memoryview:
    request_type = messages.request_type(PRODUCE.key, version)
    topic_type = nested(request_type, "topic_data")
    partition_type = nested(topic_type, "partition_data")
    partitions = tuple(partition_type(index=index, records=data) for index, data in enumerate(records))
    topic = known(topic_type, name="orders", topic_id=TOPIC_ID, partition_data=partitions)
    timeout = timedelta(milliseconds=1500)
    return encoded(request_type(transactional_id=None, acks=-1, timeout=timeout, topic_data=(topic,)))


def fetch_request(version: int) -> memoryview:
    request_type = messages.request_type(FETCH.key, version)
    topic_type = nested(request_type, "topics")
    partition_type = nested(topic_type, "partitions")
    partition = known(
        partition_type, partition=3, current_leader_epoch=7, fetch_offset=2**40, last_fetched_epoch=6,
        log_start_offset=5, partition_max_bytes=1048576,
    )  # fmt: skip
    values: dict[str, Any] = {
        "replica_id": -1, "max_wait": timedelta(milliseconds=500), "min_bytes": 1,
        "max_bytes": 52428800, "isolation_level": 1, "session_id": 42, "session_epoch": 9,
        "topics": (known(topic_type, topic="orders", topic_id=TOPIC_ID, partitions=(partition,)),),
        "rack_id": "r1",
    }  # fmt: skip
    if version >= 7:
        forgotten_type = nested(request_type, "forgotten_topics_data")
        forgotten = known(forgotten_type, topic="old", topic_id=TOPIC_ID, partitions=(1, 2))
        values["forgotten_topics_data"] = (forgotten,)
    return encoded(known(request_type, **values))


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_produce_request_gives_the_place_of_every_partitions_records(form: Form, version: int) -> None:
    produce_lane = form("produce_lane")
    frame = produce_request(version, [b"first batch", None, b""])
    request = produce_lane.read_request(frame, 0, version)
    assert (request.transactional_id, request.acks, request.timeout_ms) == (None, -1, 1500)
    ((topic, partitions),) = request.topics
    assert topic == ("orders" if version < 13 else TOPIC_ID.bytes)
    assert [index for index, _, _ in partitions] == [0, 1, 2]
    (_, start, end), (_, null_start, _), (_, empty_start, empty_end) = partitions
    assert bytes(frame[start:end]) == b"first batch"
    assert null_start == -1
    assert empty_start == empty_end >= 0


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_produce_response_is_what_kio_reads(form: Form, version: int) -> None:
    produce_lane = form("produce_lane")
    results = [
        produce_lane.PartitionResult(0, 0, 17, -1, 3),
        produce_lane.PartitionResult(1, 87, record_errors=((4, "no key"), (5, None)), error_message="bad records"),
    ]
    topic: str | bytes = "orders" if version < 13 else TOPIC_ID.bytes
    frame = produce_lane.response_frame(version, 99, [(topic, results)])
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big") == 99
    body = frame[9 if version >= 9 else 8 :]
    response, size = entity_reader(messages.response_type(PRODUCE.key, version))(body, 0)
    assert size == len(body)
    good, bad = response.responses[0].partition_responses
    assert (good.index, good.error_code, good.base_offset) == (0, ErrorCode.none, 17)
    assert (bad.index, bad.error_code, bad.base_offset) == (1, ErrorCode.invalid_record, -1)
    if version >= 5:
        assert good.log_start_offset == 3
    if version >= 8:
        assert bad.error_message == "bad records"
        assert [(error.batch_index, error.batch_index_error_message) for error in bad.record_errors] == [
            (4, "no key"),
            (5, None),
        ]


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetch_request_is_read_as_it_was_written(form: Form, version: int) -> None:
    fetch_lane = form("fetch_lane")
    request = fetch_lane.read_request(fetch_request(version), 0, version)
    name: str | bytes = "orders" if version < 13 else TOPIC_ID.bytes
    assert request.replica_id == -1
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level) == (
        500,
        1,
        52428800,
        1,
    )
    assert (request.session_id, request.session_epoch) == ((42, 9) if version >= 7 else (0, -1))
    wanted = fetch_lane.FetchPartition(
        3, 7 if version >= 9 else -1, 2**40, 6 if version >= 12 else -1, 5 if version >= 5 else -1, 1048576
    )
    assert request.topics == [(name, [wanted])]
    forgotten: str | bytes = "old" if version < 13 else TOPIC_ID.bytes
    assert request.forgotten == ([(forgotten, [1, 2])] if version >= 7 else [])


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetch_response_is_what_kio_reads(form: Form, version: int) -> None:
    fetch_lane = form("fetch_lane")
    results = [
        fetch_lane.PartitionResult(0, 0, 100, 90, 5, [(7, 55)], b"RECORDS", 7),
        fetch_lane.PartitionResult(1, 1),
        fetch_lane.PartitionResult(2, 0, 10, 10, 0, diverging_epoch=(3, 8)),
    ]
    topic: str | bytes = "orders" if version < 13 else TOPIC_ID.bytes
    frame = b"".join(fetch_lane.response_parts(version, 5, 0, 77, [(topic, results)]))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    body = frame[9 if version >= 12 else 8 :]
    response, size = entity_reader(messages.response_type(FETCH.key, version))(body, 0)
    assert size == len(body)
    full, error, diverging = response.responses[0].partitions
    assert (full.partition_index, full.error_code, full.high_watermark, full.last_stable_offset) == (
        0,
        0,
        100,
        90,
    )
    assert full.records == b"RECORDS"
    assert [(txn.producer_id, txn.first_offset) for txn in full.aborted_transactions] == [(7, 55)]
    assert (error.error_code, error.records) == (ErrorCode.offset_out_of_range, b"")
    if version >= 7:
        assert response.session_id == 77
    if version >= 12:
        assert (diverging.diverging_epoch.epoch, diverging.diverging_epoch.end_offset) == (3, 8)


@given(
    data=st.binary(max_size=80),
    version=st.sampled_from(PRODUCE_VERSIONS),
    cut=st.integers(0, 60),
    flip=st.integers(0, 59),
)
def test_hostile_requests_are_refused_or_read_but_never_anything_else(
    form: Form, data: bytes, version: int, cut: int, flip: int
) -> None:
    lanes = ((form("produce_lane"), PRODUCE_VERSIONS), (form("fetch_lane"), FETCH_VERSIONS))
    whole = bytearray(produce_request(version, [b"0123456789" * 3]))
    whole[flip % len(whole)] ^= 0xFF
    for frame in (data, bytes(whole), bytes(whole[:cut])):
        for lane, versions in lanes:
            try:
                lane.read_request(memoryview(frame), 0, min(version, versions[-1]))
            except MalformedRequestError:
                continue


def test_an_array_longer_than_the_frame_is_refused_before_anything_is_allocated(form: Form) -> None:
    frame = memoryview(b"\xff\xff" + b"\xff\xff" + b"\0\0\0\1" + b"\x7f\xff\xff\xff")
    with pytest.raises(MalformedRequestError, match="array of 2147483647"):
        form("produce_lane").read_request(frame, 0, 3)
