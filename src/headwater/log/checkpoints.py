"""Kafka's small text files: offset checkpoints, leader epochs, whose a log dir and a partition's folder are.

Formats only, as text in and values out, and their reading and atomic writing; what the values mean is decided
elsewhere. Nonsense in a file raises `CheckpointError`; whoever reads decides what can be rebuilt.
"""

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from headwater.log.filesystem import FileSystem
from headwater.types import TopicPartition

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"


class CheckpointError(ValueError):
    """A checkpoint file that does not hold what it should."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path} cannot be read: {reason}")
        self.path = path
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """Whose a log dir is; `directory_id` is empty in folders made before Kafka gave log dirs an id."""

    version: int
    cluster_id: str
    node_id: int | None
    directory_id: str


def read_offsets(fs: FileSystem, path: str) -> dict[TopicPartition, int]:
    """Offsets by partition; empty when the file is absent."""
    offsets: dict[TopicPartition, int] = {}
    for line in _read_entries(fs, path):
        fields = line.rsplit(" ", 2)
        if len(fields) != 3:
            raise CheckpointError(path, f"the line {line!r} is not 'topic partition offset'")
        offsets[TopicPartition(fields[0], _number(path, fields[1]))] = _number(path, fields[2])
    return offsets


def write_offsets(fs: FileSystem, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace an offset checkpoint; it is on the device when this returns."""
    _write_entries(fs, path, (f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items()), durable=True)


def read_leader_epochs(fs: FileSystem, path: str) -> list[tuple[int, int]]:
    """Pairs of epoch and start offset, as written; empty when the file is absent."""
    entries = []
    for line in _read_entries(fs, path):
        fields = line.split(" ")
        if len(fields) != 2:
            raise CheckpointError(path, f"the line {line!r} is not 'epoch offset'")
        entries.append((_number(path, fields[0]), _number(path, fields[1])))
    return entries


def write_leader_epochs(fs: FileSystem, path: str, entries: Iterable[tuple[int, int]]) -> None:
    """Replace the leader epochs; the caller syncs them to the device in its own time."""
    _write_entries(fs, path, (f"{epoch} {offset}" for epoch, offset in entries), durable=False)


def _read_entries(fs: FileSystem, path: str) -> list[str]:
    try:
        text = fs.read_file(path).decode()
    except FileNotFoundError:
        return []
    except UnicodeDecodeError as error:
        raise CheckpointError(path, "it is not text") from error
    lines = text.split("\n")
    if len(lines) < 2:
        raise CheckpointError(path, "it has no version and count")
    version, count = _number(path, lines[0]), _number(path, lines[1])
    if version != 0:
        raise CheckpointError(path, f"its version is {version}, only 0 is known")
    entries = [line for line in lines[2:] if line]
    if len(entries) != count:
        raise CheckpointError(path, f"it announces {count} entries and holds {len(entries)}")
    return entries


def _write_entries(fs: FileSystem, path: str, entries: Iterable[str], *, durable: bool) -> None:
    lines = list(entries)
    text = "\n".join(["0", str(len(lines)), *lines, ""])
    fs.replace_file(path, text.encode(), durable=durable)


def _number(path: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise CheckpointError(path, f"{text[:40]!r} is not a number") from error


def uuid_to_text(value: UUID) -> str:
    """Kafka's way to write an id: 22 characters of URL-safe base 64."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def uuid_from_text(text: str) -> UUID:
    """The id behind Kafka's 22 characters; ValueError for anything else."""
    raw = base64.urlsafe_b64decode(text + "==")
    return UUID(bytes=raw)


def read_topic_id(fs: FileSystem, path: str) -> UUID | None:
    """The topic id in a `partition.metadata` file; None when the file is absent."""
    try:
        lines = fs.read_file(path).decode().splitlines()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise CheckpointError(path, "it is not text") from error
    fields = dict(line.split(": ", 1) for line in lines if ": " in line)
    try:
        return uuid_from_text(fields["topic_id"].strip())
    except (KeyError, ValueError) as error:
        raise CheckpointError(path, "it holds no topic id") from error


def write_topic_id(fs: FileSystem, path: str, topic_id: UUID) -> None:
    """Write a `partition.metadata` file; it can be written again, so it is not forced to the device."""
    fs.replace_file(path, f"version: 0\ntopic_id: {uuid_to_text(topic_id)}".encode(), durable=False)


def read_meta_properties(fs: FileSystem, path: str) -> MetaProperties | None:
    """Whose log dir this is (versions 0 and 1); None when the file is absent."""
    try:
        text = fs.read_file(path).decode("latin-1")
    except FileNotFoundError:
        return None
    fields = {}
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith(("#", "!")):
            name, _, value = line.partition("=")
            fields[name.strip()] = value.strip().replace("\\", "")
    version = _number(path, fields.get("version", ""))
    if version not in (0, 1):
        raise CheckpointError(path, f"its version is {version}, only 0 and 1 are known")
    node_id = fields.get("node.id" if version else "broker.id")
    return MetaProperties(
        version=version,
        cluster_id=fields.get("cluster.id", ""),
        node_id=None if node_id is None else _number(path, node_id),
        directory_id=fields.get("directory.id", ""),
    )


def write_meta_properties(fs: FileSystem, path: str, properties: MetaProperties) -> None:
    """Write whose log dir this is, always as version 1."""
    lines = [
        "#",
        f"node.id={properties.node_id}",
        f"directory.id={properties.directory_id}",
        "version=1",
        f"cluster.id={properties.cluster_id}",
        "",
    ]
    fs.replace_file(path, "\n".join(lines).encode("latin-1"))


def write_clean_shutdown(fs: FileSystem, path: str, broker_epoch: int = -1) -> None:
    """Leave the mark that says all logs of this dir were closed in order."""
    fs.replace_file(path, json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode())
