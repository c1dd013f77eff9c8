"""AlterConfigs, v0 to v2: replaces all settings of a resource; what is not named takes its default again.

Deprecated since Kafka 2.3 for exactly that reason, and still used by old tools. The versions differ in
encoding only. Each resource succeeds or fails as a whole; one that is named twice fails.
Left out: what `describe_configs` leaves out.
"""

from typing import TYPE_CHECKING

from kio.schema.alter_configs.v2.request import AlterConfigsRequest, AlterConfigsResource
from kio.schema.alter_configs.v2.response import AlterConfigsResourceResponse, AlterConfigsResponse

from headwater.broker.services.configs import Resource, ResourceChange, alter, check_settings
from headwater.config import AlterOperation
from headwater.protocol.each import each
from headwater.protocol.errors import ApiError
from headwater.protocol.kafka_types import NO_THROTTLE, ErrorCode, i8

if TYPE_CHECKING:
    from headwater.broker.dispatch import RequestContext


async def handle(context: "RequestContext", request: AlterConfigsRequest) -> AlterConfigsResponse:
    """One answer for each resource."""
    errors = await alter(
        context.broker,
        [Resource(resource.resource_type, resource.resource_name) for resource in request.resources],
        lambda number: _change(request.resources[number]),
        pace=context.pace,
        validate_only=request.validate_only,
    )
    return AlterConfigsResponse(throttle_time=NO_THROTTLE, responses=each(_response, errors))


def _response(answer: tuple[Resource, ApiError | None]) -> AlterConfigsResourceResponse:
    resource, error = answer
    return AlterConfigsResourceResponse(
        error_code=ErrorCode.none if error is None else error.code,
        error_message=None if error is None else error.message,
        resource_type=i8(resource.type),
        resource_name=resource.name,
    )


def _change(resource: AlterConfigsResource) -> ResourceChange:
    check_settings(len(resource.configs), ErrorCode.invalid_request)
    return ResourceChange(
        resource=Resource(resource.resource_type, resource.resource_name),
        changes=[(config.name, AlterOperation.SET, config.value) for config in resource.configs],
        replace=True,
    )
