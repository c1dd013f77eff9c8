"""Requests that are well-formed and meant to hurt: large, with the same item again and again, with lists in lists.

They are written from kio's schemas as bytes, so that a list of 100,000 items costs the test next to nothing. `MARK` in
a name becomes another number in every item of the list that it is in.
"""

import dataclasses
import functools
import struct
import typing
from collections.abc import Callable
from typing import Any, Final

from headwater.protocol import apis, messages, records
from headwater.protocol.apis import Api
from headwater.protocol.wire import length_bytes, string_bytes

MARK: Final = "NNNNNNN"
TOPIC: Final = "attacked"
COMPACTED: Final = "attacked-compacted"
PARTITIONS: Final = 8
LONG: Final = "x" * 30_000

_NUMBERS: Final = {"int8": "b", "int16": "h", "int32": "i", "int64": "q", "bool": "?"}
_ZSTD: Final = 4

Frames = list[bytes]


def request(api: Api, *counts: int, version: Any = None, **values: Any) -> bytes:
    """A request whose lists have so many items, by how deep they are nested, and then one.

    Values are by the name of a field, wherever it occurs; everything else is empty or zero.
    """
    version = api.max_version if version is None else version
    flexible = version >= api.flexible
    header = struct.pack(">hhih", api.key, version, 7, -1) + (b"\0" if flexible else b"")
    return header + _entity(messages.request_type(api.key, version), counts, values)


def _entity(entity: Any, counts: tuple[int, ...], values: dict[str, Any]) -> bytes:
    flexible = entity.__flexible__
    hints = typing.get_type_hints(entity)
    parts = []
    for field in dataclasses.fields(entity):
        if "tag" in field.metadata:
            continue
        hint, value = hints[field.name], values.get(field.name)
        inner, kind = _entity_in(hint), field.metadata.get("kafka_type", "")
        if "tuple[" in str(hint):
            item = _entity(inner, counts[1:], values) if inner else _plain(kind, flexible, value)
            count = counts[0] if counts else 1
            parts += [length_bytes(count, flexible), _repeated(item, count)]
        else:
            parts.append(b"\xff" if inner else _plain(kind, flexible, value))
    return b"".join(parts) + (b"\0" if flexible else b"")


def _entity_in(hint: Any) -> Any:
    """The entity that a field holds, alone or in a list."""
    found = [_entity_in(inner) for inner in typing.get_args(hint) if inner is not Ellipsis]
    return next(filter(None, found), None) if found else hint if dataclasses.is_dataclass(hint) else None


def _repeated(item: bytes, count: int) -> bytes:
    mark = MARK.encode()
    if mark not in item:
        return item * count
    return b"".join([item.replace(mark, b"%07d" % number) for number in range(count)])


def _plain(kind: str, flexible: bool, value: Any) -> bytes:
    if kind == "string":
        return string_bytes(value or "", flexible)
    if kind == "uuid":
        return value or bytes(16)
    if kind in ("bytes", "records"):
        content = value or b""
        return length_bytes(len(content), flexible) + content if flexible else struct.pack(">i", len(content)) + content
    return struct.pack(f">{_NUMBERS[kind.replace('timedelta_i', 'int')]}", value or 0)


def bomb() -> bytes:
    """A batch that is 64 MiB when it is decompressed."""
    return bytes(records.encode_batch([(b"k", bytes(64 << 20), (), 1_700_000_000_000)], compression=_ZSTD))


def many_faults() -> bytes:
    """A batch of which every record is wrong for a compacted topic: none has a key."""
    batch = records.encode_batch([(None, b"", (), 1_700_000_000_000)] * 300_000, compression=_ZSTD)
    return bytes(batch)


