"""How large the requests of each API may be: only Produce needs `socket.request.max.bytes`.

A request of any other API becomes objects that take many times its bytes, so a broker that accepted 100 MiB of each
could be filled by a few of them. The limits are several times what the largest clusters send; `docs/configuration.md`
has them for users.
"""

import struct
from types import MappingProxyType
from typing import Final

from headwater.net.connection import ProtocolViolationError
from headwater.protocol import apis
from headwater.protocol.apis import SERVED, Api

_KEY: Final = struct.Struct(">h")
_MIB: Final = 1024 * 1024

ONE_THING: Final = 128 * 1024
"""Requests about one client, group or transaction: a client id and another name of 32 KiB each, and room to spare."""
NAMES: Final = 2 * _MIB
"""Lists of groups or transactions: 50,000 of them by names of 40 bytes. And Fetch, which names the partitions of one
consumer: 25,000 of a topic each."""
PARTITIONS: Final = 8 * _MIB
"""Lists of topics and partitions with what is wanted of them: 100,000 topics by names of 40 bytes, or 200,000
partitions. What members of a group tell each other is of this kind, and has to fit into one record of
`__consumer_offsets` besides."""
ANYTHING: Final = 2**31 - 1
"""Record batches: `socket.request.max.bytes` alone limits them."""

FRAME_LIMITS: Final = MappingProxyType(
    {
        apis.PRODUCE: ANYTHING,
        apis.FETCH: NAMES,
        apis.LIST_OFFSETS: PARTITIONS,
        apis.METADATA: PARTITIONS,
        apis.OFFSET_COMMIT: PARTITIONS,
        apis.OFFSET_FETCH: PARTITIONS,
        apis.FIND_COORDINATOR: NAMES,
        apis.JOIN_GROUP: PARTITIONS,
        apis.HEARTBEAT: ONE_THING,
        apis.LEAVE_GROUP: NAMES,
        apis.SYNC_GROUP: PARTITIONS,
        apis.DESCRIBE_GROUPS: NAMES,
        apis.LIST_GROUPS: ONE_THING,
        apis.API_VERSIONS: ONE_THING,
        apis.CREATE_TOPICS: PARTITIONS,
        apis.DELETE_TOPICS: PARTITIONS,
        apis.DELETE_RECORDS: PARTITIONS,
        apis.INIT_PRODUCER_ID: ONE_THING,
        apis.OFFSET_FOR_LEADER_EPOCH: PARTITIONS,
        apis.ADD_PARTITIONS_TO_TXN: PARTITIONS,
        apis.ADD_OFFSETS_TO_TXN: ONE_THING,
        apis.END_TXN: ONE_THING,
        apis.WRITE_TXN_MARKERS: PARTITIONS,
        apis.TXN_OFFSET_COMMIT: PARTITIONS,
        apis.DESCRIBE_CONFIGS: PARTITIONS,
        apis.ALTER_CONFIGS: PARTITIONS,
        apis.ALTER_REPLICA_LOG_DIRS: PARTITIONS,
        apis.DESCRIBE_LOG_DIRS: PARTITIONS,
        apis.CREATE_PARTITIONS: PARTITIONS,
        apis.DELETE_GROUPS: NAMES,
        apis.INCREMENTAL_ALTER_CONFIGS: PARTITIONS,
        apis.OFFSET_DELETE: PARTITIONS,
        apis.DESCRIBE_CLUSTER: ONE_THING,
        apis.DESCRIBE_PRODUCERS: PARTITIONS,
        apis.DESCRIBE_TRANSACTIONS: NAMES,
        apis.LIST_TRANSACTIONS: NAMES,
        apis.CONSUMER_GROUP_HEARTBEAT: PARTITIONS,
        apis.CONSUMER_GROUP_DESCRIBE: NAMES,
        apis.DESCRIBE_TOPIC_PARTITIONS: PARTITIONS,
    }
)
"""The limit in bytes of each API that is served."""

UNCHECKED: Final = min(FRAME_LIMITS.values())
"""A frame of up to so many bytes need not be asked about."""

_BY_KEY: Final[dict[int, tuple[Api, int]]] = {key: (api, FRAME_LIMITS[api]) for key, api in SERVED.items()}


def check_frame(size: int, start: memoryview) -> None:
    """Raises ProtocolViolationError when a frame of `size` bytes is too large for its API; `start` is what came of it.

    The first two bytes tell. Until they are there the frame is neither refused nor given much memory.
    """
    if len(start) < _KEY.size:
        return
    (key,) = _KEY.unpack_from(start)
    known = _BY_KEY.get(key)
    if known is None:
        raise ProtocolViolationError(f"a frame of {size} bytes for api key {key}, which is not served")
    api, limit = known
    if size > limit:
        raise ProtocolViolationError(f"a frame of {size} bytes; {api.name} takes at most {limit}")
