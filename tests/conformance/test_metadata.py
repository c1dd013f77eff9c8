"""Metadata, DescribeTopicPartitions and DescribeCluster: who is there, and what topics there are."""

import uuid
from typing import Any

from kio.schema.errors import ErrorCode

from .actions import create_topic, describe_topic, eventually, unique_name
from .conftest import Broker
from .wire import Wire, plain


def test_all_topics_are_listed_when_none_is_named(wire: Wire) -> None:
    first, second = create_topic(wire, partitions=3), create_topic(wire)
    listed = {topic.name: topic for topic in wire.send("metadata", topics=None).topics}
    assert listed[first.name].topic_id == first.id
    assert sorted(part.partition_index for part in listed[first.name].partitions) == [0, 1, 2]
    assert len(listed[second.name].partitions) == 1


def test_an_empty_list_of_topics_asks_for_the_brokers_alone(wire: Wire) -> None:
    create_topic(wire)
    answer = wire.send("metadata", topics=[])
    assert answer.topics == ()
    assert len(answer.brokers) == 1


def test_in_version_0_an_empty_list_means_all_topics(wire: Wire) -> None:
    topic = create_topic(wire)
    assert topic.name in {found.name for found in wire.send("metadata", 0, topics=[]).topics}


def test_the_broker_names_itself_with_the_address_that_clients_use(broker: Broker, wire: Wire) -> None:
    answer = wire.send("metadata", topics=[])
    (member,) = answer.brokers
    assert f"{member.host}:{member.port}" == broker.bootstrap
    assert member.rack is None
    assert answer.controller_id == member.node_id
    assert answer.cluster_id


def test_a_partition_has_its_leader_as_only_replica(wire: Wire) -> None:
    topic = create_topic(wire)
    (partition,) = describe_topic(wire, topic.name).partitions
    node = wire.send("metadata", topics=[]).brokers[0].node_id
    assert partition.leader_id == node
    assert partition.leader_epoch == 0
    assert partition.replica_nodes == partition.isr_nodes == (node,)
    assert partition.offline_replicas == ()


def test_an_unknown_topic_is_named_with_its_error(wire: Wire) -> None:
    name = unique_name("absent")
    found = describe_topic(wire, name)
    assert found.error_code is ErrorCode.unknown_topic_or_partition
    assert found.name == name
    assert found.partitions == ()
    assert describe_topic(wire, name).error_code is ErrorCode.unknown_topic_or_partition, "asking must not make it"


def test_an_invalid_topic_name_is_refused(wire: Wire) -> None:
    for name in ("with space", "slash/ed", "", ".", "..", "x" * 250):
        answer = wire.send("metadata", topics=[{"name": name}], allow_auto_topic_creation=True)
        assert answer.topics[0].error_code is ErrorCode.invalid_topic_exception, name


def test_trap_metadata_makes_the_topic_when_the_client_asks_for_it(wire: Wire) -> None:
    name = unique_name("auto")
    first = wire.send("metadata", topics=[{"name": name}], allow_auto_topic_creation=True).topics[0]
    # A broker may have made it by the time of its answer, or ask the client to come back.
    assert first.error_code in (
        ErrorCode.none,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.leader_not_available,
    )
    found = eventually(lambda: _without_error(wire, name), "the topic")
    assert len(found.partitions) == 2, "as num.partitions says"


def _without_error(wire: Wire, name: str) -> Any:
    found = describe_topic(wire, name)
    return found if found.error_code is ErrorCode.none else None


def test_metadata_before_version_4_always_may_make_the_topic(wire: Wire) -> None:
    name = unique_name("auto")
    wire.send("metadata", 3, topics=[{"name": name}])
    assert eventually(lambda: _without_error(wire, name), "the topic")


def test_a_topic_can_be_asked_for_by_its_id(wire: Wire) -> None:
    topic = create_topic(wire, partitions=2)
    answer = wire.send("metadata", topics=[{"topic_id": topic.id, "name": None}], allow_auto_topic_creation=False)
    assert answer.topics[0].error_code is ErrorCode.none
    assert answer.topics[0].name == topic.name
    assert len(answer.topics[0].partitions) == 2


def test_an_unknown_topic_id_has_an_error_of_its_own(wire: Wire) -> None:
    unknown = uuid.uuid4()
    answer = wire.send("metadata", topics=[{"topic_id": unknown, "name": None}], allow_auto_topic_creation=False)
    assert answer.topics[0].error_code is ErrorCode.unknown_topic_id
    assert answer.topics[0].topic_id == unknown
    assert answer.topics[0].name is None


