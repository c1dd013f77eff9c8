"""A raw tester: any request in any version over a plain socket, and the decoded answer. No retries, no cache.

Requests are given as plain values; what a version has no field for is left out of it, so that one description
serves all versions. Times are milliseconds. An answer must be consumed to its last byte, or it is not of the
shape that it claims.
"""

import dataclasses
import datetime
import enum
import io
import itertools
import socket
import struct
import types
import uuid
from collections.abc import Mapping
from typing import Any, Self, get_args, get_origin

from kio.index import load_request_schema
from kio.serial import entity_reader, entity_writer

# The class of DescribeTransactions' answer is headwater's: kio cannot read the time of a transaction that never began.
from headwater.protocol.messages import response_type

# What Apache Kafka 4.1 serves of the APIs that headwater serves: key, oldest and newest version.
APIS: Mapping[str, tuple[int, int, int]] = {
    "produce": (0, 3, 13),
    "fetch": (1, 4, 18),
    "list_offsets": (2, 1, 10),
    "metadata": (3, 0, 13),
    "offset_commit": (8, 2, 9),
    "offset_fetch": (9, 1, 9),
    "find_coordinator": (10, 0, 6),
    "join_group": (11, 0, 9),
    "heartbeat": (12, 0, 4),
    "leave_group": (13, 0, 5),
    "sync_group": (14, 0, 5),
    "describe_groups": (15, 0, 6),
    "list_groups": (16, 0, 5),
    "api_versions": (18, 0, 4),
    "create_topics": (19, 2, 7),
    "delete_topics": (20, 1, 6),
    "delete_records": (21, 0, 2),
    "init_producer_id": (22, 0, 5),
    "offset_for_leader_epoch": (23, 2, 4),
    "add_partitions_to_txn": (24, 0, 5),
    "add_offsets_to_txn": (25, 0, 4),
    "end_txn": (26, 0, 5),
    "write_txn_markers": (27, 1, 1),
    "txn_offset_commit": (28, 0, 5),
    "describe_configs": (32, 1, 4),
    "alter_configs": (33, 0, 2),
    "alter_replica_log_dirs": (34, 1, 2),
    "describe_log_dirs": (35, 1, 4),
    "create_partitions": (37, 0, 3),
    "delete_groups": (42, 0, 2),
    "incremental_alter_configs": (44, 0, 1),
    "offset_delete": (47, 0, 0),
    "describe_cluster": (60, 0, 2),
    "describe_producers": (61, 0, 0),
    "describe_transactions": (65, 0, 0),
    "list_transactions": (66, 0, 2),
    "consumer_group_heartbeat": (68, 0, 1),
    "consumer_group_describe": (69, 0, 1),
    "describe_topic_partitions": (75, 0, 0),
}


class ConnectionClosedError(Exception):
    """The broker closed the connection instead of answering."""


