"""ApiVersions, v0 to v4: what the broker serves. Asked in a version that it does not know, it answers in v0 (KIP-511).

Left out: feature levels, which only a KRaft quorum has.
"""

from typing import TYPE_CHECKING

from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.api_versions.v4.response import ApiVersion, ApiVersionsResponse

from headwater.protocol.apis import SERVED
from headwater.protocol.kafka_types import NO_THROTTLE, ErrorCode, i16

if TYPE_CHECKING:
    from headwater.broker.dispatch import RequestContext

_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-")


def handle(context: "RequestContext", request: ApiVersionsRequest) -> ApiVersionsResponse:
    """The table of served APIs, or INVALID_REQUEST for a client that does not say properly who it is (v3 on)."""
    if context.version >= 3 and not (
        _proper(request.client_software_name) and _proper(request.client_software_version)
    ):
        return _response(ErrorCode.invalid_request)
    return _response(ErrorCode.none)


def unsupported() -> ApiVersionsResponse:
    """The answer to a version that is not served: the table and UNSUPPORTED_VERSION."""
    return _response(ErrorCode.unsupported_version)


def _response(error_code: ErrorCode) -> ApiVersionsResponse:
    served = [api.advertised for api in SERVED.values()] if error_code is not ErrorCode.invalid_request else []
    return ApiVersionsResponse(
        error_code=error_code,
        api_keys=tuple(
            ApiVersion(api_key=i16(key), min_version=i16(oldest), max_version=i16(newest))
            for key, oldest, newest in served
        ),
        throttle_time=NO_THROTTLE,
    )


def _proper(name: str) -> bool:
    """Whether a client's name or version begins and ends with a letter or digit and holds nothing odd."""
    return bool(name) and name[0].isalnum() and name[-1].isalnum() and _NAME_CHARACTERS.issuperset(name)
