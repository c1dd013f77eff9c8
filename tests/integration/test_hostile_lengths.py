"""Lengths that only claim, and tagged fields of peers newer than us: over real sockets, in both directions."""

import asyncio
import contextlib
import dataclasses
import random
import struct
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from headwater.client.connection import Connection
from headwater.client.errors import NotKafkaError
from headwater.protocol import messages
from headwater.protocol.apis import FETCH, PRODUCE, SERVED, Api
from headwater.protocol.messages import convert
from integration.raw_client import API_VERSIONS_V0, RawClient
from kafka_messages import Written, name_of, some_entity
from peers.stand_in import Asked, StandIn, Verbatim, served_versions

from kio.schema.metadata.v12.request import MetadataRequest  # isort: skip
from kio.schema.metadata.v12.response import MetadataResponse  # isort: skip

THE_21_BYTES = bytes.fromhex("00000011 0003 0009 00000007 0001 78 00 ffffffff0f")
SPARE_BYTES = 512 * 1024 * 1024
BROKER = f"""
import resource, sys
from headwater.testing import LocalBroker
with LocalBroker() as broker:
    with open("/proc/self/statm") as sizes:
        limit = int(sizes.read().split()[0]) * resource.getpagesize() + {SPARE_BYTES}
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    print(broker.bootstrap, flush=True)
    sys.stdin.read()
"""
CLIENT = f"""
import asyncio, resource, sys
from headwater.client.addresses import Address
from headwater.client.connection import Connection
with open("/proc/self/statm") as sizes:
    limit = int(sizes.read().split()[0]) * resource.getpagesize() + {SPARE_BYTES}
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    asyncio.run(Connection.open(Address("127.0.0.1", int(sys.argv[1]))))
except Exception as error:
    print(type(error).__name__, error)
"""
OLDEST_AND_NEWEST = [
    *((api, api.min_version) for api in SERVED.values()),
    *((api, api.max_version) for api in SERVED.values() if api.max_version > api.min_version),
]
CHANGES_NOTHING = (
    "list_offsets", "metadata", "api_versions", "offset_for_leader_epoch", "describe_configs", "describe_cluster",
    "describe_producers", "describe_topic_partitions", "produce", "fetch",
)  # fmt: skip


