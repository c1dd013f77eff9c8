"""Every request, every response and what consumers tell each other, from bytes that anybody may have made.

The first byte of an input says what the rest is read as, the next two choose the API and the version.
"""

import random
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from headwater.client.consumer import fetch_lane as client_fetch_lane
from headwater.client.consumer.group_protocol import decode_generation, decode_sticky_user_data
from headwater.client.errors import NotKafkaError
from headwater.client.producer import produce_lane as client_produce_lane
from headwater.coordinator.group.consumer_protocol import (
    Assignment,
    NamedPartitions,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from headwater.coordinator.schema import CorruptRecordError
from headwater.protocol import fetch_lane, messages, produce_lane
from headwater.protocol.apis import FETCH, PRODUCE, SERVED, Api
from headwater.protocol.errors import MalformedRequestError, MalformedResponseError
from headwater.protocol.headers import read_header
from kafka_messages import EVERY_VERSION, Written, some_entity, wrong_lengths

_REQUEST, _RESPONSE, _FRAME, _BLOB = range(4)
_HEAD: Final = struct.Struct(">BBB")
_APIS: Final = sorted(SERVED)


def one_input(data: bytes) -> None:
    """Reads `data` as one of them. Raises nothing: the errors that readers promise are what is expected."""
    if len(data) < _HEAD.size:
        return
    kind, chosen, number = _HEAD.unpack_from(data)
    api = SERVED[_APIS[chosen % len(_APIS)]]
    version = api.min_version + number % (api.max_version - api.min_version + 1)
    _READERS[kind % len(_READERS)](api, version, data[_HEAD.size :])


def seeds() -> list[bytes]:
    """Valid inputs: each message in each version with values of all kinds, as old and as newer peers write it."""
    found = []
    for api, version in EVERY_VERSION:
        head = struct.pack(">BB", _APIS.index(api.key), version - api.min_version)
        for kind, written in _examples(api, version):
            found.append(bytes([kind]) + head + bytes(written.data))
            if kind == _REQUEST:
                header = struct.pack(">hhih", api.key, version, 7, 2) + b"me"
                tags = b"\1\x05\2hi" if version >= api.flexible else b""
                found.append(bytes([_FRAME]) + head + header + tags + bytes(written.data))
    partitions = (NamedPartitions("orders", (0, 1, 2)), NamedPartitions("", ()))
    for version in range(4):
        said = Subscription(topics=("orders", "ü"), user_data=b"\0\0\0\1", owned=partitions, generation=3, rack_id="r")
        given = Assignment(partitions=partitions)
        blobs = write_subscription(said, version), write_assignment(given, version)
        found += [_HEAD.pack(_BLOB, 0, 0) + blob for blob in blobs]
    return found


def frames() -> list[bytes]:
    """Whole requests, each API in each version: header and body."""
    return [seed[_HEAD.size :] for seed in seeds() if seed[0] == _FRAME]


def wrongly_long() -> list[bytes]:
    """For each message in each version: each of its lengths replaced by such as are too much, negative or endless."""
    found = []
    for api, version in EVERY_VERSION:
        head = struct.pack(">BB", _APIS.index(api.key), version - api.min_version)
        for kind, written in _examples(api, version):
            for length in written.lengths[:20]:
                wrong = wrong_lengths(length, written.data)
                found += [bytes([kind]) + head + written.replaced(length, one) for one in wrong]
    return found


def _examples(api: Api, version: int) -> list[tuple[int, Written]]:
    """The longest of several requests and responses, so that fields that may be null are there."""
    examples = []
    for kind, entity in (
        (_REQUEST, messages.request_type(api.key, version)),
        (_RESPONSE, messages.response_type(api.key, version)),
    ):
        for newer in (False, True):
            drawn = [Written(some_entity(entity, random.Random(s), largest=2), newer=newer) for s in range(3)]
            examples.append((kind, max(drawn, key=lambda one: len(one.lengths))))
    return examples


def _request(api: Api, version: int, body: bytes) -> None:
    with suppress(MalformedRequestError):
        messages.decode_request(api, version, body, 0)
    _request_lane(api, version, body, 0)


def _request_lane(api: Api, version: int, frame: bytes, position: int) -> None:
    with suppress(MalformedRequestError):
        if api is PRODUCE:
            produce_lane.read_request(memoryview(frame), position, version)
        elif api is FETCH:
            fetch_lane.read_request(memoryview(frame), position, version)


def _response(api: Api, version: int, body: bytes) -> None:
    with suppress(MalformedResponseError):
        messages.decode_response(api.key, version, memoryview(body), 0)
    if api is PRODUCE:
        with suppress(MalformedRequestError):
            client_produce_lane.decode_produce(version, memoryview(body))
    elif api is FETCH and version <= client_fetch_lane.NEWEST_VERSION:
        with suppress(NotKafkaError):
            client_fetch_lane.decode_fetch(version, memoryview(body))


def _frame(_: Api, __: int, frame: bytes) -> None:
    try:
        header = read_header(memoryview(frame))
    except MalformedRequestError:
        return
    header.client_id(memoryview(frame))
    if not header.supported:
        return
    if header.api in (PRODUCE, FETCH):
        _request_lane(header.api, header.version, frame, header.body)
        return
    with suppress(MalformedRequestError):
        messages.decode_request(header.api, header.version, frame, header.body)


def _blob(_: Api, __: int, blob: bytes) -> None:
    for read in (read_subscription, read_assignment):
        with suppress(CorruptRecordError):
            read(blob)
    decode_sticky_user_data(blob)
    decode_generation(blob)


_READERS: Final[list[Callable[[Api, int, bytes], None]]] = [_request, _response, _frame, _blob]
