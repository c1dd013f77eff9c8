"""Admin: all that can be asked of a cluster, under one roof. A method is a line: the subject's module does the work."""

from collections.abc import Collection, Mapping, Sequence
from typing import Self
from uuid import UUID

from headwater.client.admin.cluster import (
    Cluster,
    Features,
    ServedApi,
    describe_apis,
    describe_cluster,
    describe_features,
)
from headwater.client.admin.configs import Config, ConfigChange, ConfigResource, alter_configs, describe_configs
from headwater.client.admin.group_descriptions import Group, describe_groups
from headwater.client.admin.group_offsets import (
    CommittedOffset,
    alter_group_offsets,
    delete_group_offsets,
    list_groups_offsets,
)
from headwater.client.admin.groups import ListedGroup, MemberName, delete_groups, list_groups, remove_members
from headwater.client.admin.log_dirs import LogDir, alter_replica_log_dirs, describe_log_dirs
from headwater.client.admin.producers import (
    ActiveProducer,
    abort_transaction,
    describe_producers,
    find_hanging_transactions,
)
from headwater.client.admin.records import FoundOffset, Isolation, Spot, delete_records, list_offsets
from headwater.client.admin.results import Results
from headwater.client.admin.topic_descriptions import TopicDescription, describe_topics, list_topics
from headwater.client.admin.topics import (
    CreatedTopic,
    NewPartitions,
    NewTopic,
    create_partitions,
    create_topics,
    delete_topics,
)
from headwater.client.admin.transactions import (
    ListedTransaction,
    ProducerIdentity,
    Transaction,
    describe_transactions,
    fence_producers,
    list_transactions,
)
from headwater.client.client import Client
from headwater.client.configured import connection_settings
from headwater.client.statistics import ClientStatistics
from headwater.config.client import ADMIN, resolve
from headwater.config.errors import ConfigError
from headwater.types import TopicPartition


