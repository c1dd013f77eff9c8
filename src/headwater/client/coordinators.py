"""Which broker coordinates a group or a transactional id.

Asks for one key at a time, in the newest version that does: every broker serves it, however old or new.
"""

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from headwater.client.addresses import Address
from headwater.client.errors import RefusedError
from headwater.protocol.kafka_types import ErrorCode, i8

from kio.schema.find_coordinator.v3.request import FindCoordinatorRequest  # isort: skip
from kio.schema.find_coordinator.v3.response import FindCoordinatorResponse  # isort: skip

if TYPE_CHECKING:
    from headwater.client.client import Client


class Coordinated(IntEnum):
    """What has a coordinator, by the protocol's numbers."""

    GROUP = 0
    TRANSACTION = 1


class Coordinator(NamedTuple):
    """A broker that coordinates."""

    broker: int
    address: Address


_SUBJECTS = {Coordinated.GROUP: "group", Coordinated.TRANSACTION: "transactional id"}


async def find_coordinator(client: "Client", kind: Coordinated, key: str) -> Coordinator:
    """The coordinator of the group or transactional id `key`, whether there is such a one or not."""
    answer = await client.send(FindCoordinatorRequest(key=key, key_type=i8(kind)), FindCoordinatorResponse)
    if answer.error_code is not ErrorCode.none:
        raise RefusedError(f"{_SUBJECTS[kind]} {key}", answer.error_code, answer.error_message)
    return Coordinator(int(answer.node_id), Address(answer.host, int(answer.port)))


async def broker_ids(client: "Client") -> list[int]:
    """Every broker of the cluster: each lists only what it coordinates itself."""
    return sorted(int(broker.node_id) for broker in (await client.metadata(())).brokers)
