"""AlterConfigs, v0 to v2: replaces all settings of a resource; what is not named takes its default again.

Deprecated since Kafka 2.3 for exactly that reason, and still used by old tools. The versions differ in
encoding only. Each resource succeeds or fails as a whole. Left out: what `describe_configs` leaves out.
"""

from typing import TYPE_CHECKING

from kio.schema.alter_configs.v2.request import AlterConfigsRequest, AlterConfigsResource
from kio.schema.alter_configs.v2.response import AlterConfigsResourceResponse, AlterConfigsResponse

from headwater.broker.services.configs import Resource, ResourceChange, alter
from headwater.config import AlterOperation
from headwater.protocol.kafka_types import NO_THROTTLE, ErrorCode

if TYPE_CHECKING:
    from headwater.broker.dispatch import RequestContext


async def handle(context: "RequestContext", request: AlterConfigsRequest) -> AlterConfigsResponse:
    """One answer for each resource."""
    wanted = [_change(resource) for resource in request.resources]
    errors = await alter(context.broker, wanted, validate_only=request.validate_only)
    return AlterConfigsResponse(
        throttle_time=NO_THROTTLE,
        responses=tuple(
            AlterConfigsResourceResponse(
                error_code=ErrorCode.none if error is None else error.code,
                error_message=None if error is None else error.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, error in zip(request.resources, errors, strict=True)
        ),
    )


def _change(resource: AlterConfigsResource) -> ResourceChange:
    return ResourceChange(
        resource=Resource(resource.resource_type, resource.resource_name),
        changes=[(config.name, AlterOperation.SET, config.value) for config in resource.configs],
        replace=True,
    )
