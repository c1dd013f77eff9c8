"""DescribeConfigs, v1 to v4: the settings of topics and brokers, with their sources.

`config_keys` null or empty asks for all; unknown keys are left out of the answer. v1 can ask for synonyms
(every value in play, the one that counts first), v3 for documentation and types. Secrets come without their
value. The broker resource without a name holds what was set at run time for all brokers.
Left out: loggers, client metrics and groups, which are refused with INVALID_REQUEST and a reason. An
unknown kind of resource fails alone (Apache then fails the whole request). A resource that is named several times is
described once, with all the keys asked for (Apache does so each time): a short request must not ask for a long answer
as often as it likes.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

from headwater.broker.services.configs import Resource, describe, same_for
from headwater.broker.services.turns import Work
from headwater.config import ConfigEntry
from headwater.protocol.each import each
from headwater.protocol.errors import ApiError
from headwater.protocol.kafka_types import NO_THROTTLE, ErrorCode, i8

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.broker.dispatch import RequestContext


_Asked = tuple[DescribeConfigsResource, set[str] | None]
"""A resource, and the names of the settings that are asked for; None stands for all."""


def handle(context: "RequestContext", request: DescribeConfigsRequest) -> Work[DescribeConfigsResponse]:
    """One result for each resource asked for."""
    asked: dict[Resource, _Asked] = {}
    for wanted in request.resources:
        resource = same_for(Resource(wanted.resource_type, wanted.resource_name))
        first, keys = asked.get(resource, (wanted, set()))
        if keys is None or not wanted.configuration_keys:
            keys = None
        else:
            keys.update(wanted.configuration_keys)
        asked[resource] = first, keys
        yield None
    return DescribeConfigsResponse(
        throttle_time=NO_THROTTLE,
        results=each(lambda one: _result(context.broker, *one, request), asked.values()),
    )


def _result(
    broker: "Broker", wanted: DescribeConfigsResource, keys: Collection[str] | None, request: DescribeConfigsRequest
) -> DescribeConfigsResult:
    resource = Resource(wanted.resource_type, wanted.resource_name)
    configs: tuple[DescribeConfigsResourceResult, ...] = ()
    error_code, message = ErrorCode.none, ""
    try:
        entries = describe(broker, resource, keys)
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
