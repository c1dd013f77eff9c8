"""DescribeCluster, v0 to v2: who is in the cluster.

v1 can ask for controllers instead of brokers, which a broker refuses; v2 says whether brokers are fenced
(never here).
"""

from typing import TYPE_CHECKING, Final

from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_cluster.v2.response import DescribeClusterBroker, DescribeClusterResponse

from headwater.broker.services.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED
from headwater.protocol.kafka_types import NO_THROTTLE, BrokerId, ErrorCode, i32

if TYPE_CHECKING:
    from headwater.broker.dispatch import RequestContext

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


def handle(context: "RequestContext", request: DescribeClusterRequest) -> DescribeClusterResponse:
    """This broker, or why it cannot tell."""
    if request.endpoint_type == _CONTROLLERS:
        return _refusal(
            ErrorCode.mismatched_endpoint_type,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
        )
    if request.endpoint_type != _BROKERS:
        return _refusal(ErrorCode.unsupported_endpoint_type, f"Unsupported endpoint type {int(request.endpoint_type)}")
    broker = context.broker
    member = DescribeClusterBroker(
        broker_id=BrokerId(broker.node_id),
        host=broker.host,
        port=i32(broker.port),
        rack=broker.config.broker_rack,
        is_fenced=False,
    )
    return DescribeClusterResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        cluster_id=broker.cluster_id,
        controller_id=BrokerId(broker.node_id),
        brokers=(member,),
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _refusal(error_code: ErrorCode, message: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        throttle_time=NO_THROTTLE, error_code=error_code, error_message=message, cluster_id="", brokers=()
    )
