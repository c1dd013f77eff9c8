"""The cluster itself: its brokers, the APIs they serve, and the features they go by."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from headwater.client.admin.routing import demand_success, demand_version
from headwater.client.client import Client

from kio.schema.api_versions.v4.request import ApiVersionsRequest  # isort: skip
from kio.schema.api_versions.v4.response import ApiVersionsResponse  # isort: skip
from kio.schema.describe_cluster.v2.request import DescribeClusterRequest  # isort: skip
from kio.schema.describe_cluster.v2.response import DescribeClusterResponse  # isort: skip
from kio.schema.index import api_key_map  # isort: skip

_FIRST_WITH_FENCED: Final = 2
_FIRST_WITH_FEATURES: Final = 3


class Broker(NamedTuple):
    """A broker; a fenced one runs but does not take part at the moment."""

    broker_id: int
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The cluster with its brokers by id. A cluster that hides its controller names any broker as such."""

    cluster_id: str
    controller: int | None
    brokers: tuple[Broker, ...]


class ServedApi(NamedTuple):
    """An API and the versions of it that a broker serves; one that this client does not know has no name."""

    key: int
    name: str | None
    min_version: int
    max_version: int


class VersionRange(NamedTuple):
    """From which level to which."""

    min_version: int
    max_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """Features by name: what the cluster goes by, and what the broker that was asked could do. KIP-584."""

    finalized: Mapping[str, VersionRange]
    supported: Mapping[str, VersionRange]
    finalized_epoch: int | None


async def describe_cluster(client: Client, *, include_fenced_brokers: bool = False) -> Cluster:
    """Cluster id, controller and brokers with their racks."""
    request = DescribeClusterRequest(
        include_cluster_authorized_operations=False, include_fenced_brokers=include_fenced_brokers
    )

    async def ask() -> DescribeClusterResponse:
        if include_fenced_brokers:
            await demand_version(client, request, _FIRST_WITH_FENCED, "list fenced brokers")
        answer = await client.send(request, DescribeClusterResponse)
        demand_success("cluster", answer.error_code, answer.error_message)
        return answer

    found = await client.retry(ask)
    return Cluster(
        cluster_id=found.cluster_id,
        controller=int(found.controller_id) if found.controller_id >= 0 else None,
        brokers=tuple(
            sorted(
                Broker(int(broker.broker_id), broker.host, int(broker.port), broker.rack, broker.is_fenced)
                for broker in found.brokers
            )
        ),
    )


async def describe_apis(client: Client, broker: int | None = None) -> list[ServedApi]:
    """What a broker serves, by key; any broker unless one is named."""
    answer = await _api_versions(client, broker)
    found = ((int(api.api_key), int(api.min_version), int(api.max_version)) for api in answer.api_keys)
    return sorted(ServedApi(key, _api_name(api_key_map.get(key)), oldest, newest) for key, oldest, newest in found)


async def describe_features(client: Client, broker: int | None = None) -> Features:
    """The features of the cluster; those supported are the broker's that is asked, any unless one is named."""
    answer = await _api_versions(client, broker, oldest=_FIRST_WITH_FEATURES)
    epoch = int(answer.finalized_features_epoch)
    return Features(
        finalized={
            feature.name: VersionRange(int(feature.min_version_level), int(feature.max_version_level))
            for feature in answer.finalized_features
        },
        supported={
            feature.name: VersionRange(int(feature.min_version), int(feature.max_version))
            for feature in answer.supported_features
        },
        finalized_epoch=epoch if epoch >= 0 else None,
    )


async def _api_versions(client: Client, broker: int | None, *, oldest: int = 0) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name="headwater", client_software_version="1")

    async def ask() -> ApiVersionsResponse:
        await demand_version(client, request, oldest, "tell its features", at=broker)
        answer = await client.send(request, ApiVersionsResponse, to=broker)
        demand_success("the broker" if broker is None else f"broker {broker}", answer.error_code)
        return answer

    return await client.retry(ask)


def _api_name(name: str | None) -> str | None:
    """`list_offsets` as Kafka spells it: `ListOffsets`."""
    return name and "".join(word.capitalize() for word in name.split("_"))
