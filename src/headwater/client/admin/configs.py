"""Configs of topics, brokers and groups: what they are, where they come from, and changing some of them.

A broker alone knows its own configs; every broker knows those of topics, groups and of all brokers together.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Self

from headwater.client.admin.results import Results
from headwater.client.admin.routing import AT_THE_CONTROLLER, FindHomes, ask_each, not_there, refused_or
from headwater.client.client import Client
from headwater.client.errors import ClientError, RefusedError
from headwater.protocol.kafka_types import i8

from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource  # isort: skip
from kio.schema.describe_configs.v4.response import (  # isort: skip
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from kio.schema.incremental_alter_configs.v1.request import (  # isort: skip
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.incremental_alter_configs.v1.response import IncrementalAlterConfigsResponse  # isort: skip


class ResourceType(IntEnum):
    """What a config belongs to, by the protocol's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """Something that has configs.

    >>> ConfigResource.topic("orders"), ConfigResource.broker(1).name, ConfigResource.all_brokers().name
    (ConfigResource(type=<ResourceType.TOPIC: 2>, name='orders'), '1', '')
    """

    type: ResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> Self:
        """A topic."""
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, broker: int) -> Self:
        """One broker."""
        return cls(ResourceType.BROKER, str(broker))

    @classmethod
    def all_brokers(cls) -> Self:
        """What is set at run time for all brokers together."""
        return cls(ResourceType.BROKER, "")

    @classmethod
    def group(cls, group_id: str) -> Self:
        """A group of consumers."""
        return cls(ResourceType.GROUP, group_id)

    def __str__(self) -> str:
        return f"{self.type.name.lower().replace('_', ' ')} {self.name or 'default'}"


class ConfigSource(IntEnum):
    """Where a value comes from, by the protocol's numbers."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8

    @classmethod
    def _missing_(cls, value: object) -> "ConfigSource":
        return cls.UNKNOWN


class ConfigType(IntEnum):
    """What kind of value a config has, by the protocol's numbers; brokers before Kafka 2.6 do not tell."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9

    @classmethod
    def _missing_(cls, value: object) -> "ConfigType":
        return cls.UNKNOWN


class ConfigSynonym(NamedTuple):
    """A value that is or would be in force, and under which name it was given."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One config; a sensitive one comes without its value. Of the synonyms the first is the one in force."""

    name: str
    value: str | None
    source: ConfigSource
    type: ConfigType
    sensitive: bool
    read_only: bool
    synonyms: tuple[ConfigSynonym, ...]
    documentation: str | None


class AlterOperation(IntEnum):
    """What to do with one config, by the protocol's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """One step of an incremental change: what is not named stays as it is. DELETE has no value.

    >>> ConfigChange.append("cleanup.policy", "compact")
    ConfigChange(operation=<AlterOperation.APPEND: 2>, name='cleanup.policy', value='compact')
    """

    operation: AlterOperation
    name: str
    value: str | None = None

    @classmethod
    def set(cls, name: str, value: str) -> Self:
        """Gives a config a value."""
        return cls(operation=AlterOperation.SET, name=name, value=value)

    @classmethod
    def delete(cls, name: str) -> Self:
        """Goes back to the value that is inherited."""
        return cls(operation=AlterOperation.DELETE, name=name)

    @classmethod
    def append(cls, name: str, value: str) -> Self:
        """Adds to a list."""
        return cls(operation=AlterOperation.APPEND, name=name, value=value)

    @classmethod
    def subtract(cls, name: str, value: str) -> Self:
        """Takes from a list."""
        return cls(operation=AlterOperation.SUBTRACT, name=name, value=value)


async def describe_configs(
    client: Client,
    resources: Collection[ConfigResource],
    *,
    names: Collection[str] | None = None,
    synonyms: bool = True,
    documentation: bool = True,
) -> Results[ConfigResource, dict[str, Config]]:
    """The configs of each resource by name: all of them, or those in `names` that it has."""

    async def ask(
        home: int | None, rest: Sequence[ConfigResource]
    ) -> dict[ConfigResource, dict[str, Config] | RefusedError]:
        request = DescribeConfigsRequest(
            resources=tuple(
                DescribeConfigsResource(
                    resource_type=i8(resource.type),
                    resource_name=resource.name,
                    configuration_keys=None if names is None else tuple(names),
                )
                for resource in rest
            ),
            include_synonyms=synonyms,
            include_documentation=documentation,
        )
        answer = await client.send(request, DescribeConfigsResponse, to=home)
        items = {(int(item.resource_type), item.resource_name): item for item in answer.results}
        return {
            resource: refused_or(_configs(item.configs), str(resource), item.error_code, item.error_message)
            for resource in rest
            if (item := items.get((int(resource.type), resource.name))) is not None
        }

    return await ask_each(client, resources, _homes(client), ask, passing=AT_THE_CONTROLLER)


async def alter_configs(
    client: Client, changes: Mapping[ConfigResource, Sequence[ConfigChange]], *, validate_only: bool = False
) -> Results[ConfigResource, None]:
    """For each resource makes all its changes, or none."""

    async def ask(home: int | None, rest: Sequence[ConfigResource]) -> dict[ConfigResource, RefusedError | None]:
        request = IncrementalAlterConfigsRequest(
            resources=tuple(
                AlterConfigsResource(
                    resource_type=i8(resource.type),
                    resource_name=resource.name,
                    configs=tuple(map(_alterable, changes[resource])),
                )
                for resource in rest
            ),
            validate_only=validate_only,
        )
        answer = await client.send(request, IncrementalAlterConfigsResponse, to=home)
        items = {(int(item.resource_type), item.resource_name): item for item in answer.responses}
        return {
            resource: refused_or(None, str(resource), item.error_code, item.error_message)
            for resource in rest
            if (item := items.get((int(resource.type), resource.name))) is not None
        }

    return await ask_each(client, changes, _homes(client), ask, passing=AT_THE_CONTROLLER)


def _homes(client: Client) -> FindHomes[ConfigResource, int | None]:
    async def find(resources: Sequence[ConfigResource]) -> dict[ConfigResource, int | ClientError | None]:
        own = {resource: int(resource.name) for resource in resources if _is_one_brokers(resource)}
        known = {int(broker.node_id) for broker in (await client.metadata(())).brokers} if own else set()
        homes: dict[ConfigResource, int | ClientError | None] = dict.fromkeys(resources)
        return homes | {resource: id_ if id_ in known else not_there(id_) for resource, id_ in own.items()}

    return find


def _is_one_brokers(resource: ConfigResource) -> bool:
    return resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and resource.name.isdigit()


def _configs(found: Sequence[DescribeConfigsResourceResult]) -> dict[str, Config]:
    return {config.name: _config(config) for config in found}


def _config(found: DescribeConfigsResourceResult) -> Config:
    return Config(
        name=found.name,
        value=found.value,
        source=ConfigSource(found.config_source),
        type=ConfigType(found.config_type),
        sensitive=found.is_sensitive,
        read_only=found.read_only,
        synonyms=tuple(ConfigSynonym(each.name, each.value, ConfigSource(each.source)) for each in found.synonyms),
        documentation=found.documentation,
    )


def _alterable(change: ConfigChange) -> AlterableConfig:
    return AlterableConfig(name=change.name, config_operation=i8(change.operation), value=change.value)
