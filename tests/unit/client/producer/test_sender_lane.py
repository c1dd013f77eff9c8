"""The producer's own Produce: what it writes is what the broker reads, and the other way round, version by version."""

import importlib
import uuid

import pytest

from headwater.client.producer.produce_lane import (
    FIRST_VERSION_WITH_TOPIC_ID,
    NEWEST_VERSION,
    OLDEST_VERSION,
    Part,
    PartitionAnswer,
    TopicKey,
    decode_produce,
    encode_produce,
)
from headwater.protocol.apis import PRODUCE
from headwater.protocol.errors import MalformedRequestError
from headwater.protocol.kafka_types import ErrorCode
from headwater.protocol.messages import encode_response
from headwater.protocol.produce_lane import PartitionResult, read_request, response_frame

VERSIONS = range(OLDEST_VERSION, NEWEST_VERSION + 1)
ID = uuid.uuid4().bytes


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("transactional_id", [None, "billing"])
def test_the_broker_reads_what_the_producer_writes(version: int, transactional_id: str | None) -> None:
    names: list[TopicKey] = [ID, uuid.uuid4().bytes] if version >= FIRST_VERSION_WITH_TOPIC_ID else ["orders", "bills"]
    batches: dict[TopicKey, list[tuple[int, Part]]] = {
        names[0]: [(0, b"first"), (3, memoryview(b"second"))],
        names[1]: [(1, bytearray(b"x" * 300))],
    }
    frame = b"".join(encode_produce(version, transactional_id, -1, 1500, batches.items()))
    request = read_request(memoryview(frame), 0, version)
    assert (request.transactional_id, request.acks, request.timeout_ms) == (transactional_id, -1, 1500)
    found = {
        topic: [(number, frame[start:end]) for number, start, end in partitions] for topic, partitions in request.topics
    }
    assert found == {topic: [(n, bytes(data)) for n, data in listed] for topic, listed in batches.items()}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_producer_reads_what_the_broker_answers(version: int) -> None:
    topic = ID if version >= FIRST_VERSION_WITH_TOPIC_ID else "orders"
    results = [PartitionResult(0, 0, 42, -1, 7), PartitionResult(1, 87, -1, -1, -1, ((2, "no key"), (5, None)), "bad")]
    header = 9 if version >= 9 else 8
    answers = decode_produce(version, memoryview(response_frame(version, 1, [(topic, results)])[header:]))
    start = 7 if version >= 5 else -1
    errors = (((2, "no key"), (5, None)), "bad") if version >= 8 else ((), None)
    assert answers.topics == [
        (topic, [PartitionAnswer(0, 0, 42, -1, start), PartitionAnswer(1, 87, -1, -1, -1, *errors)]),
    ]
    assert answers.endpoints == []


@pytest.mark.parametrize("version", range(10, NEWEST_VERSION + 1))
def test_the_producer_reads_who_leads_instead(version: int) -> None:
    kio = importlib.import_module(f"kio.schema.produce.v{version}.response")
    refused = kio.PartitionProduceResponse(
        index=4,
        error_code=ErrorCode.not_leader_or_follower,
        base_offset=-1,
        record_errors=(),
        current_leader=kio.LeaderIdAndEpoch(leader_id=3, leader_epoch=8),
    )
    topic = {"topic_id": uuid.UUID(bytes=ID)} if version >= FIRST_VERSION_WITH_TOPIC_ID else {"name": "orders"}
    endpoint = kio.NodeEndpoint(node_id=3, host="kafka-3", port=9093, rack="r")
    response = kio.ProduceResponse(
        responses=(kio.TopicProduceResponse(**topic, partition_responses=(refused,)),), node_endpoints=(endpoint,)
    )
    frame = encode_response(PRODUCE, version, 1, response)
    answer = decode_produce(version, memoryview(frame)[9:])
    assert answer.endpoints == [(3, "kafka-3", 9093, "r")]
    assert answer.topics[0][1][0].current_leader == (3, 8)


def test_an_answer_that_is_cut_short_is_not_taken() -> None:
    whole = response_frame(9, 1, [("orders", [PartitionResult(0, 0, 42)])])[9:]
    for size in range(1, len(whole) - 6):
        with pytest.raises(MalformedRequestError):
            decode_produce(9, memoryview(whole[:size]))