class Wire:
    """One connection to a broker.

    >>> with Wire("127.0.0.1:9092") as wire:
    ...     wire.send("metadata", topics=[{"name": "orders"}]).topics[0].error_code
    """

    def __init__(self, bootstrap: str, *, timeout_s: float = 30) -> None:
        self.bootstrap = bootstrap
        host, port = bootstrap.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        self._correlation_ids = itertools.count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, api: str, version: int | None = None, /, **values: Any) -> Any:
        """Sends one request (in the newest version unless told) and returns the answer as kio's object."""
        key, _, newest = APIS[api]
        version = newest if version is None else version
        return self.receive(key, version, self.send_only(api, version, **values))

    def send_only(self, api: str, version: int | None = None, /, **values: Any) -> int:
        """Sends without waiting for an answer, as for acks=0; returns the correlation id."""
        key, _, newest = APIS[api]
        version = newest if version is None else version
        correlation_id = next(self._correlation_ids)
        self.send_bytes(request_bytes(key, version, correlation_id, values))
        return correlation_id

    def send_bytes(self, body: bytes) -> None:
        """Sends any bytes as one frame."""
        self.socket.sendall(struct.pack(">i", len(body)) + body)

    def receive(self, key: int, version: int, correlation_id: int) -> Any:
        """Reads the next answer, which must be to this request and exactly as long as its schema says."""
        body = self.receive_bytes()
        schema: Any = response_type(key, version)
        header, position = entity_reader(schema.__header_schema__)(body, 0)
        assert header.correlation_id == correlation_id, (header, correlation_id)
        answer, size = entity_reader(schema)(body, position)
        assert position + size == len(body), f"{len(body) - position - size} bytes too many after {answer}"
        return answer

    def receive_bytes(self) -> bytes:
        """Reads the next frame."""
        (size,) = struct.unpack(">i", self._read(4))
        return self._read(size)

    def is_closed_by_peer(self) -> bool:
        """Whether the broker ends the connection, without a further answer, before the time-out."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False

    def _read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            received = self.socket.recv(size - len(parts))
            if not received:
                raise ConnectionClosedError(f"after {len(parts)} of {size} bytes")
            parts += received
        return bytes(parts)


def request_bytes(key: int, version: int, correlation_id: int, values: Mapping[str, Any]) -> bytes:
    """The header and body of a request."""
    schema: Any = load_request_schema(key, version)
    header_schema: Any = schema.__header_schema__
    _, oldest, newest = next(entry for entry in APIS.values() if entry[0] == key)
    known = _field_names(load_request_schema(key, oldest)) | _field_names(load_request_schema(key, newest))
    header = header_schema(
        request_api_key=key, request_api_version=version, correlation_id=correlation_id, client_id="wire"
    )
    parts = io.BytesIO()
    entity_writer(header_schema)(parts, header)
    entity_writer(schema)(parts, build(schema, values, known))
    return parts.getvalue()


def build(schema: Any, values: Mapping[str, Any], known: frozenset[str]) -> Any:
    """An object of this schema. Fields not given get their default, or nought; unknown names are errors."""
    if stray := values.keys() - _field_names(schema) - known:
        raise ValueError(f"{schema.__name__} has no {', '.join(sorted(stray))} in any version")
    arguments = {}
    for field in dataclasses.fields(schema):
        if field.name in values:
            arguments[field.name] = _to_wire(field.type, values[field.name], known)
        elif field.default is dataclasses.MISSING:
            arguments[field.name] = _nought(field.type)
    return schema(**arguments)


def plain(value: Any) -> Any:
    """kio's objects as dicts, lists, numbers and error names, for comparing two answers as wholes."""
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, uuid.UUID):
        return str(value)
    return value


def _inner_type(annotation: Any) -> Any:
    if isinstance(annotation, types.UnionType):
        return next(part for part in get_args(annotation) if part is not type(None))
    return annotation


def _to_wire(annotation: Any, value: Any, known: frozenset[str]) -> Any:
    annotation = _inner_type(annotation)
    if value is None:
        return None
    if get_origin(annotation) is tuple:
        return tuple(_to_wire(get_args(annotation)[0], item, known) for item in value)
    if dataclasses.is_dataclass(annotation):
        return build(annotation, value, known)
    if issubclass(annotation, datetime.timedelta):
        return datetime.timedelta(milliseconds=value)
    if issubclass(annotation, uuid.UUID):
        return uuid.UUID(str(value))
    return value


def _nought(annotation: Any) -> Any:
    if isinstance(annotation, types.UnionType):
        return None
    if get_origin(annotation) is tuple:
        return ()
    if issubclass(annotation, uuid.UUID):
        return uuid.UUID(int=0)
    for base in (bool, int, str, bytes, datetime.timedelta):
        if issubclass(annotation, base):
            return base()
    raise ValueError(f"no value to fill in for {annotation}")


def _field_names(schema: Any) -> frozenset[str]:
    names: set[str] = set()
    for field in dataclasses.fields(schema):
        names.add(field.name)
        inner = _inner_type(field.type)
        if get_origin(inner) is tuple:
            inner = get_args(inner)[0]
        if dataclasses.is_dataclass(inner):
            names |= _field_names(inner)
    return frozenset(names)
