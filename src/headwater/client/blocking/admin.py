"""The blocking Admin. Written by `scripts/blocking_admin.py` from `client/admin/admin.py`: change that one instead."""

from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from headwater.client.admin.cluster import (
    Cluster,
    Features,
    ServedApi,
)
from headwater.client.admin.configs import Config, ConfigChange, ConfigResource
from headwater.client.admin.group_descriptions import Group
from headwater.client.admin.group_offsets import (
    CommittedOffset,
)
from headwater.client.admin.groups import ListedGroup, MemberName
from headwater.client.admin.log_dirs import LogDir
from headwater.client.admin.producers import (
    ActiveProducer,
)
from headwater.client.admin.records import FoundOffset, Isolation, Spot
from headwater.client.admin.results import Results
from headwater.client.admin.topic_descriptions import TopicDescription
from headwater.client.admin.topics import (
    CreatedTopic,
    NewPartitions,
    NewTopic,
)
from headwater.client.admin.transactions import (
    ListedTransaction,
    ProducerIdentity,
    Transaction,
)
from headwater.client.blocking.admin_thread import AdminThread
from headwater.types import TopicPartition


class Admin(AdminThread):
    """Topics, configs, groups, offsets, records, log dirs, producers and transactions of a cluster.

    Settings are Kafka's, with `_` for `.`: `request_timeout_ms`, `default_api_timeout_ms` (how long a call may take in
    all), `client_id`, and those about security and connections. The words that methods take and give (`NewTopic`,
    `ConfigResource`, `Spot`, …) are in `headwater.admin`.

    One rule for errors. A method for one thing, or for a list of all there is, returns its result or raises its error.
    A method for several gives `Results`, a dict with the result or the error of each; only what stops the whole call is
    raised: no broker can be reached, the broker does not serve it (`UnsupportedError`, which names the API and the
    broker), or the group or broker that the several are parts of refuses.

    >>> with Admin("localhost:9092") as admin:  # doctest: +SKIP
    ...     admin.create_topic("orders", partitions=3)
    ...     results = admin.delete_topics(["old-orders", "older-orders"])
    ...     for name, error in results.failed.items():
    ...         print(name, error)

    Requests go to the controller, leader or coordinator that must have them. What may pass is tried again: a leader
    that moves, a coordinator that loads, a connection that is lost. The last may let a change be made twice: a topic
    that "exists already" may be there because the first try made it.

    Left out, since no broker of ours serves them: reassignments, elections, quotas, SCRAM, ACLs, delegation tokens,
    share and streams groups beyond their names, the KRaft quorum, and changing features.
    """

    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        configs: Mapping[str, str] | None = None,
        assignments: Mapping[int, Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> CreatedTopic:
        """Creates a topic; what is left out the broker decides. `assignments` name the brokers of each partition.

        >>> admin.create_topic("prices", partitions=1, configs={"cleanup.policy": "compact"})
        """
        return self._io.run(
            self._client.create_topic(
                name,
                partitions=partitions,
                replication_factor=replication_factor,
                configs=configs,
                assignments=assignments,
                validate_only=validate_only,
            )
        )

    def create_topics(self, topics: Collection[NewTopic], *, validate_only: bool = False) -> Results[str, CreatedTopic]:
        """Creates topics, or with `validate_only` says whether they could be created."""
        return self._io.run(self._client.create_topics(topics, validate_only=validate_only))

    def delete_topic(self, topic: str | UUID) -> None:
        """Deletes a topic, named by name or id, with all its records."""
        return self._io.run(self._client.delete_topic(topic))

    def delete_topics(self, topics: Collection[str | UUID]) -> Results[str | UUID, None]:
        """Deletes topics, named by name or id, with all their records."""
        return self._io.run(self._client.delete_topics(topics))

    def list_topics(self, *, internal: bool = False) -> list[TopicDescription]:
        """Every topic by name; the brokers' own ones only if asked for."""
        return self._io.run(self._client.list_topics(internal=internal))

    def describe_topic(self, topic: str | UUID) -> TopicDescription:
        """A topic, named by name or id, with its partitions, leaders and replicas."""
        return self._io.run(self._client.describe_topic(topic))

    def describe_topics(self, topics: Collection[str | UUID]) -> Results[str | UUID, TopicDescription]:
        """Topics, named by name or id, with their partitions, leaders and replicas."""
        return self._io.run(self._client.describe_topics(topics))

    def add_partitions(
        self, topic: str, total: int, *, assignments: Sequence[Sequence[int]] | None = None, validate_only: bool = False
    ) -> None:
        """Raises the partitions of a topic to `total`; `assignments` name the brokers of those that are new."""
        return self._io.run(
            self._client.add_partitions(topic, total, assignments=assignments, validate_only=validate_only)
        )

    def create_partitions(
        self, topics: Mapping[str, int | NewPartitions], *, validate_only: bool = False
    ) -> Results[str, None]:
        """Raises the number of partitions of topics to these totals; it cannot be lowered."""
        return self._io.run(self._client.create_partitions(topics, validate_only=validate_only))

    def describe_config(
        self,
        resource: ConfigResource,
        *,
        names: Collection[str] | None = None,
        synonyms: bool = True,
        documentation: bool = True,
    ) -> dict[str, Config]:
        """The configs of a topic, broker or group by name: all of them, or those in `names` that it has.

        >>> (admin.describe_config(ConfigResource.topic("orders")))["retention.ms"].value
        """
        return self._io.run(
            self._client.describe_config(resource, names=names, synonyms=synonyms, documentation=documentation)
        )

    def describe_configs(
        self,
        resources: Collection[ConfigResource],
        *,
        names: Collection[str] | None = None,
        synonyms: bool = True,
        documentation: bool = True,
    ) -> Results[ConfigResource, dict[str, Config]]:
        """The configs of topics, brokers and groups."""
        return self._io.run(
            self._client.describe_configs(resources, names=names, synonyms=synonyms, documentation=documentation)
        )

    def alter_config(
        self, resource: ConfigResource, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> None:
        """Makes all of these changes to the configs of a topic, broker or group, or none; the others stay.

        >>> admin.alter_config(ConfigResource.topic("orders"), [ConfigChange.set("retention.ms", "86400000")])
        """
        return self._io.run(self._client.alter_config(resource, changes, validate_only=validate_only))

    def alter_configs(
        self, changes: Mapping[ConfigResource, Sequence[ConfigChange]], *, validate_only: bool = False
    ) -> Results[ConfigResource, None]:
        """For each of several topics, brokers and groups makes all its changes, or none."""
        return self._io.run(self._client.alter_configs(changes, validate_only=validate_only))

    def list_groups(self, *, states: Collection[str] = (), types: Collection[str] = ()) -> list[ListedGroup]:
        """The groups by name; only those in one of `states` (`Stable`, …) and of one of `types` (`consumer`, …)."""
        return self._io.run(self._client.list_groups(states=states, types=types))

    def describe_group(self, group_id: str) -> Group:
        """A group of either protocol with its members and what each of them reads."""
        return self._io.run(self._client.describe_group(group_id))

    def describe_groups(self, group_ids: Collection[str]) -> Results[str, Group]:
        """Groups of either protocol with their members and what each of them reads."""
        return self._io.run(self._client.describe_groups(group_ids))

    def delete_group(self, group_id: str) -> None:
        """Deletes a group without members, with all that it has committed."""
        return self._io.run(self._client.delete_group(group_id))

    def delete_groups(self, group_ids: Collection[str]) -> Results[str, None]:
        """Deletes groups without members, with all that they have committed."""
        return self._io.run(self._client.delete_groups(group_ids))

    def remove_member(self, group_id: str, member: MemberName, *, reason: str | None = None) -> None:
        """Takes a member out of a group: by its id, or a static one by its instance id.

        >>> admin.remove_member("billing", MemberName(instance_id="billing-1"))
        """
        return self._io.run(self._client.remove_member(group_id, member, reason=reason))

    def remove_members(
        self, group_id: str, members: Collection[MemberName] | None = None, *, reason: str | None = None
    ) -> Results[MemberName, None]:
        """Takes members out of a group, all that it has by default; their partitions go to the others at once."""
        return self._io.run(self._client.remove_members(group_id, members, reason=reason))

    def list_group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None, *, require_stable: bool = False
    ) -> dict[TopicPartition, CommittedOffset]:
        """What a group has committed, in all partitions or in these; one without a committed offset is left out.

        With `require_stable`, offsets that an open transaction is about to change are waited for.
        """
        return self._io.run(self._client.list_group_offsets(group_id, partitions, require_stable=require_stable))

    def list_groups_offsets(
        self, groups: Collection[str] | Mapping[str, Collection[TopicPartition] | None], *, require_stable: bool = False
    ) -> Results[str, dict[TopicPartition, CommittedOffset]]:
        """What each group has committed, in all partitions or in those that the mapping names for it."""
        return self._io.run(self._client.list_groups_offsets(groups, require_stable=require_stable))

    def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int | CommittedOffset]
    ) -> Results[TopicPartition, None]:
        """Commits offsets in a group's name, which a broker takes only while the group has no members.

        >>> (admin.alter_group_offsets("billing", {TopicPartition("orders", 0): 42})).or_raise()
        """
        return self._io.run(self._client.alter_group_offsets(group_id, offsets))

    def delete_group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> Results[TopicPartition, None]:
        """Forgets what a group has committed for partitions of topics that none of its members reads."""
        return self._io.run(self._client.delete_group_offsets(group_id, partitions))

    def list_offsets(
        self,
        partitions: Collection[TopicPartition],
        when: Spot | int = Spot.LATEST,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> Results[TopicPartition, FoundOffset]:
        """For each partition the offset at a `Spot`, or of the first record at or after a time in ms (-1: none).

        >>> (admin.list_offsets([TopicPartition("orders", 0)], Spot.EARLIEST)).or_raise()
        """
        return self._io.run(self._client.list_offsets(partitions, when, isolation=isolation))

    def delete_records(self, before: Mapping[TopicPartition, int]) -> Results[TopicPartition, int]:
        """Deletes all records before these offsets (-1: all that there are) and gives the new starts of the logs."""
        return self._io.run(self._client.delete_records(before))

    def describe_log_dirs(
        self, brokers: Collection[int] | None = None, *, partitions: Collection[TopicPartition] | None = None
    ) -> Results[int, tuple[LogDir, ...]]:
        """The log dirs of brokers (all by default), with these partitions in them, or with every one."""
        return self._io.run(self._client.describe_log_dirs(brokers, partitions=partitions))

    def alter_replica_log_dirs(
        self, broker: int, log_dir: str, partitions: Collection[TopicPartition]
    ) -> Results[TopicPartition, None]:
        """Lets a broker begin to move its replicas to one of its log dirs; `describe_log_dirs` shows how far it is."""
        return self._io.run(self._client.alter_replica_log_dirs(broker, log_dir, partitions))

    def describe_cluster(self, *, include_fenced_brokers: bool = False) -> Cluster:
        """Cluster id, controller and brokers with their racks."""
        return self._io.run(self._client.describe_cluster(include_fenced_brokers=include_fenced_brokers))

    def describe_features(self, broker: int | None = None) -> Features:
        """The features that the cluster goes by, and those that the broker supports (any, unless one is named)."""
        return self._io.run(self._client.describe_features(broker))

    def describe_apis(self, broker: int | None = None) -> list[ServedApi]:
        """The APIs that a broker serves, with their versions; any broker, unless one is named."""
        return self._io.run(self._client.describe_apis(broker))

    def describe_producers(
        self, partitions: Collection[TopicPartition]
    ) -> Results[TopicPartition, tuple[ActiveProducer, ...]]:
        """The producers that partitions remember, and where the open transaction of each starts."""
        return self._io.run(self._client.describe_producers(partitions))

    def list_transactions(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        longer_than_ms: int | None = None,
        id_pattern: str | None = None,
    ) -> list[ListedTransaction]:
        """The transactional ids that pass every filter, by name; `id_pattern` is a regular expression."""
        return self._io.run(
            self._client.list_transactions(
                states=states, producer_ids=producer_ids, longer_than_ms=longer_than_ms, id_pattern=id_pattern
            )
        )

    def describe_transaction(self, transactional_id: str) -> Transaction:
        """A transactional id: its producer, its state, and the partitions of an open transaction."""
        return self._io.run(self._client.describe_transaction(transactional_id))

    def describe_transactions(self, transactional_ids: Collection[str]) -> Results[str, Transaction]:
        """Transactional ids: their producers, their states, and the partitions of open transactions."""
        return self._io.run(self._client.describe_transactions(transactional_ids))

    def find_hanging_transactions(
        self, partitions: Collection[TopicPartition], *, longer_than_ms: int
    ) -> list[ActiveProducer]:
        """Producers whose transaction in one of `partitions` is open for longer, and which nobody is going to end."""
        return self._io.run(self._client.find_hanging_transactions(partitions, longer_than_ms=longer_than_ms))

    def abort_transaction(
        self, partition: TopicPartition, *, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> None:
        """Ends a hanging transaction in one partition, past its coordinator; `describe_producers` has the numbers."""
        return self._io.run(
            self._client.abort_transaction(
                partition, producer_id=producer_id, producer_epoch=producer_epoch, coordinator_epoch=coordinator_epoch
            )
        )

    def fence_producer(self, transactional_id: str) -> ProducerIdentity:
        """Takes a transactional id over: what its producer has open is aborted, and it can write no more."""
        return self._io.run(self._client.fence_producer(transactional_id))

    def fence_producers(self, transactional_ids: Collection[str]) -> Results[str, ProducerIdentity]:
        """Takes transactional ids over: what their producers have open is aborted, and they can write no more."""
        return self._io.run(self._client.fence_producers(transactional_ids))