class Admin:
    """Topics, configs, groups, offsets, records, log dirs, producers and transactions of a cluster.

    Settings are Kafka's, with `_` for `.`: `request_timeout_ms`, `default_api_timeout_ms` (how long a call may take in
    all), `client_id`, and those about security and connections. The words that methods take and give (`NewTopic`,
    `ConfigResource`, `Spot`, …) are in `headwater.admin`.

    One rule for errors. A method for one thing, or for a list of all there is, returns its result or raises its error.
    A method for several gives `Results`, a dict with the result or the error of each; only what stops the whole call is
    raised: no broker can be reached, the broker does not serve it (`UnsupportedError`, which names the API and the
    broker), or the group or broker that the several are parts of refuses.

    >>> async with Admin("localhost:9092") as admin:  # doctest: +SKIP
    ...     await admin.create_topic("orders", partitions=3)
    ...     results = await admin.delete_topics(["old-orders", "older-orders"])
    ...     for name, error in results.failed.items():
    ...         print(name, error)

    Requests go to the controller, leader or coordinator that must have them. What may pass is tried again: a leader
    that moves, a coordinator that loads, a connection that is lost. The last may let a change be made twice: a topic
    that "exists already" may be there because the first try made it.

    Left out, since no broker of ours serves them: reassignments, elections, quotas, SCRAM, ACLs, delegation tokens,
    share and streams groups beyond their names, the KRaft quorum, and changing features.
    """

    def __init__(self, bootstrap: str | None = None, **settings: object) -> None:
        if bootstrap is not None:
            settings["bootstrap_servers"] = bootstrap
        values = resolve(ADMIN, settings)
        addresses = ",".join(values["bootstrap_servers"])
        if not addresses:
            raise ConfigError('bootstrap.servers is not set: name a broker, as in Admin("localhost:9092").')
        self.client = Client(addresses, connection_settings(values, client_id="headwater-admin"))
        self.client.patience_s = values["default_api_timeout_ms"] / 1000

    @classmethod
    def from_config(cls, config: Mapping[str, object]) -> Self:
        """An admin client from settings under Kafka's own names.

        >>> Admin.from_config({"bootstrap.servers": "localhost:9092", "request.timeout.ms": 5000})  # doctest: +SKIP
        """
        return cls(None, **{name.replace(".", "_"): value for name, value in config.items()})

    @property
    def statistics(self) -> ClientStatistics:
        """What the connections have done so far."""
        return self.client.statistics

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes all connections."""
        await self.client.close()

    async def create_topic(
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

        >>> await admin.create_topic("prices", partitions=1, configs={"cleanup.policy": "compact"})
        """
        topic = NewTopic(
            name,
            partitions=partitions,
            replication_factor=replication_factor,
            configs=configs or {},
            assignments=assignments or {},
        )
        return (await self.create_topics([topic], validate_only=validate_only)).one(name)

    async def create_topics(
        self, topics: Collection[NewTopic], *, validate_only: bool = False
    ) -> Results[str, CreatedTopic]:
        """Creates topics, or with `validate_only` says whether they could be created."""
        return await create_topics(self.client, topics, validate_only=validate_only)

    async def delete_topic(self, topic: str | UUID) -> None:
        """Deletes a topic, named by name or id, with all its records."""
        (await self.delete_topics([topic])).or_raise()

    async def delete_topics(self, topics: Collection[str | UUID]) -> Results[str | UUID, None]:
        """Deletes topics, named by name or id, with all their records."""
        return await delete_topics(self.client, topics)

    async def list_topics(self, *, internal: bool = False) -> list[TopicDescription]:
        """Every topic by name; the brokers' own ones only if asked for."""
        return await list_topics(self.client, internal=internal)

    async def describe_topic(self, topic: str | UUID) -> TopicDescription:
        """A topic, named by name or id, with its partitions, leaders and replicas."""
        return (await self.describe_topics([topic])).one(topic)

    async def describe_topics(self, topics: Collection[str | UUID]) -> Results[str | UUID, TopicDescription]:
        """Topics, named by name or id, with their partitions, leaders and replicas."""
        return await describe_topics(self.client, topics)

    async def add_partitions(
        self,
        topic: str,
        total: int,
        *,
        assignments: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Raises the partitions of a topic to `total`; `assignments` name the brokers of those that are new."""
        wish = NewPartitions(total, assignments)
        (await self.create_partitions({topic: wish}, validate_only=validate_only)).or_raise()

    async def create_partitions(
        self, topics: Mapping[str, int | NewPartitions], *, validate_only: bool = False
    ) -> Results[str, None]:
        """Raises the number of partitions of topics to these totals; it cannot be lowered."""
        return await create_partitions(self.client, topics, validate_only=validate_only)

    async def describe_config(
        self,
        resource: ConfigResource,
        *,
        names: Collection[str] | None = None,
        synonyms: bool = True,
        documentation: bool = True,
    ) -> dict[str, Config]:
        """The configs of a topic, broker or group by name: all of them, or those in `names` that it has.

        >>> (await admin.describe_config(ConfigResource.topic("orders")))["retention.ms"].value
        """
        found = await self.describe_configs([resource], names=names, synonyms=synonyms, documentation=documentation)
        return found.one(resource)

    async def describe_configs(
        self,
        resources: Collection[ConfigResource],
        *,
        names: Collection[str] | None = None,
        synonyms: bool = True,
        documentation: bool = True,
    ) -> Results[ConfigResource, dict[str, Config]]:
        """The configs of topics, brokers and groups."""
        return await describe_configs(
            self.client, resources, names=names, synonyms=synonyms, documentation=documentation
        )

    async def alter_config(
        self, resource: ConfigResource, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> None:
        """Makes all of these changes to the configs of a topic, broker or group, or none; the others stay.

        >>> await admin.alter_config(ConfigResource.topic("orders"), [ConfigChange.set("retention.ms", "86400000")])
        """
        (await self.alter_configs({resource: changes}, validate_only=validate_only)).or_raise()

    async def alter_configs(
        self, changes: Mapping[ConfigResource, Sequence[ConfigChange]], *, validate_only: bool = False
    ) -> Results[ConfigResource, None]:
        """For each of several topics, brokers and groups makes all its changes, or none."""
        return await alter_configs(self.client, changes, validate_only=validate_only)

    async def list_groups(self, *, states: Collection[str] = (), types: Collection[str] = ()) -> list[ListedGroup]:
        """The groups by name; only those in one of `states` (`Stable`, …) and of one of `types` (`consumer`, …)."""
        return await list_groups(self.client, states=states, types=types)

    async def describe_group(self, group_id: str) -> Group:
        """A group of either protocol with its members and what each of them reads."""
        return (await self.describe_groups([group_id])).one(group_id)

    async def describe_groups(self, group_ids: Collection[str]) -> Results[str, Group]:
        """Groups of either protocol with their members and what each of them reads."""
        return await describe_groups(self.client, group_ids)

    async def delete_group(self, group_id: str) -> None:
        """Deletes a group without members, with all that it has committed."""
        (await self.delete_groups([group_id])).or_raise()

    async def delete_groups(self, group_ids: Collection[str]) -> Results[str, None]:
        """Deletes groups without members, with all that they have committed."""
        return await delete_groups(self.client, group_ids)

    async def remove_member(self, group_id: str, member: MemberName, *, reason: str | None = None) -> None:
        """Takes a member out of a group: by its id, or a static one by its instance id.

        >>> await admin.remove_member("billing", MemberName(instance_id="billing-1"))
        """
        (await self.remove_members(group_id, [member], reason=reason)).or_raise()

    async def remove_members(
        self, group_id: str, members: Collection[MemberName] | None = None, *, reason: str | None = None
    ) -> Results[MemberName, None]:
        """Takes members out of a group, all that it has by default; their partitions go to the others at once."""
        return await remove_members(self.client, group_id, members, reason=reason)

    async def list_group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None, *, require_stable: bool = False
    ) -> dict[TopicPartition, CommittedOffset]:
        """What a group has committed, in all partitions or in these; one without a committed offset is left out.

        With `require_stable`, offsets that an open transaction is about to change are waited for.
        """
        found = await self.list_groups_offsets({group_id: partitions}, require_stable=require_stable)
        return found.one(group_id)

    async def list_groups_offsets(
        self,
        groups: Collection[str] | Mapping[str, Collection[TopicPartition] | None],
        *,
        require_stable: bool = False,
    ) -> Results[str, dict[TopicPartition, CommittedOffset]]:
        """What each group has committed, in all partitions or in those that the mapping names for it."""
        return await list_groups_offsets(self.client, groups, require_stable=require_stable)

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int | CommittedOffset]
    ) -> Results[TopicPartition, None]:
        """Commits offsets in a group's name, which a broker takes only while the group has no members.

        >>> (await admin.alter_group_offsets("billing", {TopicPartition("orders", 0): 42})).or_raise()
        """
        return await alter_group_offsets(self.client, group_id, offsets)

    async def delete_group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> Results[TopicPartition, None]:
        """Forgets what a group has committed for partitions of topics that none of its members reads."""
        return await delete_group_offsets(self.client, group_id, partitions)

    async def list_offsets(
        self,
        partitions: Collection[TopicPartition],
        when: Spot | int = Spot.LATEST,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> Results[TopicPartition, FoundOffset]:
        """For each partition the offset at a `Spot`, or of the first record at or after a time in ms (-1: none).

        >>> (await admin.list_offsets([TopicPartition("orders", 0)], Spot.EARLIEST)).or_raise()
        """
        return await list_offsets(self.client, partitions, when, isolation=isolation)

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> Results[TopicPartition, int]:
        """Deletes all records before these offsets (-1: all that there are) and gives the new starts of the logs."""
        return await delete_records(self.client, before)

    async def describe_log_dirs(
        self, brokers: Collection[int] | None = None, *, partitions: Collection[TopicPartition] | None = None
    ) -> Results[int, tuple[LogDir, ...]]:
        """The log dirs of brokers (all by default), with these partitions in them, or with every one."""
        return await describe_log_dirs(self.client, brokers, partitions=partitions)

    async def alter_replica_log_dirs(
        self, broker: int, log_dir: str, partitions: Collection[TopicPartition]
    ) -> Results[TopicPartition, None]:
        """Lets a broker begin to move its replicas to one of its log dirs; `describe_log_dirs` shows how far it is."""
        return await alter_replica_log_dirs(self.client, broker, log_dir, partitions)

    async def describe_cluster(self, *, include_fenced_brokers: bool = False) -> Cluster:
        """Cluster id, controller and brokers with their racks."""
        return await describe_cluster(self.client, include_fenced_brokers=include_fenced_brokers)

    async def describe_features(self, broker: int | None = None) -> Features:
        """The features that the cluster goes by, and those that the broker supports (any, unless one is named)."""
        return await describe_features(self.client, broker)

    async def describe_apis(self, broker: int | None = None) -> list[ServedApi]:
        """The APIs that a broker serves, with their versions; any broker, unless one is named."""
        return await describe_apis(self.client, broker)

    async def describe_producers(
        self, partitions: Collection[TopicPartition]
    ) -> Results[TopicPartition, tuple[ActiveProducer, ...]]:
        """The producers that partitions remember, and where the open transaction of each starts."""
        return await describe_producers(self.client, partitions)

    async def list_transactions(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        longer_than_ms: int | None = None,
        id_pattern: str | None = None,
    ) -> list[ListedTransaction]:
        """The transactional ids that pass every filter, by name; `id_pattern` is a regular expression."""
        return await list_transactions(
            self.client,
            states=states,
            producer_ids=producer_ids,
            longer_than_ms=longer_than_ms,
            id_pattern=id_pattern,
        )

    async def describe_transaction(self, transactional_id: str) -> Transaction:
        """A transactional id: its producer, its state, and the partitions of an open transaction."""
        return (await self.describe_transactions([transactional_id])).one(transactional_id)

    async def describe_transactions(self, transactional_ids: Collection[str]) -> Results[str, Transaction]:
        """Transactional ids: their producers, their states, and the partitions of open transactions."""
        return await describe_transactions(self.client, transactional_ids)

    async def find_hanging_transactions(
        self, partitions: Collection[TopicPartition], *, longer_than_ms: int
    ) -> list[ActiveProducer]:
        """Producers whose transaction in one of `partitions` is open for longer, and which nobody is going to end."""
        return await find_hanging_transactions(self.client, partitions, longer_than_ms=longer_than_ms)

    async def abort_transaction(
        self, partition: TopicPartition, *, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> None:
        """Ends a hanging transaction in one partition, past its coordinator; `describe_producers` has the numbers."""
        await abort_transaction(
            self.client,
            partition,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
        )

    async def fence_producer(self, transactional_id: str) -> ProducerIdentity:
        """Takes a transactional id over: what its producer has open is aborted, and it can write no more."""
        return (await self.fence_producers([transactional_id])).one(transactional_id)

    async def fence_producers(self, transactional_ids: Collection[str]) -> Results[str, ProducerIdentity]:
        """Takes transactional ids over: what their producers have open is aborted, and they can write no more."""
        return await fence_producers(self.client, transactional_ids)
