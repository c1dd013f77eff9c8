"""What is read and written in steps is what would be read and written in one go."""

import dataclasses
from collections.abc import Generator
from typing import Any, get_type_hints

import pytest

from headwater.protocol import entity_shapes, long_messages, messages
from headwater.protocol.apis import DESCRIBE_GROUPS, METADATA, SERVED, Api
from headwater.protocol.each import Each, each
from headwater.protocol.errors import MalformedRequestError, ResponseTooLongError
from integration.hostile_requests import hostile_requests, request_frame

VERSIONS = [
    (api, version)
    for api in SERVED.values()
    for version in range(api.min_version, api.max_version + 1)
    if api.name not in ("produce", "fetch")
]


def outcome(steps: Generator[None, None, Any]) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


@pytest.mark.parametrize(("api", "version"), VERSIONS, ids=lambda value: getattr(value, "name", str(value)))
def test_a_request_is_read_as_in_one_go(api: Api, version: int) -> None:
    for _, request in hostile_requests(api, version, 20):
        frame = request_frame(api, version, request)
        body = 11 if version >= api.flexible else 10
        wanted = messages.request_type(api.key, version if version in (api.min_version,) else api.max_version)
        expected = messages.convert(messages.decode_request(api, version, frame, body), wanted)
        assert outcome(long_messages.read_request(api, version, wanted, frame, body)) == expected
        with pytest.raises(MalformedRequestError):
            outcome(long_messages.read_request(api, version, wanted, frame[: (body + len(frame)) // 2], body))


def test_tagged_fields_that_nobody_knows_are_stepped_over() -> None:
    topic = b"\2a" + b"\1\7\3abc"
    frame = b"\3" + topic + b"\2b\0" + b"\1\0\0" + b"\2\1\0\2\1x"
    wanted = messages.request_type(3, 9)
    request = outcome(long_messages.read_request(METADATA, 9, wanted, frame, 0))
    assert [topic.name for topic in request.topics] == ["a", "b"]


@pytest.mark.parametrize("claim", [b"\xff\xff\xff\xff\x0f", b"\xe8\x07"])
def test_an_array_that_claims_more_than_is_there_is_malformed_before_anything_is_made_of_it(claim: bytes) -> None:
    for api, version in ((METADATA, 9), (DESCRIBE_GROUPS, 5)):
        with pytest.raises(MalformedRequestError):
            outcome(
                long_messages.read_request(api, version, messages.request_type(api.key, version), claim + b"\2a", 0)
            )


@pytest.mark.parametrize("version", [0, 5, 6])
def test_a_response_is_written_as_in_one_go(version: int) -> None:
    newest = messages.response_type(DESCRIBE_GROUPS.key, 6)
    group = messages.convert(messages.Nothing(), row_type(newest, "groups"))
    member = messages.convert(messages.Nothing(), row_type(type(group), "members"))
    response = messages.convert(messages.Nothing(), newest)

    def with_rows(make: Any) -> Any:
        members = make(lambda number: replaced(member, member_id=f"m{number}"), range(200))
        return replaced(response, groups=make(lambda number: replaced(group, members=members), range(3)))

    at_once = with_rows(lambda row, items: tuple(map(row, items)))
    expected = messages.encode_response(DESCRIBE_GROUPS, version, 7, at_once)
    for long in (at_once, with_rows(each)):
        assert long_messages.is_long(long)
        assert outcome(long_messages.write_response(DESCRIBE_GROUPS, version, 7, long)) == expected
    assert messages.encode_response(DESCRIBE_GROUPS, version, 7, with_rows(each)) == expected


def test_a_response_that_no_client_would_take_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_messages, "MAX_RESPONSE_BYTES", 10_000)
    newest = messages.response_type(DESCRIBE_GROUPS.key, 6)
    group = messages.convert(messages.Nothing(), row_type(newest, "groups"))
    response = replaced(messages.convert(messages.Nothing(), newest), groups=each(lambda _: group, range(5_000)))
    with pytest.raises(ResponseTooLongError):
        outcome(long_messages.write_response(DESCRIBE_GROUPS, 6, 7, response))


def test_rows_are_made_when_they_are_gone_over() -> None:
    made: list[int] = []

    def make(number: int) -> int:
        made.append(number)
        return number

    rows = each(make, range(3))
    assert isinstance(rows, Each)
    assert (len(rows), made) == (3, [])
    assert rows == (0, 1, 2)
    assert rows[1] == 1


def row_type(entity: type[Any], field: str) -> type[Any]:

    found = entity_shapes.nested_entity(get_type_hints(entity)[field])
    assert found is not None
    return found


def replaced(entity: Any, **fields: Any) -> Any:

    return dataclasses.replace(entity, **fields)
