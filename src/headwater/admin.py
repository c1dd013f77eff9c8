"""The words of `headwater.Admin` and `headwater.aio.Admin`: what their methods take and give.

>>> from headwater.admin import ConfigChange, ConfigResource, NewTopic, Spot
"""

from headwater.client.admin.cluster import Broker, Cluster, Features, ServedApi, VersionRange
from headwater.client.admin.configs import (
    AlterOperation,
    Config,
    ConfigChange,
    ConfigResource,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    ResourceType,
)
from headwater.client.admin.group_descriptions import Group, Member
from headwater.client.admin.group_offsets import CommittedOffset
from headwater.client.admin.groups import ListedGroup, MemberName
from headwater.client.admin.log_dirs import LogDir, LogDirReplica
from headwater.client.admin.producers import ActiveProducer
from headwater.client.admin.records import ALL_RECORDS, FoundOffset, Isolation, Spot
from headwater.client.admin.results import Results
from headwater.client.admin.topic_descriptions import PartitionDescription, TopicDescription
from headwater.client.admin.topics import CreatedTopic, NewPartitions, NewTopic
from headwater.client.admin.transactions import ListedTransaction, ProducerIdentity, Transaction
from headwater.client.coordinators import Coordinator

__all__ = [
    "ALL_RECORDS",
    "ActiveProducer",
    "AlterOperation",
    "Broker",
    "Cluster",
    "CommittedOffset",
    "Config",
    "ConfigChange",
    "ConfigResource",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "Coordinator",
    "CreatedTopic",
    "Features",
    "FoundOffset",
    "Group",
    "Isolation",
    "ListedGroup",
    "ListedTransaction",
    "LogDir",
    "LogDirReplica",
    "Member",
    "MemberName",
    "NewPartitions",
    "NewTopic",
    "PartitionDescription",
    "ProducerIdentity",
    "ResourceType",
    "Results",
    "ServedApi",
    "Spot",
    "TopicDescription",
    "Transaction",
    "VersionRange",
]
