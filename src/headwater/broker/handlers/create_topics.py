"""CreateTopics, v2 to v7: makes topics.

v4 allows -1 for the broker's default number of partitions and replicas (older versions are allowed it too,
as in Apache), v5 answers with the topic's settings, v7 with its id. A request may make 10,000 partitions at
most. An explicit assignment must name this broker once for each partition. The timeout is not needed:
topics are there when the answer is sent. Two topics of one request whose names collide are not both made
(Apache looks only at topics that exist before).
Left out: quotas for topic changes (v6), create.topic.policy.class.name.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.create_topics.v7.response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)

from headwater.broker.services.configs import check_settings
from headwater.broker.services.topic_requests import (
    check_new_topic,
    check_partition_count,
    check_replicas,
    check_replication_factor,
    named_twice,
)
from headwater.config import ConfigError, describe_topic, replace_topic
from headwater.protocol.each import each
from headwater.protocol.errors import ApiError
from headwater.protocol.kafka_types import NO_THROTTLE, ErrorCode, TopicName, i8, i16, i32

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.broker.dispatch import RequestContext

_DEFAULT: Final = -1
_FIRST_WITH_SETTINGS: Final = 5

_Result = Callable[[], CreatableTopicResult]
"""Makes the answer about one topic when it is written: the settings of 10,000 would fill the memory."""


async def handle(context: "RequestContext", request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Each topic succeeds or fails on its own."""
    results: list[_Result] = []
    pace = context.pace
    twice = await named_twice((topic.name for topic in request.topics), pace)
    wanted = [topic for topic in request.topics if topic.name not in twice]
    refused = _too_many_partitions(context.broker, wanted)
    for topic in wanted:
        await pace.pause()
        if refused is not None:
            results.append(functools.partial(_failure, topic.name, refused.code, refused.message))
        else:
            results.append(await _create(context, topic, request.validate_only))
    words = "Duplicate topic name."
    results += [functools.partial(_failure, name, ErrorCode.invalid_request, words) for name in twice]
    return CreateTopicsResponse(throttle_time=NO_THROTTLE, topics=each(lambda make: make(), results))


def _too_many_partitions(broker: "Broker", wanted: Sequence[CreatableTopic]) -> ApiError | None:
    """Why none of the topics is made: together they have too many partitions, those of the default number too."""
    default = broker.config.num_partitions
    counts = (
        len(topic.assignments) or (default if topic.num_partitions == _DEFAULT else max(topic.num_partitions, 0))
        for topic in wanted
    )
    try:
        check_partition_count(sum(counts))
    except ApiError as error:
        return error
    return None


async def _create(context: "RequestContext", wanted: CreatableTopic, validate_only: bool) -> _Result:
    broker = context.broker
    try:
        async with broker.topics.changing:
            check_new_topic(broker, wanted.name)
            overrides = _overrides(broker, wanted)
            partitions = _partitions(broker, wanted)
            if validate_only:
                topic_id = uuid4()
            else:
                topic_id = (await broker.topics.create(wanted.name, partitions, overrides)).topic_id
    except ApiError as error:
        return functools.partial(_failure, wanted.name, error.code, error.message)
    has_settings = context.version >= _FIRST_WITH_SETTINGS
    return lambda: _success(wanted.name, topic_id, partitions, _settings(broker, overrides) if has_settings else ())


def _overrides(broker: "Broker", wanted: CreatableTopic) -> dict[str, str]:
    check_settings(len(wanted.configs), ErrorCode.invalid_config)
    given = {config.name: config.value for config in wanted.configs}
    missing = [name for name, value in given.items() if value is None]
    if missing:
        raise ApiError(ErrorCode.invalid_config, f"Null value not supported for topic configs: {','.join(missing)}")
    try:
        return replace_topic(given, broker.config)
    except ConfigError as error:
        raise ApiError(ErrorCode.invalid_config, str(error)) from error


def _partitions(broker: "Broker", wanted: CreatableTopic) -> int:
    """How many partitions the topic shall have."""
    if wanted.assignments:
        return _assigned_partitions(broker, wanted)
    factor, partitions = wanted.replication_factor, wanted.num_partitions
    check_replication_factor(broker.config.default_replication_factor if factor == _DEFAULT else factor)
    if partitions < _DEFAULT or partitions == 0:
        raise ApiError(ErrorCode.invalid_partitions, "Number of partitions was set to an invalid non-positive value.")
    return broker.config.num_partitions if partitions == _DEFAULT else partitions


def _assigned_partitions(broker: "Broker", wanted: CreatableTopic) -> int:
    words = "A manual partition assignment was specified, but"
    if wanted.replication_factor != _DEFAULT:
        raise ApiError(ErrorCode.invalid_request, f"{words} replication factor was not set to -1.")
    if wanted.num_partitions != _DEFAULT:
        raise ApiError(ErrorCode.invalid_request, f"{words} numPartitions was not set to -1.")
    seen: set[int] = set()
    for assignment in wanted.assignments:
        if assignment.partition_index in seen:
            raise ApiError(
                ErrorCode.invalid_replica_assignment,
                f"Found multiple manual partition assignments for partition {int(assignment.partition_index)}",
            )
        seen.add(assignment.partition_index)
        check_replicas(broker, assignment.broker_ids)
    if seen != set(range(len(seen))):
        raise ApiError(
            ErrorCode.invalid_replica_assignment,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return len(seen)


def _settings(broker: "Broker", overrides: Mapping[str, str]) -> tuple[CreatableTopicConfigs, ...]:
    return tuple(
        [
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=i8(entry.source),
                is_sensitive=entry.sensitive,
            )
            for entry in describe_topic(overrides, broker.config)
        ]
    )


def _success(
    name: TopicName, topic_id: UUID, partitions: int, settings: tuple[CreatableTopicConfigs, ...]
) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name,
        topic_id=topic_id,
        error_code=ErrorCode.none,
        error_message=None,
        num_partitions=i32(partitions),
        replication_factor=i16(1),
        configs=settings,
    )


def _failure(name: str, error_code: ErrorCode, message: str) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=TopicName(name), topic_id=None, error_code=error_code, error_message=message, configs=()
    )
