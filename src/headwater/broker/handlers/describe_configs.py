"""DescribeConfigs, v1 to v4: the settings of topics and brokers, with their sources.

`config_keys` null or empty asks for all; unknown keys are left out of the answer. v1 can ask for synonyms
(every value in play, the one that counts first), v3 for documentation and types. Secrets come without their
value. The broker resource without a name holds what was set at run time for all brokers.
Left out: loggers, client metrics and groups, which are refused with INVALID_REQUEST and a reason. An
unknown kind of resource fails alone (Apache then fails the whole request).
"""

from typing import TYPE_CHECKING

from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

from headwater.broker.services.configs import Resource, describe
from headwater.config import ConfigEntry
from headwater.protocol.errors import ApiError
from headwater.protocol.kafka_types import NO_THROTTLE, ErrorCode, i8

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.broker.dispatch import RequestContext


def handle(context: "RequestContext", request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """One result for each resource asked for."""
    return DescribeConfigsResponse(
        throttle_time=NO_THROTTLE,
        results=tuple(_result(context.broker, resource, request) for resource in request.resources),
    )


def _result(
    broker: "Broker", wanted: DescribeConfigsResource, request: DescribeConfigsRequest
) -> DescribeConfigsResult:
    resource = Resource(wanted.resource_type, wanted.resource_name)
    configs: tuple[DescribeConfigsResourceResult, ...] = ()
    error_code, message = ErrorCode.none, ""
    try:
        entries = describe(broker, resource, frozenset(wanted.configuration_keys or ()) or None)
        configs = tuple(_config(entry, request) for entry in entries)
    except ApiError as error:
        error_code, message = error.code, error.message
    return DescribeConfigsResult(
        error_code=error_code,
        error_message=message,
        resource_type=wanted.resource_type,
        resource_name=wanted.resource_name,
        configs=configs,
    )


def _config(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=i8(entry.source),
        is_sensitive=entry.sensitive,
        synonyms=tuple(
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=i8(synonym.source))
            for synonym in synonyms
        ),
        config_type=i8(entry.type),
        documentation=entry.doc if request.include_documentation else None,
    )
