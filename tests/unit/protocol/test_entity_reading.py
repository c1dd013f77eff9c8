"""Our reader understands what kio's does, and believes none of the lengths that strangers claim."""

import dataclasses
import io
import random
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any

import pytest
from kio.serial import entity_reader as kio_reader
from kio.serial import entity_writer as kio_writer

from headwater.protocol import messages
from headwater.protocol.apis import FETCH, FIND_COORDINATOR, METADATA, OFFSET_COMMIT, SERVED, Api
from headwater.protocol.errors import MalformedRequestError, MalformedResponseError
from headwater.protocol.kafka_types import ErrorCode
from headwater.protocol.wire import MAX_REQUEST_ITEMS
from kafka_messages import Written, name_of, some_entity, wrong_lengths

Form = Callable[[str], ModuleType]
TYPES = (messages.request_type, messages.response_type)
every_api = pytest.mark.parametrize("api", SERVED.values(), ids=name_of)


def messages_of(api: Api) -> list[type[Any]]:
    """Requests and responses in all versions that are served."""
    versions = range(api.min_version, api.max_version + 1)
    return [type_of(api.key, version) for version in versions for type_of in TYPES]


def read(form: Form, entity: type[Any], data: bytes) -> Any:
    """The entity in these bytes, which must be all its own."""
    cursor = form("wire").Cursor(memoryview(data), 0)
    found = form("entity_reading").read_entity(entity, cursor)
    assert cursor.position == len(data)
    return found


def kinds_of_values(entity: Any) -> list[Any]:
    """The types of all values, as equality cannot tell 1 from True."""
    values = [getattr(entity, field.name) for field in dataclasses.fields(entity)]
    return [
        [kinds_of_values(item) if dataclasses.is_dataclass(item) else type(item) for item in value]
        if isinstance(value, tuple)
        else (kinds_of_values(value) if dataclasses.is_dataclass(value) else type(value))
        for value in values
    ]


@every_api
def test_what_is_read_is_what_kio_reads(form: Form, api: Api) -> None:
    for entity in messages_of(api):
        for seed in range(4):
            value = some_entity(entity, random.Random(seed), largest=3 if seed else 150)
            data = io.BytesIO()
            kio_writer(entity)(data, value)
            found = read(form, entity, data.getvalue())
            assert found == value
            assert Written(value).data == data.getvalue()
            if api.key != 65:  # kio has no value for the start time of a transaction that has none
                by_kio = kio_reader(entity)(data.getvalue(), 0)[0]
                assert found == by_kio
                assert kinds_of_values(found) == kinds_of_values(by_kio)


@every_api
def test_tagged_fields_that_are_not_known_are_stepped_over_wherever_they_stand(form: Form, api: Api) -> None:
    """KIP-482. Known ones may come in any order and, as in Kafka, twice: the last one counts."""
    for entity in messages_of(api):
        for seed in range(2):
            value = some_entity(entity, random.Random(seed), largest=3)
            written = Written(value, newer=True)
            assert read(form, entity, bytes(written.data)) == value
            assert not entity.__flexible__ or len(written.data) > len(Written(value).data)


@every_api
def test_no_length_is_believed(form: Form, api: Api) -> None:
    """Each is replaced by what it cannot be, and by what it might have been in another message."""
    for entity in messages_of(api):
        # Of several examples the one with the most lengths, so that fields that may be null are there.
        examples = [Written(some_entity(entity, random.Random(seed), largest=2), newer=True) for seed in range(4)]
        written = max(examples, key=lambda one: len(one.lengths))
        for length in written.lengths[:12]:
            for wrong in wrong_lengths(length, written.data):
                data = memoryview(written.replaced(length, wrong))
                with suppress(MalformedRequestError):
                    form("entity_reading").read_entity(entity, form("wire").Cursor(data, 0))


def test_a_message_that_ends_anywhere_else_is_refused(form: Form) -> None:
    entity = messages.request_type(OFFSET_COMMIT.key, 9)
    written = Written(some_entity(entity, random.Random(1), largest=3), newer=True)
    for end in range(len(written.data)):
        with pytest.raises(MalformedRequestError):
            read(form, entity, bytes(written.data[:end]))


def test_the_21_bytes_that_ended_a_broker_are_refused() -> None:
    frame = bytes.fromhex("00030009 00000007 0001 78 00 ffffffff0f")
    with pytest.raises(MalformedRequestError, match="metadata v9 cannot be read: an array of 4294967294 items at 17"):
        messages.decode_request(METADATA, 9, frame, 12)


def test_the_answer_that_ended_a_client_is_refused() -> None:
    with pytest.raises(MalformedResponseError, match="ApiVersionsResponse v3 cannot be read: an array of 4294967294"):
        messages.decode_response(18, 3, memoryview(b"\0\0" + b"\xff\xff\xff\xff\x0f"), 0)


