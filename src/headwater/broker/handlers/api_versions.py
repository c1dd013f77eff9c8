"""ApiVersions, v0 to v4: what the broker serves. Asked in a version that it does not know, it answers in v0 (KIP-511).

From v3 on it tells the levels of the features that clients go by: `group.version` 1 (KIP-848) and `transaction.version`
2 (KIP-890). Left out: the features of a KRaft quorum.
"""

from typing import TYPE_CHECKING

from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.api_versions.v4.response import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

from headwater.protocol.apis import SERVED
from headwater.protocol.kafka_types import NO_THROTTLE, ErrorCode, i16, i64

if TYPE_CHECKING:
    from headwater.broker.dispatch import RequestContext

_FEATURES = {"group.version": 1, "transaction.version": 2}
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
        supported_features=tuple(
            SupportedFeatureKey(name=name, min_version=i16(0), max_version=i16(level))
            for name, level in _FEATURES.items()
        ),
        finalized_features_epoch=i64(0),
        finalized_features=tuple(
            FinalizedFeatureKey(name=name, max_version_level=i16(level), min_version_level=i16(level))
            for name, level in _FEATURES.items()
        ),
    )


def _proper(name: str) -> bool:
    """Whether a client's name or version begins and ends with a letter or digit and holds nothing odd."""
    return bool(name) and name[0].isalnum() and name[-1].isalnum() and _NAME_CHARACTERS.issuperset(name)