@pytest.fixture(scope="module")
def small_broker() -> Iterator[str]:
    """The address of a broker in a process that has little memory to spare."""
    command = [sys.executable, "-c", BROKER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        yield process.stdout.readline().decode().strip()
        _, log = process.communicate(timeout=20)
        assert process.returncode == 0, log.decode()
        # Strangers' bytes are their fault: one line each, no traceback.
        assert b"closed the connection" in log
        assert b"this is a bug" not in log
        assert b"Traceback" not in log


def header(api: Api, version: int, *, newer: bool = False) -> bytes:
    tags = b"" if version < api.flexible else b"\2\x05\2hi\xff\x7f\0" if newer else b"\0"
    return struct.pack(">hhih", api.key, version, 7, 2) + b"me" + tags


def assert_serves(bootstrap: str) -> None:
    with RawClient(bootstrap) as client:
        answer = client.ask(API_VERSIONS_V0)
        assert answer is not None
        assert answer[:6] == b"\0\0\0\7\0\0"


def test_a_broker_survives_the_21_bytes(small_broker: str) -> None:
    with RawClient(small_broker) as client:
        client.sock.sendall(THE_21_BYTES)
        assert client.receive() is None
    assert_serves(small_broker)


def test_a_broker_closes_a_connection_for_each_length_that_is_not_true(small_broker: str) -> None:
    for api, version in OLDEST_AND_NEWEST:
        entity = messages.request_type(api.key, version)
        drawn = [Written(some_entity(entity, random.Random(seed), largest=2)) for seed in range(3)]
        written = max(drawn, key=lambda one: len(one.lengths))
        for length in written.lengths[:8]:
            if api is FETCH and length.what == "string cluster_id":
                continue  # the lane steps over the tagged field that it is in
            size = length.end - length.start
            wrong = b"\xff\xff\xff\xff\x07" if length.compact else (2 ** (8 * size - 1) - 1).to_bytes(size, "big")
            with RawClient(small_broker) as client:
                assert client.ask(header(api, version) + written.replaced(length, wrong)) is None, (api, length)
    assert_serves(small_broker)


@pytest.mark.parametrize("api", [api for api in SERVED.values() if api.name in CHANGES_NOTHING], ids=name_of)
def test_a_broker_answers_a_newer_client_as_it_does_one_of_its_own_age(small_broker: str, api: Api) -> None:
    """KIP-482: fields that only the client knows are skipped, in the header and in every structure of the body."""
    version = 17 if api is FETCH else api.max_version
    entity = messages.request_type(api.key, version)
    for seed in range(3):
        request = some_entity(entity, random.Random(seed), largest=2)
        calm = {"allow_auto_topic_creation": False, "max_wait": timedelta(0), "session_id": 0, "session_epoch": -1}
        if api is PRODUCE:
            calm = {"acks": 1, "transactional_id": None}
        fields = {field.name for field in dataclasses.fields(entity)}
        request = dataclasses.replace(request, **{name: value for name, value in calm.items() if name in fields})
        with RawClient(small_broker) as client:
            plain = client.ask(header(api, version) + bytes(Written(request).data))
            newer = client.ask(header(api, version, newer=True) + bytes(Written(request, newer=True).data))
        assert newer == plain
        assert newer is not None


def newer_answer(asked: Asked, answer: Any) -> Verbatim:
    """What a broker sends that knows more tagged fields than we do, in headers and in bodies."""
    answer = convert(answer, messages.response_type(asked.api.key, asked.version))
    tagged_header = asked.version >= asked.api.flexible and asked.api.key != 18
    tags = b"\2\x05\2hi\xff\x7f\0" if tagged_header else b""
    frame = struct.pack(">i", asked.correlation_id) + tags + bytes(Written(answer, newer=True).data)
    return Verbatim(struct.pack(">i", len(frame)) + frame)


def test_a_client_works_with_a_newer_broker() -> None:
    wanted = some_entity(MetadataResponse, random.Random(7), largest=2)

    async def talk() -> None:
        answers = {
            "api_versions": lambda asked: newer_answer(asked, served_versions(asked)),
            "metadata": lambda asked: newer_answer(asked, wanted),
        }
        async with StandIn(answers) as broker:
            connection = await Connection.open(broker.address)
            request = MetadataRequest(topics=None, include_topic_authorized_operations=False)
            assert await connection.send(request, MetadataResponse, timeout_s=10) == wanted
            await connection.close()

    asyncio.run(talk())


@pytest.mark.parametrize("body", [b"\0\0" + b"\xff\xff\xff\xff\x0f", b"\0\0", b"\0\0\3\0", b"\0\0\1\0\0\0\0\1\0\x7f"])
def test_a_client_survives_an_answer_to_its_first_question_that_makes_no_sense(body: bytes) -> None:
    def hostile(asked: Asked) -> Verbatim:
        return Verbatim(struct.pack(">ii", 4 + len(body), asked.correlation_id) + body)

    async def talk() -> None:
        async with StandIn({"api_versions": hostile}) as broker:
            with pytest.raises(NotKafkaError, match="sent an answer that cannot be read: ApiVersionsResponse v3"):
                await Connection.open(broker.address)

    asyncio.run(talk())


def test_a_client_with_little_memory_survives_the_answer_that_ended_it() -> None:
    async def talk() -> str:
        def hostile(asked: Asked) -> Verbatim:
            return Verbatim(struct.pack(">ii", 11, asked.correlation_id) + b"\0\0\xff\xff\xff\xff\x0f")

        async with StandIn({"api_versions": hostile}) as broker:
            client = await asyncio.create_subprocess_exec(
                sys.executable, "-c", CLIENT, str(broker.address.port), stdout=asyncio.subprocess.PIPE
            )
            said, _ = await client.communicate()
            with contextlib.suppress(ProcessLookupError):
                client.kill()
        return said.decode()

    said = asyncio.run(talk())
    assert said.startswith("NotKafkaError")
    assert "listener" not in said
