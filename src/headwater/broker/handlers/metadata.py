"""Metadata, v0 to v13: brokers, topics and who leads their partitions.

v0 asks for all topics with an empty list, later versions with null. v1 adds the controller, racks and
internal topics, v2 the cluster id, v5 offline replicas, v7 leader epochs, v8 authorized operations (the
cluster's up to v10 only), v10 topic ids in the answer, v12 topics asked for by id; v10 and v11 have room
for ids in requests and refuse them. v4 lets a client forbid that a missing topic is made. With
`auto.create.topics.enable` it is made before the answer, where Apache answers UNKNOWN_TOPIC_OR_PARTITION
first and makes it meanwhile. Internal topics are not made by asking for them: that is their coordinators'
business. One request makes as many partitions as CreateTopics may, 10,000; further topics stay unknown.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kio.schema.metadata.v10.request import MetadataRequest as MetadataRequestWithCluster
from kio.schema.metadata.v10.request import MetadataRequestTopic as MetadataRequestTopicWithCluster
from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic

from headwater.broker.services.authorized_operations import (
    CLUSTER_OPERATIONS,
    NOT_ASKED,
    TOPIC_OPERATIONS,
)
from headwater.broker.services.metadata_answer import MetadataAnswer, Node, TopicAnswer, metadata_body
from headwater.broker.services.partition import Topic
from headwater.broker.services.topic_requests import (
    MAX_PARTITIONS_PER_REQUEST,
    check_new_topic,
    check_replication_factor,
)
from headwater.broker.services.turns import Work
from headwater.cluster.image import INTERNAL_TOPICS, topic_name_problem
from headwater.protocol.each import each
from headwater.protocol.errors import ApiError
from headwater.protocol.kafka_types import ErrorCode

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.broker.dispatch import RequestContext

_FIRST_WITH_IDS: Final = 12
_LAST_WITH_CLUSTER_OPERATIONS: Final = 10

_Request = MetadataRequest | MetadataRequestWithCluster
_Errors = dict[str, ErrorCode]


def VERSION(version: int) -> int:  # noqa: N802 -- the dispatcher looks for this name
    """The newest versions no longer ask for the cluster's authorized operations."""
    return 10 if version <= _LAST_WITH_CLUSTER_OPERATIONS else 13


def handle(context: "RequestContext", request: _Request) -> Work[bytes]:
    """Answers at once, unless topics have to be made first."""
    answer = yield from _find(context, request)
    body = yield from metadata_body(answer, context.version)
    return body


def _find(context: "RequestContext", request: _Request) -> Work[MetadataAnswer]:
    broker, wanted = context.broker, request.topics
    known = broker.topics.by_name
    if wanted is None or (context.version == 0 and not wanted):
        return _answer(broker, request, each(lambda topic: _known(topic, request), list(known.values())))
    ids: dict[UUID, None] = {}
    names: dict[str, None] = {}
    for topic in wanted:
        if not _is_well_formed(context.version, topic.name, topic.topic_id):
            return _refusal(request)
        if topic.topic_id is not None:
            ids[topic.topic_id] = None
        elif topic.name is not None:
            names[topic.name] = None
        yield None
    if ids:
        return _answer(broker, request, each(lambda topic_id: _by_id(broker, topic_id, request), ids))
    errors: _Errors = {}
    if request.allow_auto_topic_creation and broker.config.auto_create_topics_enable:
        room = MAX_PARTITIONS_PER_REQUEST
        for name in names:
            if name not in known and name not in INTERNAL_TOPICS and room >= broker.config.num_partitions:
                try:
                    # A name that cannot be one is not worth the wait for changes that others make.
                    check_new_topic(broker, name)
                    yield _create(broker, name)
                    room -= broker.config.num_partitions
                except ApiError as error:
                    errors[name] = error.code
            yield None
    return _by_names(broker, request, names, errors)


def _is_well_formed(version: int, name: str | None, topic_id: UUID | None) -> bool:
    if version >= _FIRST_WITH_IDS:
        return name is not None or topic_id is not None
    return name is not None and topic_id is None


async def _create(broker: "Broker", name: str) -> None:
    async with broker.topics.changing:
        if name not in broker.topics.by_name:
            check_new_topic(broker, name)
            check_replication_factor(broker.config.default_replication_factor)
            await broker.topics.create(name, broker.config.num_partitions, {})


def _by_names(broker: "Broker", request: _Request, names: Collection[str], errors: _Errors) -> MetadataAnswer:
    known = broker.topics.by_name

    def one(name: str) -> TopicAnswer:
        return _known(known[name], request) if name in known else _missing(name, request, errors.get(name))

    return _answer(broker, request, each(one, names))


def _by_id(broker: "Broker", topic_id: UUID, request: _Request) -> TopicAnswer:
    topic = broker.topics.by_id.get(topic_id.bytes)
    if topic is None:
        return TopicAnswer(error_code=ErrorCode.unknown_topic_id, name=None, topic_id=topic_id)
    return _known(topic, request)


def _known(topic: Topic, request: _Request) -> TopicAnswer:
    return TopicAnswer(
        error_code=ErrorCode.none,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=topic.partitions,
        operations=TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED,
    )


def _missing(name: str, request: _Request, error_code: ErrorCode | None) -> TopicAnswer:
    if topic_name_problem(name) is not None:
        error_code = ErrorCode.invalid_topic_exception
    return TopicAnswer(
        error_code=error_code or ErrorCode.unknown_topic_or_partition,
        name=name,
        topic_id=None,
        is_internal=name in INTERNAL_TOPICS,
        operations=TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED,
    )


def _answer(broker: "Broker", request: _Request, topics: Collection[TopicAnswer]) -> MetadataAnswer:
    asked = isinstance(request, MetadataRequestWithCluster) and request.include_cluster_authorized_operations
    return MetadataAnswer(
        node=Node(node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.config.broker_rack),
        cluster_id=broker.cluster_id,
        topics=topics,
        cluster_operations=CLUSTER_OPERATIONS if asked else NOT_ASKED,
    )


def _refusal(request: _Request) -> MetadataAnswer:
    """A topic with neither name nor id, or with an id in a version that does not know what to do with it."""

    topics: Collection[MetadataRequestTopic | MetadataRequestTopicWithCluster] = request.topics or ()

    def refused(topic: MetadataRequestTopic | MetadataRequestTopicWithCluster) -> TopicAnswer:
        return TopicAnswer(error_code=ErrorCode.invalid_request, name=topic.name or "", topic_id=topic.topic_id)

    return MetadataAnswer(
        node=None,
        cluster_id=None,
        topics=each(refused, topics),
        error_code=ErrorCode.invalid_request,
    )
