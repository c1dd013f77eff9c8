"""The table of served APIs: what is not in it is neither advertised nor answered.

`flexible` is the first version with compact fields and tagged fields, where request headers have version 2.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Api:
    """One API and the versions of it that the broker serves."""

    key: int
    name: str
    min_version: int
    max_version: int
    flexible: int
    advertised_min_version: int = -1
    """Differs from `min_version` for Produce alone: librdkafka before 2.10 takes a broker that does not list
    Produce v0 for one without message format 2, so Apache lists it too and both refuse it when it comes."""

    @property
    def advertised(self) -> tuple[int, int, int]:
        """Key, oldest and newest version as ApiVersions lists them."""
        oldest = self.min_version if self.advertised_min_version < 0 else self.advertised_min_version
        return self.key, oldest, self.max_version

    def header_version(self, version: int) -> int:
        """The version of the request header that goes with `version` of this API."""
        return 2 if version >= self.flexible else 1


NEVER: Final = 99
"""Stands for the first flexible version of an API that has none."""

PRODUCE: Final = Api(0, "produce", 3, 13, flexible=9, advertised_min_version=0)
FETCH: Final = Api(1, "fetch", 4, 18, flexible=12)
LIST_OFFSETS: Final = Api(2, "list_offsets", 1, 10, flexible=6)
METADATA: Final = Api(3, "metadata", 0, 13, flexible=9)
OFFSET_COMMIT: Final = Api(8, "offset_commit", 2, 9, flexible=8)
OFFSET_FETCH: Final = Api(9, "offset_fetch", 1, 9, flexible=6)
FIND_COORDINATOR: Final = Api(10, "find_coordinator", 0, 6, flexible=3)
JOIN_GROUP: Final = Api(11, "join_group", 0, 9, flexible=6)
HEARTBEAT: Final = Api(12, "heartbeat", 0, 4, flexible=4)
LEAVE_GROUP: Final = Api(13, "leave_group", 0, 5, flexible=4)
SYNC_GROUP: Final = Api(14, "sync_group", 0, 5, flexible=4)
DESCRIBE_GROUPS: Final = Api(15, "describe_groups", 0, 6, flexible=5)
LIST_GROUPS: Final = Api(16, "list_groups", 0, 5, flexible=3)
API_VERSIONS: Final = Api(18, "api_versions", 0, 4, flexible=3)
CREATE_TOPICS: Final = Api(19, "create_topics", 2, 7, flexible=5)
DELETE_TOPICS: Final = Api(20, "delete_topics", 1, 6, flexible=4)
DELETE_RECORDS: Final = Api(21, "delete_records", 0, 2, flexible=2)
INIT_PRODUCER_ID: Final = Api(22, "init_producer_id", 0, 5, flexible=2)
OFFSET_FOR_LEADER_EPOCH: Final = Api(23, "offset_for_leader_epoch", 2, 4, flexible=4)
ADD_PARTITIONS_TO_TXN: Final = Api(24, "add_partitions_to_txn", 0, 5, flexible=3)
ADD_OFFSETS_TO_TXN: Final = Api(25, "add_offsets_to_txn", 0, 4, flexible=3)
END_TXN: Final = Api(26, "end_txn", 0, 5, flexible=3)
WRITE_TXN_MARKERS: Final = Api(27, "write_txn_markers", 1, 1, flexible=1)
TXN_OFFSET_COMMIT: Final = Api(28, "txn_offset_commit", 0, 5, flexible=3)
DESCRIBE_CONFIGS: Final = Api(32, "describe_configs", 1, 4, flexible=4)
ALTER_CONFIGS: Final = Api(33, "alter_configs", 0, 2, flexible=2)
ALTER_REPLICA_LOG_DIRS: Final = Api(34, "alter_replica_log_dirs", 1, 2, flexible=2)
DESCRIBE_LOG_DIRS: Final = Api(35, "describe_log_dirs", 1, 4, flexible=2)
CREATE_PARTITIONS: Final = Api(37, "create_partitions", 0, 3, flexible=2)
DELETE_GROUPS: Final = Api(42, "delete_groups", 0, 2, flexible=2)
INCREMENTAL_ALTER_CONFIGS: Final = Api(44, "incremental_alter_configs", 0, 1, flexible=1)
OFFSET_DELETE: Final = Api(47, "offset_delete", 0, 0, flexible=NEVER)
DESCRIBE_CLUSTER: Final = Api(60, "describe_cluster", 0, 2, flexible=0)
DESCRIBE_PRODUCERS: Final = Api(61, "describe_producers", 0, 0, flexible=0)
DESCRIBE_TRANSACTIONS: Final = Api(65, "describe_transactions", 0, 0, flexible=0)
LIST_TRANSACTIONS: Final = Api(66, "list_transactions", 0, 2, flexible=0)
CONSUMER_GROUP_HEARTBEAT: Final = Api(68, "consumer_group_heartbeat", 0, 1, flexible=0)
CONSUMER_GROUP_DESCRIBE: Final = Api(69, "consumer_group_describe", 0, 1, flexible=0)
DESCRIBE_TOPIC_PARTITIONS: Final = Api(75, "describe_topic_partitions", 0, 0, flexible=0)

SERVED: Final[dict[int, Api]] = {
    api.key: api
    for api in (
        PRODUCE,
        FETCH,
        LIST_OFFSETS,
        METADATA,
        OFFSET_COMMIT,
        OFFSET_FETCH,
        FIND_COORDINATOR,
        JOIN_GROUP,
        HEARTBEAT,
        LEAVE_GROUP,
        SYNC_GROUP,
        DESCRIBE_GROUPS,
        LIST_GROUPS,
        API_VERSIONS,
        CREATE_TOPICS,
        DELETE_TOPICS,
        DELETE_RECORDS,
        INIT_PRODUCER_ID,
        OFFSET_FOR_LEADER_EPOCH,
        ADD_PARTITIONS_TO_TXN,
        ADD_OFFSETS_TO_TXN,
        END_TXN,
        WRITE_TXN_MARKERS,
        TXN_OFFSET_COMMIT,
        DESCRIBE_CONFIGS,
        ALTER_CONFIGS,
        ALTER_REPLICA_LOG_DIRS,
        DESCRIBE_LOG_DIRS,
        CREATE_PARTITIONS,
        DELETE_GROUPS,
        INCREMENTAL_ALTER_CONFIGS,
        OFFSET_DELETE,
        DESCRIBE_CLUSTER,
        DESCRIBE_PRODUCERS,
        DESCRIBE_TRANSACTIONS,
        LIST_TRANSACTIONS,
        CONSUMER_GROUP_HEARTBEAT,
        CONSUMER_GROUP_DESCRIBE,
        DESCRIBE_TOPIC_PARTITIONS,
    )
}
