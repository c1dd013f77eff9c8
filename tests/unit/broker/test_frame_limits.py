"""Every API has a limit for its requests, which is known as soon as the first bytes of one are there."""

import struct

import pytest

from headwater.broker.frame_limits import ANYTHING, FRAME_LIMITS, UNCHECKED, check_frame
from headwater.net.connection import ProtocolViolationError
from headwater.protocol.apis import PRODUCE, SERVED, Api


def test_every_served_api_has_a_limit_and_only_produce_has_none_of_its_own() -> None:
    assert set(FRAME_LIMITS) == set(SERVED.values())
    assert [api for api, limit in FRAME_LIMITS.items() if limit == ANYTHING] == [PRODUCE]


@pytest.mark.parametrize("api", [api for api in SERVED.values() if api is not PRODUCE], ids=lambda api: api.name)
def test_a_frame_above_the_limit_of_its_api_is_refused_by_name(api: Api) -> None:
    start = memoryview(struct.pack(">hhi", api.key, api.max_version, 1))
    limit = FRAME_LIMITS[api]
    assert limit >= UNCHECKED
    check_frame(limit, start)
    with pytest.raises(ProtocolViolationError, match=f"{limit + 1} bytes; {api.name} takes at most {limit}"):
        check_frame(limit + 1, start)


def test_the_api_is_known_by_two_bytes() -> None:
    start = memoryview(struct.pack(">h", 18))
    check_frame(1 << 30, start[:1])
    with pytest.raises(ProtocolViolationError):
        check_frame(1 << 30, start)


def test_a_large_frame_of_an_api_that_is_not_served_is_refused() -> None:
    with pytest.raises(ProtocolViolationError, match="api key -7, which is not served"):
        check_frame(UNCHECKED + 1, memoryview(struct.pack(">h", -7)))
