"""Frames that no honest client sends: the connection ends, or an error comes, and nobody else notices."""

import struct

import pytest
from kio.schema.errors import ErrorCode

from .actions import create_topic, produce_ok
from .batches import batch
from .conftest import Broker
from .wire import APIS, Wire, request_bytes


def still_serves(broker: Broker) -> bool:
    with Wire(broker.bootstrap) as other:
        return bool(other.send("metadata", topics=[]).brokers)


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 104_857_601])
def test_trap_a_negative_or_oversized_frame_length_closes_the_connection(broker: Broker, length: int) -> None:
    with Wire(broker.bootstrap, timeout_s=10) as wire, Wire(broker.bootstrap) as bystander:
        wire.socket.sendall(struct.pack(">i", length))
        assert wire.is_closed_by_peer()
        assert bystander.send("metadata", topics=[]).brokers


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0",
        struct.pack(">hh", 3, 12),
        struct.pack(">hhih", 3, 1, 7, -1),
        struct.pack(">hhihi", 3, 1, 7, -1, 2**31 - 1),
        struct.pack(">hhihi", 3, 0, 7, -1, -7),
        struct.pack(">hhih", 999, 0, 7, -1),
        struct.pack(">hhih", -1, 0, 7, -1),
        b"\xff" * 64,
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
    ids=[
        "empty",
        "one byte",
        "no correlation id",
        "no body",
        "a huge array",
        "a negative array",
        "unknown api",
        "negative api",
        "noise",
        "http",
    ],
)
def test_a_malformed_request_closes_the_connection(broker: Broker, body: bytes) -> None:
    with Wire(broker.bootstrap, timeout_s=10) as wire:
        wire.send_bytes(body)
        assert wire.is_closed_by_peer()
    assert still_serves(broker)


@pytest.mark.parametrize(("api", "version"), [("metadata", 99), ("produce", 2), ("fetch", 3), ("create_topics", 1)])
def test_a_version_that_is_not_served_closes_the_connection(broker: Broker, api: str, version: int) -> None:
    with Wire(broker.bootstrap, timeout_s=10) as wire:
        wire.send_bytes(struct.pack(">hhih", APIS[api][0], version, 1, -1) + bytes(20))
        assert wire.is_closed_by_peer()
    assert still_serves(broker)


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(broker: Broker, wire: Wire) -> None:
    wire.send_bytes(struct.pack(">hhih", 18, 99, 5, -1) + b"\0\0\0\0")
    answer = wire.receive(18, 0, 5)
    assert answer.error_code is ErrorCode.unsupported_version
    assert 18 in {api.api_key for api in answer.api_keys}
    assert wire.send("api_versions", client_software_name="wire", client_software_version="1").api_keys


def test_a_bad_name_of_the_client_software_is_an_invalid_request(wire: Wire) -> None:
    answer = wire.send("api_versions", client_software_name="no good", client_software_version="")
    assert answer.error_code is ErrorCode.invalid_request


def test_a_cut_request_waits_and_the_rest_completes_it(broker: Broker, wire: Wire) -> None:
    body = request_bytes(3, 12, 9, {"topics": []})
    frame = struct.pack(">i", len(body)) + body
    for byte in frame[:-1]:
        wire.socket.sendall(bytes([byte]))
    wire.socket.sendall(frame[-1:])
    assert wire.receive(3, 12, 9).brokers


def test_many_requests_in_one_packet_are_answered_in_order(wire: Wire) -> None:
    topic = create_topic(wire)
    produce_ok(wire, topic, batch(b"v"))
    frames = b""
    for correlation_id in range(1000, 1020):
        body = request_bytes(3, 12, correlation_id, {"topics": [{"name": topic.name, "topic_id": None}]})
        frames += struct.pack(">i", len(body)) + body
    wire.socket.sendall(frames)
    for correlation_id in range(1000, 1020):
        assert wire.receive(3, 12, correlation_id).topics[0].name == topic.name


def test_a_connection_cut_in_the_middle_of_a_request_harms_nobody(broker: Broker) -> None:
    with Wire(broker.bootstrap) as wire:
        wire.socket.sendall(struct.pack(">i", 1000) + b"\0\0")
    assert still_serves(broker)


def test_records_that_are_cut_or_longer_than_they_say_are_refused(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)
    whole = batch(b"some value that is long enough")
    longer = bytearray(whole)
    longer[8:12] = struct.pack(">i", len(whole) + 50)
    negative = bytearray(whole)
    negative[8:12] = struct.pack(">i", -1)
    for records in (whole[:-3], whole[:30], bytes(longer), bytes(negative)):
        request = {
            "name": topic.name,
            "topic_id": topic.id,
            "partition_data": [{"index": 0, "records": records}],
        }
        answer = wire.send("produce", acks=-1, timeout=1000, topic_data=[request])
        assert answer.responses[0].partition_responses[0].error_code is not ErrorCode.none
    assert produce_ok(wire, topic, batch(b"v")) == 0
