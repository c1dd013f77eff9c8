"""The bytes of a Metadata answer are those that kio writes, in every version, and come much faster."""

import time
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from kio.schema.metadata.v10 import response as with_cluster_operations
from kio.schema.metadata.v13 import response as newest

from headwater.broker.services.authorized_operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from headwater.broker.services.metadata_answer import (
    MetadataAnswer,
    Node,
    TopicAnswer,
    metadata_body,
)
from headwater.protocol.apis import METADATA
from headwater.protocol.errors import ErrorCode
from headwater.protocol.kafka_types import NO_THROTTLE, BrokerId, TopicName, i32
from headwater.protocol.messages import encode_response

VERSIONS = range(METADATA.min_version, METADATA.max_version + 1)
NODE = Node(node_id=7, host="broker.example", port=9092, rack="r1")


def written(answer: MetadataAnswer, version: int) -> bytes:
    """The body, without a pause between its steps."""
    steps = metadata_body(answer, version)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return bytes(end.value)


def partitions(count: int, *, leader_epoch: int = 3) -> list[Any]:
    return [SimpleNamespace(index=index, leader_epoch=leader_epoch, is_offline=False) for index in range(count)]


def topic(name: str, count: int, **values: Any) -> TopicAnswer:
    return TopicAnswer(
        error_code=ErrorCode.none,
        name=name,
        topic_id=UUID(int=len(name) + 1),
        partitions=partitions(count),
        **values,
    )


def metadata_message(answer: MetadataAnswer, version: int) -> Any:
    """The answer as kio's response of the version nearest to `version` that can say all of it."""
    if version in range(8, 11):
        schema: Any = with_cluster_operations
        last: dict[str, Any] = {"cluster_authorized_operations": i32(answer.cluster_operations)}
    else:
        schema, last = newest, {"error_code": answer.error_code}
    node = answer.node
    node_id = BrokerId(-1 if node is None else node.node_id)
    brokers = (
        ()
        if node is None
        else (schema.MetadataResponseBroker(node_id=node_id, host=node.host, port=i32(node.port), rack=node.rack),)
    )
    return schema.MetadataResponse(
        throttle_time=NO_THROTTLE,
        brokers=brokers,
        cluster_id=answer.cluster_id,
        controller_id=node_id,
        topics=tuple(_topic_message(schema, topic, node_id) for topic in answer.topics),
        **last,
    )


def _topic_message(schema: Any, topic: TopicAnswer, node_id: BrokerId) -> Any:
    replicas = (node_id,)
    return schema.MetadataResponseTopic(
        error_code=topic.error_code,
        name=None if topic.name is None else TopicName(topic.name),
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=tuple(
            schema.MetadataResponsePartition(
                error_code=ErrorCode.leader_not_available if partition.is_offline else ErrorCode.none,
                partition_index=i32(partition.index),
                leader_id=BrokerId(-1) if partition.is_offline else node_id,
                leader_epoch=i32(partition.leader_epoch),
                replica_nodes=replicas,
                isr_nodes=replicas,
                offline_replicas=replicas if partition.is_offline else (),
            )
            for partition in topic.partitions
        ),
        topic_authorized_operations=i32(topic.operations),
    )


def body_by_kio(answer: MetadataAnswer, version: int) -> bytes:
    frame = encode_response(METADATA, version, 1, metadata_message(answer, version))
    return frame[9:] if version >= METADATA.flexible else frame[8:]


@pytest.mark.parametrize("version", VERSIONS)
def test_topics_and_partitions(version: int) -> None:
    answer = MetadataAnswer(
        node=NODE,
        cluster_id="a-cluster",
        topics=[
            topic("empty", 0),
            topic("one", 1, operations=TOPIC_OPERATIONS),
            topic("__consumer_offsets", 200, is_internal=True),
            TopicAnswer(error_code=ErrorCode.unknown_topic_or_partition, name="gone", topic_id=None),
        ],
        cluster_operations=CLUSTER_OPERATIONS,
    )
    assert written(answer, version) == body_by_kio(answer, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_partition_whose_log_dir_is_offline_has_no_leader(version: int) -> None:
    answer = MetadataAnswer(node=NODE, cluster_id="a-cluster", topics=[topic("half", 2)])
    next(iter(answer.topics)).partitions[1].is_offline = True
    assert written(answer, version) == body_by_kio(answer, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_no_rack_and_no_topics(version: int) -> None:
    node = Node(node_id=0, host="", port=1, rack=None)
    answer = MetadataAnswer(node=node, cluster_id=None, topics=[])
    assert written(answer, version) == body_by_kio(answer, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_refused_request(version: int) -> None:
    refused = TopicAnswer(error_code=ErrorCode.invalid_request, name="", topic_id=UUID(int=9))
    answer = MetadataAnswer(node=None, cluster_id=None, topics=[refused], error_code=ErrorCode.invalid_request)
    assert written(answer, version) == body_by_kio(answer, version)


@pytest.mark.parametrize("version", [12, 13])
def test_an_unknown_topic_id_has_no_name(version: int) -> None:
    unknown = TopicAnswer(error_code=ErrorCode.unknown_topic_id, name=None, topic_id=UUID(int=5))
    answer = MetadataAnswer(node=NODE, cluster_id="a-cluster", topics=[unknown])
    assert written(answer, version) == body_by_kio(answer, version)


def test_five_thousand_partitions_do_not_hold_up_the_loop() -> None:
    answer = MetadataAnswer(
        node=NODE, cluster_id="a-cluster", topics=[topic(f"topic-{number}", 5) for number in range(1000)]
    )
    times_s = []
    for _ in range(5):
        start = time.perf_counter()
        written(answer, 13)
        times_s.append(time.perf_counter() - start)
    assert min(times_s) < 0.03
