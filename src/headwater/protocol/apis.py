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


PRODUCE: Final = Api(0, "produce", 3, 13, flexible=9, advertised_min_version=0)
FETCH: Final = Api(1, "fetch", 4, 18, flexible=12)
LIST_OFFSETS: Final = Api(2, "list_offsets", 1, 10, flexible=6)
METADATA: Final = Api(3, "metadata", 0, 13, flexible=9)
FIND_COORDINATOR: Final = Api(10, "find_coordinator", 0, 6, flexible=3)
API_VERSIONS: Final = Api(18, "api_versions", 0, 4, flexible=3)
CREATE_TOPICS: Final = Api(19, "create_topics", 2, 7, flexible=5)
DELETE_TOPICS: Final = Api(20, "delete_topics", 1, 6, flexible=4)
DELETE_RECORDS: Final = Api(21, "delete_records", 0, 2, flexible=2)
INIT_PRODUCER_ID: Final = Api(22, "init_producer_id", 0, 5, flexible=2)
OFFSET_FOR_LEADER_EPOCH: Final = Api(23, "offset_for_leader_epoch", 2, 4, flexible=4)
DESCRIBE_CONFIGS: Final = Api(32, "describe_configs", 1, 4, flexible=4)
ALTER_CONFIGS: Final = Api(33, "alter_configs", 0, 2, flexible=2)
DESCRIBE_LOG_DIRS: Final = Api(35, "describe_log_dirs", 1, 4, flexible=2)
CREATE_PARTITIONS: Final = Api(37, "create_partitions", 0, 3, flexible=2)
INCREMENTAL_ALTER_CONFIGS: Final = Api(44, "incremental_alter_configs", 0, 1, flexible=1)
DESCRIBE_CLUSTER: Final = Api(60, "describe_cluster", 0, 2, flexible=0)
DESCRIBE_PRODUCERS: Final = Api(61, "describe_producers", 0, 0, flexible=0)
DESCRIBE_TOPIC_PARTITIONS: Final = Api(75, "describe_topic_partitions", 0, 0, flexible=0)

SERVED: Final[dict[int, Api]] = {
    api.key: api
    for api in (
        PRODUCE,
        FETCH,
        LIST_OFFSETS,
        METADATA,
        FIND_COORDINATOR,
        API_VERSIONS,
        CREATE_TOPICS,
        DELETE_TOPICS,
        DELETE_RECORDS,
        INIT_PRODUCER_ID,
        OFFSET_FOR_LEADER_EPOCH,
        DESCRIBE_CONFIGS,
        ALTER_CONFIGS,
        DESCRIBE_LOG_DIRS,
        CREATE_PARTITIONS,
        INCREMENTAL_ALTER_CONFIGS,
        DESCRIBE_CLUSTER,
        DESCRIBE_PRODUCERS,
        DESCRIBE_TOPIC_PARTITIONS,
    )
}