def _on_topics(api: Api, items: Any = 30_000, **values: Any) -> Callable[[], Frames]:
    """Lists of topics and their partitions: one topic often, one partition often, topics that do not exist."""
    names = ("name", "topic", "topic_name")

    def frames() -> Frames:
        known, unknown = dict.fromkeys(names, TOPIC), dict.fromkeys(names, f"t-{MARK}")
        return [
            request(api, items, 1, **{**known, **values}),
            request(api, 1, items, **{**known, **values}),
            request(api, items // 10, 10, **{**unknown, **values}),
            request(api, items // 10, 10, version=api.min_version, **{**known, **values}),
        ]

    return frames


def _in_lists(api: Api, items: Any = 30_000, **values: Any) -> Callable[[], Frames]:
    """Lists of names, the same ones and others, in lists."""

    def frames() -> Frames:
        marked = {name: f"{value}{MARK}" if isinstance(value, str) else value for name, value in values.items()}
        return [
            request(api, items, 1, **values),
            request(api, items, 1, **marked),
            request(api, 1, items, **values),
            request(api, 100, 100, 3, **values),
            request(api, items // 3, version=api.min_version, **values),
        ]

    return frames


def _about_one(api: Api, times: int = 2_000, **values: Any) -> Callable[[], Frames]:
    """Long names, and many requests one after another."""

    def frames() -> Frames:
        short = {name: value[:10] if isinstance(value, str) else value for name, value in values.items()}
        return [
            *[request(api, **values)] * 20,
            *[request(api, version=api.min_version, **values)] * 20,
            *[request(api, **short)] * times,
        ]

    return frames


def _both(*attacks: Callable[[], Frames]) -> Callable[[], Frames]:
    return lambda: [frame for attack in attacks for frame in attack()]


def _produce() -> Frames:
    api = apis.PRODUCE
    # Topics by name: the last version that has them.
    ask = functools.partial(request, api, version=12, transactional_id=None, acks=-1, name=COMPACTED)
    return [
        ask(1, 50, index=0, records=bomb()),
        ask(50, 1, index=0, records=bomb()),
        ask(1, 1, index=0, records=many_faults()),
        ask(1, 30_000, index=0),
        ask(30_000, 1, index=0),
    ]


def _describe_configs() -> Frames:
    api = apis.DESCRIBE_CONFIGS
    null_keys = request(api, 1, 0, resource_type=4, resource_name="1", include_synonyms=True)
    # A list of keys that is null asks for all of them: its length, 0 in compact form, is the byte 1 less.
    head, item_and_rest = null_keys[:12], null_keys[12:]
    item, rest = item_and_rest[:-3], item_and_rest[-3:]
    item = item[:-2] + b"\0\0"
    return [
        *[head[:-1] + length_bytes(times, True) + item * times + rest for times in (1_000, 2_200)],
        request(api, 2_000, 5, resource_type=2, resource_name=TOPIC, configuration_keys="retention.ms"),
        request(api, 1, 30_000, resource_type=2, resource_name=TOPIC, configuration_keys="retention.ms"),
        request(api, 10_000, 1, resource_type=2, resource_name=f"t-{MARK}", configuration_keys="x"),
    ]


def _api_versions() -> Frames:
    return [request(apis.API_VERSIONS, version=0)] * 8_000


def _consumer_group_heartbeat() -> Frames:
    ask = functools.partial(
        request,
        apis.CONSUMER_GROUP_HEARTBEAT,
        group_id=f"attacked-{MARK}",
        member_id="AAAAAAAAAAAAAAAAAAAAAA",
        rebalance_timeout=60_000,
    )
    patterns = [
        "(a|b)*" * 5_000,
        "(" * 10_000 + "a" + ")" * 10_000,
        "(a{1,30}){1,30}" * 3,
        "[a-z]{1000}" * 20,
        "a" * 32_000,
    ]
    return [
        *[ask(0, group_id=f"attacked-{number}", subscribed_topic_regex=text) for number, text in enumerate(patterns)],
        ask(30_000, 1, group_id="attacked-names", subscribed_topic_names=TOPIC),
        ask(30_000, 1, group_id="attacked-names-2", subscribed_topic_names="t"),
        ask(1, 30_000, group_id="attacked-owned", subscribed_topic_names=TOPIC),
    ]


def _join_group() -> Frames:
    ask = functools.partial(
        request, apis.JOIN_GROUP, version=3, session_timeout=6_000, rebalance_timeout=500, protocol_type="consumer"
    )
    return [
        ask(30_000, group_id="attacked-join-1", name="range"),
        ask(100, group_id="attacked-join-2", name="range", metadata=bytes(50_000)),
        *[ask(1, group_id="attacked-join-3", name="range", metadata=bytes(1_000))] * 3,
    ]


_GROUP: Final[dict[str, Any]] = {"group_id": "attacked-group", "member_id": "m"}

ATTACKS: Final[dict[Api, Callable[[], Frames]]] = {
    apis.PRODUCE: _produce,
    apis.FETCH: lambda: [
        request(apis.FETCH, 30_000, 1, version=12, topic=TOPIC, max_bytes=1 << 20, partition_max_bytes=1 << 20),
        request(apis.FETCH, 1, 30_000, version=12, topic=TOPIC, max_bytes=1 << 20, partition_max_bytes=1 << 20),
        request(apis.FETCH, 3_000, 10, version=12, topic=f"t-{MARK}", max_bytes=1 << 20),
        request(apis.FETCH, 1, 30_000, version=4, topic=TOPIC, max_bytes=1 << 20, min_bytes=1, max_wait=50),
    ],
    apis.LIST_OFFSETS: _on_topics(apis.LIST_OFFSETS, timestamp=-1),
    apis.METADATA: _both(
        _on_topics(apis.METADATA),
        lambda: [
            request(apis.METADATA, 150_000, version=8, name=f"t-{MARK}"),
            request(apis.METADATA, 600_000, version=4, name="t"),
        ],
    ),
    apis.OFFSET_COMMIT: _on_topics(apis.OFFSET_COMMIT, **_GROUP, committed_metadata="m" * 20),
    apis.OFFSET_FETCH: _both(
        _in_lists(apis.OFFSET_FETCH, group_id="attacked-group", name=TOPIC),
        lambda: [request(apis.OFFSET_FETCH, 1, 1, 30_000, group_id="attacked-group", name=TOPIC)],
    ),
    apis.FIND_COORDINATOR: _in_lists(apis.FIND_COORDINATOR, coordinator_keys="group"),
    apis.JOIN_GROUP: _join_group,
    apis.HEARTBEAT: _about_one(apis.HEARTBEAT, group_id=LONG, member_id=LONG),
    apis.LEAVE_GROUP: _in_lists(apis.LEAVE_GROUP, **_GROUP, reason="bored"),
    apis.SYNC_GROUP: lambda: [
        request(apis.SYNC_GROUP, 30_000, **_GROUP, assignment=b"a" * 20),
        request(apis.SYNC_GROUP, 100, **_GROUP, assignment=bytes(50_000)),
    ],
    apis.DESCRIBE_GROUPS: _in_lists(apis.DESCRIBE_GROUPS, groups="group"),
    apis.LIST_GROUPS: _in_lists(apis.LIST_GROUPS, 4_000, states_filter="Stable", types_filter="classic"),
    apis.API_VERSIONS: _api_versions,
    apis.CREATE_TOPICS: lambda: [
        request(
            apis.CREATE_TOPICS, 5_000, 0, name=f"t-{MARK}", num_partitions=1, replication_factor=1, validate_only=True
        ),
        request(apis.CREATE_TOPICS, 30_000, 0, name="t", num_partitions=1, replication_factor=1, validate_only=True),
        request(apis.CREATE_TOPICS, 1, 30_000, name="t", num_partitions=-1, replication_factor=-1, validate_only=True),
        request(apis.CREATE_TOPICS, 100, 30, 30, name=f"t-{MARK}", validate_only=True),
        request(apis.CREATE_TOPICS, 1, 0, name="t", num_partitions=2_000_000, replication_factor=1, validate_only=True),
    ],
    apis.DELETE_TOPICS: _in_lists(apis.DELETE_TOPICS, name="t", topic_names="t"),
    apis.DELETE_RECORDS: _on_topics(apis.DELETE_RECORDS, timeout=1_000),
    apis.INIT_PRODUCER_ID: _about_one(
        apis.INIT_PRODUCER_ID, 200, transactional_id=LONG, transaction_timeout=10_000, producer_id=-1
    ),
    apis.OFFSET_FOR_LEADER_EPOCH: _on_topics(apis.OFFSET_FOR_LEADER_EPOCH, current_leader_epoch=-1),
    apis.ADD_PARTITIONS_TO_TXN: _in_lists(
        apis.ADD_PARTITIONS_TO_TXN, transactional_id="txn", name=TOPIC, v3_and_below_transactional_id="txn"
    ),
    apis.ADD_OFFSETS_TO_TXN: _about_one(apis.ADD_OFFSETS_TO_TXN, group_id=LONG, transactional_id=LONG),
    apis.END_TXN: _about_one(apis.END_TXN, transactional_id=LONG),
    apis.WRITE_TXN_MARKERS: _in_lists(apis.WRITE_TXN_MARKERS, 10_000, name=TOPIC, producer_id=1),
    apis.TXN_OFFSET_COMMIT: _on_topics(
        apis.TXN_OFFSET_COMMIT, **_GROUP, transactional_id="txn", committed_metadata="m"
    ),
    apis.DESCRIBE_CONFIGS: _describe_configs,
    apis.ALTER_CONFIGS: lambda: [
        request(apis.ALTER_CONFIGS, 30_000, 0, resource_type=2, resource_name="t", validate_only=True),
        request(
            apis.ALTER_CONFIGS,
            3_000,
            10,
            resource_type=2,
            resource_name=TOPIC,
            name="retention.ms",
            value="1",
            validate_only=True,
        ),
        request(
            apis.ALTER_CONFIGS,
            1,
            30_000,
            resource_type=4,
            resource_name="1",
            name="max.connections",
            value="9",
            validate_only=True,
        ),
    ],
    apis.ALTER_REPLICA_LOG_DIRS: _on_topics(apis.ALTER_REPLICA_LOG_DIRS, path="/nowhere"),
    apis.DESCRIBE_LOG_DIRS: _on_topics(apis.DESCRIBE_LOG_DIRS),
    apis.CREATE_PARTITIONS: lambda: [
        request(apis.CREATE_PARTITIONS, 30_000, 0, name=TOPIC, count=PARTITIONS + 1, validate_only=True),
        request(apis.CREATE_PARTITIONS, 5_000, 1, 3, name=f"t-{MARK}", count=9, validate_only=True),
        request(apis.CREATE_PARTITIONS, 1, 30_000, 1, name=TOPIC, count=30_000 + PARTITIONS, validate_only=True),
    ],
    apis.DELETE_GROUPS: _in_lists(apis.DELETE_GROUPS, groups_names="group"),
    apis.INCREMENTAL_ALTER_CONFIGS: lambda: [
        request(apis.INCREMENTAL_ALTER_CONFIGS, 30_000, 0, resource_type=2, resource_name="t", validate_only=True),
        request(
            apis.INCREMENTAL_ALTER_CONFIGS,
            3_000,
            10,
            resource_type=2,
            resource_name=TOPIC,
            name="retention.ms",
            value="1",
            validate_only=True,
        ),
        request(
            apis.INCREMENTAL_ALTER_CONFIGS,
            1,
            30_000,
            resource_type=4,
            resource_name="1",
            name="max.connections",
            value="9",
            validate_only=True,
        ),
    ],
    apis.OFFSET_DELETE: _on_topics(apis.OFFSET_DELETE, **_GROUP),
    apis.DESCRIBE_CLUSTER: _about_one(apis.DESCRIBE_CLUSTER, endpoint_type=1),
    apis.DESCRIBE_PRODUCERS: _on_topics(apis.DESCRIBE_PRODUCERS),
    apis.DESCRIBE_TRANSACTIONS: _in_lists(apis.DESCRIBE_TRANSACTIONS, transactional_ids="txn"),
    apis.LIST_TRANSACTIONS: _both(
        _in_lists(apis.LIST_TRANSACTIONS, state_filters="Ongoing", producer_id_filters=1),
        lambda: [
            request(apis.LIST_TRANSACTIONS, 0, duration_filter=-1, transactional_id_pattern=text)
            for text in ("(a|b)*" * 5_000, "(" * 10_000 + ")" * 10_000, "(a+)+b", "a" * 32_000)
        ],
    ),
    apis.CONSUMER_GROUP_HEARTBEAT: _consumer_group_heartbeat,
    apis.CONSUMER_GROUP_DESCRIBE: _in_lists(apis.CONSUMER_GROUP_DESCRIBE, group_ids="group"),
    apis.DESCRIBE_TOPIC_PARTITIONS: _on_topics(apis.DESCRIBE_TOPIC_PARTITIONS, response_partition_limit=2**31 - 1),
}
"""What is sent to each API, one request after another."""
