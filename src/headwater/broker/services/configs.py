"""The settings of topics and brokers as requests see them: which resource is meant, what a change does.

The rules for values are in `headwater.config`; here they meet the broker that has them. A change is first
worked out, which finds everything that is wrong with it, and then made durable.
"""

import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from headwater.broker.services.partition import Topic
from headwater.broker.services.topic_requests import UNKNOWN_TOPIC, check_topic_name
from headwater.broker.services.turns import Pace
from headwater.config import (
    AlterOperation,
    ConfigChange,
    ConfigDef,
    ConfigEntry,
    ConfigError,
    ConfigType,
    UnknownConfigError,
    alter_broker,
    alter_cluster_default,
    alter_topic,
    broker_definition,
    describe_broker,
    describe_cluster_default,
    describe_topic,
    topic_definition,
)
from headwater.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

_MOST_SETTINGS: Final = 1_000

_Apply = Callable[[], Awaitable[None]]


class ResourceType(IntEnum):
    """What can have settings; the numbers are the protocol's."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Resource(NamedTuple):
    """One thing that has settings; the broker without a name stands for all brokers."""

    type: int
    name: str


class ResourceChange(NamedTuple):
    """The changes that a request asks for on one resource; `replace` drops what it has and does not name."""

    resource: Resource
    changes: Sequence[tuple[str, int, str | None]]
    replace: bool


def check_settings(count: int, code: ErrorCode) -> None:
    """Refuses more settings than anything has, before each of them is looked at."""
    if count > _MOST_SETTINGS:
        raise ApiError(code, f"{count} settings for one resource; {_MOST_SETTINGS} are allowed")


async def alter(
    broker: "Broker",
    resources: Sequence[Resource],
    change: Callable[[int], ResourceChange],
    *,
    pace: Pace,
    validate_only: bool,
) -> list[tuple[Resource, ApiError | None]]:
    """Changes each resource as `change` says of its number, or says why not."""
    times: Counter[Resource] = Counter()
    for resource in resources:
        times[resource] += 1
        await pace.pause()
    answers: list[tuple[Resource, ApiError | None]] = []
    for number, resource in enumerate(resources):
        await pace.pause()
        try:
            if times[resource] > 1:
                raise ApiError(ErrorCode.invalid_request, "Each resource must appear at most once.")
            async with broker.topics.changing:
                apply = _prepare(broker, change(number))
                if not validate_only:
                    await apply()
            answers.append((resource, None))
        except ApiError as error:
            answers.append((resource, error))
    return answers


def same_for(resource: Resource) -> Resource:
    """The one way to name a resource that has several names: `07` and `7` are the same broker."""
    if resource.type == ResourceType.BROKER and resource.name:
        with contextlib.suppress(ValueError):
            return Resource(resource.type, str(int(resource.name)))
    return resource


def describe(broker: "Broker", resource: Resource, names: Collection[str] | None) -> list[ConfigEntry]:
    """The settings of a resource, all or those in `names`; ApiError when there is no such resource."""
    match resource.type:
        case ResourceType.TOPIC:
            check_topic_name(resource.name)
            topic = broker.topics.by_name.get(resource.name)
            if topic is None:
                raise ApiError(ErrorCode.unknown_topic_or_partition, UNKNOWN_TOPIC)
            return describe_topic(topic.overrides, broker.config, names)
        case ResourceType.BROKER if resource.name:
            _check_broker_id(broker, resource.name)
            return describe_broker(broker.config, names)
        case ResourceType.BROKER:
            return describe_cluster_default(broker.config.cluster_values, names)
    raise _unknown_type(resource.type)


def _prepare(broker: "Broker", wanted: ResourceChange) -> _Apply:
    """Finds out whether a change can be made, and how."""
    _check_well_formed(wanted.changes)
    match wanted.resource.type:
        case ResourceType.TOPIC:
            return _prepare_topic(broker, wanted)
        case ResourceType.BROKER:
            return _prepare_broker(broker, wanted)
    raise _unknown_type(wanted.resource.type)


def _check_well_formed(changes: Sequence[tuple[str, int, str | None]]) -> None:
    if len({name for name, _, _ in changes}) < len(changes):
        raise ApiError(ErrorCode.invalid_request, "Error due to duplicate config keys")
    for _, operation, _ in changes:
        if operation not in AlterOperation.__members__.values():
            raise ApiError(ErrorCode.invalid_request, f"Unknown operations type {operation}")
    missing = [name for name, operation, value in changes if value is None and operation != AlterOperation.DELETE]
    if missing:
        raise ApiError(ErrorCode.invalid_request, f"Null value not supported for : {', '.join(missing)}")


def _prepare_topic(broker: "Broker", wanted: ResourceChange) -> _Apply:
    name = wanted.resource.name
    if not name:
        raise ApiError(ErrorCode.invalid_request, "Default topic resources are not allowed.")
    check_topic_name(name)
    topic = broker.topics.by_name.get(name)
    overrides = dict(topic.overrides) if topic is not None and not wanted.replace else {}
    changes = _changes(wanted.changes, overrides, topic_definition)
    try:
        changed = alter_topic(overrides, changes, broker.config)
    except ConfigError as error:
        raise ApiError(ErrorCode.invalid_config, str(error)) from error
    if topic is None:
        raise ApiError(ErrorCode.unknown_topic_or_partition, f"The topic '{name}' does not exist.")
    return _configure_topic(broker, topic, changed)


def _configure_topic(broker: "Broker", topic: Topic, overrides: dict[str, str]) -> _Apply:
    return lambda: broker.topics.configure(topic, overrides)


def _prepare_broker(broker: "Broker", wanted: ResourceChange) -> _Apply:
    name, config = wanted.resource.name, broker.config
    if name:
        _check_broker_id(broker, name)
        name = str(broker.node_id)
    own = config.dynamic_values if name else config.cluster_values
    changes = _changes(wanted.changes, () if wanted.replace else own, broker_definition)
    if wanted.replace:
        config = config.with_dynamic(
            cluster=config.cluster_values if name else {}, broker={} if name else config.dynamic_values
        )
    try:
        changed = alter_broker(config, changes) if name else alter_cluster_default(config, changes)
    except ConfigError as error:
        # Apache says so too where a value is wrong (KAFKA-13609), although INVALID_CONFIG would fit better.
        raise ApiError(ErrorCode.invalid_request, str(error)) from error
    overrides = dict(changed.dynamic_values if name else changed.cluster_values)
    return lambda: broker.configure_broker(name, overrides)


def _changes(
    wanted: Iterable[tuple[str, int, str | None]],
    current: Collection[str],
    definition: Callable[[str], ConfigDef],
) -> list[ConfigChange]:
    """The changes as `headwater.config` takes them, without deletions of what is not set."""
    changes = []
    for name, number, value in wanted:
        operation = AlterOperation(number)
        if operation is AlterOperation.DELETE and name not in current:
            continue
        if operation in (AlterOperation.APPEND, AlterOperation.SUBTRACT):
            _check_list(operation, name, definition)
        changes.append(ConfigChange(name, operation, value))
    return changes


def _check_list(operation: AlterOperation, name: str, definition: Callable[[str], ConfigDef]) -> None:
    try:
        if definition(name).type is ConfigType.LIST:
            return
    except UnknownConfigError as error:
        raise ApiError(ErrorCode.invalid_config, str(error)) from error
    raise ApiError(ErrorCode.invalid_config, f"Can't {operation.name} to key {name} because its type is not LIST.")


def _check_broker_id(broker: "Broker", name: str) -> None:
    try:
        broker_id = int(name)
    except ValueError:
        raise ApiError(ErrorCode.invalid_request, f"Broker id must be an integer, but it is: {name}") from None
    if broker_id != broker.node_id:
        raise ApiError(
            ErrorCode.invalid_request, f"Unexpected broker id, expected {broker.node_id}, but received {name}"
        )


def _unknown_type(number: int) -> ApiError:
    reasons: dict[int, str] = {
        ResourceType.BROKER_LOGGER: "The levels of loggers cannot be seen or changed from outside.",
        ResourceType.CLIENT_METRICS: "This broker does not collect metrics of clients.",
        ResourceType.GROUP: "Groups have no settings of their own on this broker.",
    }
    return ApiError(ErrorCode.invalid_request, reasons.get(number, f"Unknown resource type {number}"))
