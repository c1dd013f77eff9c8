"""IncrementalAlterConfigs, v0 and v1: sets, deletes, appends to and subtracts from settings.

APPEND and SUBTRACT are for lists; they start from the value in force, and what is there already, or is not,
is no error. Deleting what is not set is none either. The versions differ in encoding only. Each resource
succeeds or fails as a whole. Unlike Apache, which takes any name for a broker, unknown names are refused.
Left out: what `describe_configs` leaves out.
"""

from typing import TYPE_CHECKING

from kio.schema.incremental_alter_configs.v1.request import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.incremental_alter_configs.v1.response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

from headwater.broker.services.configs import Resource, ResourceChange, alter, check_settings
from headwater.protocol.each import each
from headwater.protocol.errors import ApiError
from headwater.protocol.kafka_types import NO_THROTTLE, ErrorCode, i8

if TYPE_CHECKING:
    from headwater.broker.dispatch import RequestContext


async def handle(context: "RequestContext", request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    """One answer for each resource."""
    errors = await alter(
        context.broker,
        [Resource(resource.resource_type, resource.resource_name) for resource in request.resources],
        lambda number: _change(request.resources[number]),
        pace=context.pace,
        validate_only=request.validate_only,
    )
    return IncrementalAlterConfigsResponse(throttle_time=NO_THROTTLE, responses=each(_response, errors))


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
        changes=[(config.name, config.config_operation, config.value) for config in resource.configs],
        replace=False,
    )
