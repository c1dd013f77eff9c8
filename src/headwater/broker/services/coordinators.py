"""The two coordinators of a broker: of groups over `__consumer_offsets`, of transactions over `__transaction_state`.

Their topics are made when somebody first asks for the coordinator, with Kafka's settings. One broker can keep one
replica, so the replication factors of the settings are not reached; nothing waits for replicas.

The shards' modules are imported with the first shard: a broker without groups starts without them.
"""

from typing import TYPE_CHECKING, Final
from uuid import uuid4

from headwater.broker.services.coordination import Coordinator
from headwater.broker.services.partition import Partition

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.coordinator.group.shard import GroupShard
    from headwater.coordinator.transaction.shard import TransactionShard

GROUPS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"


def group_coordinator(broker: "Broker") -> "Coordinator[GroupShard]":
    """The coordinator of groups and their offsets."""

    def make_shard(partition: Partition | None) -> "GroupShard":
        from headwater.coordinator.group.shard import GroupShard

        return GroupShard(config=lambda: broker.config, topics=broker.topic_directory, new_id=lambda: str(uuid4()))

    return Coordinator(
        broker,
        GROUPS_TOPIC,
        partitions=broker.config.offsets_topic_num_partitions,
        overrides={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(broker.config.offsets_topic_segment_bytes),
        },
        make_shard=make_shard,
    )


def transaction_coordinator(broker: "Broker") -> "Coordinator[TransactionShard]":
    """The coordinator of transactions."""

    def make_shard(partition: Partition | None) -> "TransactionShard":
        from headwater.coordinator.transaction.shard import TransactionShard

        return TransactionShard(
            config=lambda: broker.config,
            take_producer_id=broker.producer_ids.take,
            coordinator_epoch=lambda: 0 if partition is None else partition.leader_epoch,
        )

    return Coordinator(
        broker,
        TRANSACTIONS_TOPIC,
        partitions=broker.config.transaction_state_log_num_partitions,
        overrides={
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": "1",
            "segment.bytes": str(broker.config.transaction_state_log_segment_bytes),
            "unclean.leader.election.enable": "false",
        },
        make_shard=make_shard,
    )