def test_topic_ids_are_unique_and_change_when_a_topic_is_made_anew(wire: Wire) -> None:
    topic = create_topic(wire)
    wire.send("delete_topics", topics=[{"name": topic.name, "topic_id": None}], timeout=10_000)
    eventually(lambda: _without_error(wire, topic.name) is None, "the deletion")
    again = create_topic(wire, name=topic.name)
    assert again.id != topic.id


def test_authorized_operations_come_only_when_asked_for(wire: Wire) -> None:
    topic = create_topic(wire)
    asked = wire.send("metadata", topics=[{"name": topic.name}], include_topic_authorized_operations=True)
    assert asked.topics[0].topic_authorized_operations == sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
    assert describe_topic(wire, topic.name).topic_authorized_operations == -(2**31)


def test_describe_cluster_tells_what_metadata_tells(broker: Broker, wire: Wire) -> None:
    cluster = wire.send("describe_cluster")
    metadata = wire.send("metadata", topics=[])
    assert cluster.error_code is ErrorCode.none
    assert cluster.cluster_id == metadata.cluster_id
    assert [(b.broker_id, b.host, b.port, b.rack) for b in cluster.brokers] == [
        (b.node_id, b.host, b.port, b.rack) for b in metadata.brokers
    ]
    assert cluster.controller_id == metadata.brokers[0].node_id
    assert cluster.cluster_authorized_operations == -(2**31)
    assert not cluster.brokers[0].is_fenced


def test_describe_cluster_lists_authorized_operations_when_asked(wire: Wire) -> None:
    cluster = wire.send("describe_cluster", include_cluster_authorized_operations=True)
    # CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE
    assert cluster.cluster_authorized_operations == sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))


def test_describe_cluster_refuses_to_list_controllers_on_a_broker(wire: Wire) -> None:
    assert wire.send("describe_cluster", endpoint_type=2).error_code is ErrorCode.mismatched_endpoint_type
    assert wire.send("describe_cluster", endpoint_type=9).error_code is ErrorCode.unsupported_endpoint_type


def test_describe_topic_partitions_lists_topics_in_order_of_name(wire: Wire) -> None:
    topics = sorted((create_topic(wire, partitions=2) for _ in range(2)), key=lambda topic: topic.name)
    answer = wire.send("describe_topic_partitions", topics=[{"name": topic.name} for topic in reversed(topics)])
    assert [topic.name for topic in answer.topics] == [topic.name for topic in topics]
    assert [topic.topic_id for topic in answer.topics] == [topic.id for topic in topics]
    assert answer.next_cursor is None
    partition = answer.topics[0].partitions[1]
    node = wire.send("metadata", topics=[]).brokers[0].node_id
    assert (partition.partition_index, partition.leader_id, partition.leader_epoch) == (1, node, 0)
    assert partition.replica_nodes == partition.isr_nodes == (node,)


def test_describe_topic_partitions_goes_on_from_its_cursor(wire: Wire) -> None:
    topic = create_topic(wire, partitions=5)
    ask = {"topics": [{"name": topic.name}], "response_partition_limit": 2}
    seen: list[int] = []
    cursor = None
    for _ in range(3):
        answer = wire.send("describe_topic_partitions", **ask, cursor=cursor)
        seen += [partition.partition_index for partition in answer.topics[0].partitions]
        cursor = plain(answer.next_cursor)
    assert seen == [0, 1, 2, 3, 4]
    assert cursor is None


def test_the_cursor_crosses_from_topic_to_topic(wire: Wire) -> None:
    first, second = sorted((create_topic(wire, partitions=2) for _ in range(2)), key=lambda topic: topic.name)
    ask = {"topics": [{"name": first.name}, {"name": second.name}], "response_partition_limit": 3}
    answer = wire.send("describe_topic_partitions", **ask)
    assert [(topic.name, len(topic.partitions)) for topic in answer.topics] == [
        (first.name, 2),
        (second.name, 1),
    ]
    assert plain(answer.next_cursor) == {"topic_name": second.name, "partition_index": 1}
    rest = wire.send("describe_topic_partitions", **ask, cursor=plain(answer.next_cursor))
    assert [(topic.name, len(topic.partitions)) for topic in rest.topics] == [(second.name, 1)]


def test_describe_topic_partitions_of_an_unknown_topic(wire: Wire) -> None:
    name = unique_name("absent")
    (topic,) = wire.send("describe_topic_partitions", topics=[{"name": name}]).topics
    assert topic.error_code is ErrorCode.unknown_topic_or_partition
    assert (topic.name, topic.partitions) == (name, ())