def test_many_small_items_are_refused_though_all_of_them_are_there(form: Form) -> None:
    """A topic of Metadata takes two bytes on the wire and a hundred as an object."""
    few, many = 1000, MAX_REQUEST_ITEMS + 1
    entity = messages.request_type(METADATA.key, 9)
    varint = form("wire").uvarint_bytes
    assert len(read(form, entity, varint(few + 1) + b"\1\0" * few + bytes(4)).topics) == few
    with pytest.raises(MalformedRequestError, match="more items than a message may have"):
        read(form, entity, varint(many + 1) + b"\1\0" * many + bytes(4))


def test_items_of_all_arrays_count_together(form: Form) -> None:
    entity = messages.request_type(METADATA.key, 9)
    cursor = form("wire").Cursor(memoryview(b"\4" + b"\1\0" * 3 + bytes(4)), 0, 3)
    assert len(form("entity_reading").read_entity(entity, cursor).topics) == 3
    cursor.position = 0
    with pytest.raises(MalformedRequestError, match="more items"):
        form("entity_reading").read_entity(entity, cursor)


def test_tagged_fields_count_as_items_wherever_they_are_stepped_over(form: Form) -> None:
    """A frame of 100 MiB could hold fifty million of them in front of a Produce request."""
    many = MAX_REQUEST_ITEMS + 1
    tags = form("wire").uvarint_bytes(many) + b"\1\0" * many
    header = b"\0\3\0\x09" + b"\0\0\0\7" + b"\0\1x"
    assert form("headers").read_header(memoryview(header + b"\2" + b"\1\0" * 2)).body == len(header) + 5
    with pytest.raises(MalformedRequestError, match="more items"):
        form("headers").read_header(memoryview(header + tags))
    with pytest.raises(MalformedRequestError, match="more items"):
        read(form, messages.request_type(METADATA.key, 9), b"\1\0\0\0" + tags)


def test_every_item_of_every_array_takes_a_byte_at_least(form: Form) -> None:
    """Otherwise the bytes that are there could not say how many of them there may be."""
    for api in SERVED.values():
        for entity in messages_of(api):
            form("entity_reading").smallest_size(entity)


def test_null_is_refused_where_there_may_be_none(form: Form) -> None:
    entity = messages.request_type(FIND_COORDINATOR.key, 0)
    assert read(form, entity, b"\0\1g").key == "g"
    with pytest.raises(MalformedRequestError, match="key before 2 is null"):
        read(form, entity, b"\xff\xff")


def test_a_string_is_as_short_as_in_kafka(form: Form) -> None:
    """Compact strings could be longer; what is longer could not be answered in an older version."""
    entity = messages.request_type(FIND_COORDINATOR.key, 3)
    longest = b"\x80\x80\x02" + b"x" * 0x7FFF
    assert len(read(form, entity, longest + bytes(2)).key) == 0x7FFF
    with pytest.raises(MalformedRequestError, match="a string of 32768 bytes"):
        read(form, entity, b"\x81\x80\x02" + b"x" * 0x8000 + bytes(2))


def test_an_error_code_that_is_not_known_is_an_unknown_error_as_in_kafka() -> None:
    answer = messages.decode_response(18, 0, b"\x7f\xff" + bytes(4), 0)
    assert answer.error_code is ErrorCode.unknown_server_error


def test_any_byte_but_zero_is_true_as_in_kafka(form: Form) -> None:
    assert read(form, messages.request_type(METADATA.key, 4), b"\0\0\0\0\5").allow_auto_topic_creation is True


def test_a_tagged_field_has_to_be_as_long_as_it_claims(form: Form) -> None:
    """Kafka ignores the claim and goes on where the field ends; nobody honest can tell the difference."""
    entity = messages.request_type(FETCH.key, 17)
    body = bytes(12) + b"\0" + bytes(8) + b"\1\1\1"
    assert read(form, entity, body + b"\1\0\2\2a").cluster_id == "a"
    for tags in (b"\1\0\3\2ab", b"\1\0\1\2a"):
        with pytest.raises(MalformedRequestError, match="cluster_id at 27 is not as long as it claims"):
            read(form, entity, body + tags)


def test_a_broker_that_is_too_old_for_the_version_is_understood() -> None:
    answer = messages.decode_response(18, 3, b"\0\x23" + b"\0\0\0\1" + b"\0\x12\0\0\0\2", 0)
    assert answer.error_code is ErrorCode.unsupported_version
    assert answer.api_keys[0].max_version == 2


def test_what_cannot_be_a_time_is_malformed(form: Form) -> None:
    entity = messages.request_type(OFFSET_COMMIT.key, 2)
    body = b"\0\1g" + bytes(4) + b"\0\1m"
    assert read(form, entity, body + (10**12).to_bytes(8) + bytes(4)).retention_time.days == 11574
    with pytest.raises(MalformedRequestError, match="time"):
        read(form, entity, body + (2**63 - 1).to_bytes(8) + bytes(4))
