"""The bridge between versions: what every handler relies on."""

import dataclasses
import typing
from typing import Any

import pytest

from headwater.protocol import messages
from headwater.protocol.apis import API_VERSIONS, METADATA, SERVED, Api
from headwater.protocol.errors import MalformedRequestError
from headwater.protocol.headers import read_header

EVERY_VERSION = [
    (api, version) for api in SERVED.values() for version in range(api.min_version, api.max_version + 1)
]  # fmt: skip


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION, ids=lambda value: getattr(value, "name", str(value)))
def test_the_table_knows_which_versions_are_flexible(api: Api, version: int) -> None:
    assert messages.request_type(api.key, version).__flexible__ == (version >= api.flexible)


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION, ids=lambda value: getattr(value, "name", str(value)))
def test_every_request_can_be_turned_into_the_newest_one(api: Api, version: int) -> None:
    old, newest = messages.request_type(api.key, version), messages.request_type(api.key, api.max_version)
    fields: dict[str, Any] = {
        field.name: messages._zero(typing.get_type_hints(old)[field.name]) for field in dataclasses.fields(old)
    }
    converted = messages.convert(old(**fields), newest)
    assert type(converted) is newest
    for field in dataclasses.fields(newest):
        if field.name in fields and not dataclasses.is_dataclass(fields[field.name]):
            assert getattr(converted, field.name) == fields[field.name]


def test_bytes_behind_the_end_of_a_request_are_ignored_as_in_kafka() -> None:
    """librdkafka sends three with Metadata v13."""
    assert messages.decode_request(METADATA, 0, b"\0\0\0\0" + b"xxx", 0).topics == ()


def test_a_request_that_ends_early_is_malformed() -> None:
    with pytest.raises(MalformedRequestError, match="metadata v1 cannot be read"):
        messages.decode_request(METADATA, 1, b"\0\0\0\5", 0)


def test_the_header_says_where_the_body_begins() -> None:
    frame = memoryview(b"\0\x12" + b"\0\3" + b"\0\0\0\7" + b"\0\2me" + b"\1\5\2hi" + b"body")
    header = read_header(frame)
    assert (header.api, header.version, header.correlation_id) == (API_VERSIONS, 3, 7)
    assert header.client_id(frame) == "me"
    assert header.body == 17
    assert header.supported


@pytest.mark.parametrize("frame", [b"", b"\0\x12\0\3", b"\x7f\x7f\0\0\0\0\0\0\0\0", b"\0\x12\0\0\0\0\0\0\0\x09me"])
def test_a_header_that_makes_no_sense_is_malformed(frame: bytes) -> None:
    with pytest.raises(MalformedRequestError):
        read_header(memoryview(frame))
