"""The lines of batches and records in a dump: Kafka's words, in Kafka's order."""

import struct
from typing import TYPE_CHECKING, Final

from headwater.log.producer_state import LARGEST_SEQUENCE
from headwater.log.segment import StoredBatch
from headwater.protocol.records import NO_SEQUENCE, BatchHeader, Record, crc_is_valid

if TYPE_CHECKING:
    from headwater.log.inspection.dump import Decoder

_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_CONTROL_TYPES: Final = {0: "ABORT", 1: "COMMIT", 2: "LEADER_CHANGE", 3: "SNAPSHOT_HEADER", 4: "SNAPSHOT_FOOTER"}
_CONTROL_KEY: Final = struct.Struct(">hh")
_COORDINATOR_EPOCH: Final = struct.Struct(">2xi")


def batch_line(stored: StoredBatch) -> str:
    """A batch in one line."""
    header = stored.header
    compression = header.compression
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.records_count}"
        f" baseSequence: {header.base_sequence} lastSequence: {header.last_sequence}"
        f" producerId: {header.producer_id} producerEpoch: {header.producer_epoch}"
        f" partitionLeaderEpoch: {header.leader_epoch} isTransactional: {_java(header.is_transactional)}"
        f" isControl: {_java(header.is_control)} deleteHorizonMs: {optional(header.delete_horizon_ms)}"
        f" position: {stored.position} {_time_type(header)}: {header.max_timestamp_ms}"
        f" size: {header.size} magic: {header.magic}"
        f" compresscodec: {_CODECS[compression] if compression < len(_CODECS) else compression}"
        f" crc: {header.crc} isvalid: {_java(crc_is_valid(stored.buffer, header))}"
    )


def record_line(record: Record, header: BatchHeader, *, decoder: "Decoder | None", with_metadata: bool) -> str:
    """A record in one line, though key and value may hold line ends of their own."""
    line, indent = "", "| "
    if with_metadata:
        names = ",".join(name for name, _ in record.headers)
        line = (
            f"| offset: {record.offset} {_time_type(header)}: {record.timestamp_ms}"
            f" keySize: {_size(record.key)} valueSize: {_size(record.value)}"
            f" sequence: {_sequence(record, header)} headerKeys: [{names}]"
        )
        indent = " "
        if header.is_control:
            line += _control_words(record)
    if decoder is not None and not header.is_control:
        key, value = decoder(record)
        if key is not None:
            line += f"{indent}key: {key}"
        if value is not None:
            line += f" payload: {value}"
    return line


def optional(number: int | None) -> str:
    """A number that may be absent, as Java writes it."""
    return "OptionalLong.empty" if number is None else f"OptionalLong[{number}]"


def _java(value: bool) -> str:
    return "true" if value else "false"


def _time_type(header: BatchHeader) -> str:
    return "LogAppendTime" if header.is_log_append_time else "CreateTime"


def _size(content: bytes | None) -> int:
    return -1 if content is None else len(content)


def _sequence(record: Record, header: BatchHeader) -> int:
    if header.base_sequence < 0:
        return NO_SEQUENCE
    return (header.base_sequence + record.offset - header.base_offset) % (LARGEST_SEQUENCE + 1)


def _control_words(record: Record) -> str:
    if record.key is None or len(record.key) < _CONTROL_KEY.size:
        return ""
    _, number = _CONTROL_KEY.unpack_from(record.key)
    name = _CONTROL_TYPES.get(number, "UNKNOWN")
    if name in ("ABORT", "COMMIT") and record.value is not None and len(record.value) >= _COORDINATOR_EPOCH.size:
        return f" endTxnMarker: {name} coordinatorEpoch: {_COORDINATOR_EPOCH.unpack_from(record.value)[0]}"
    return f" controlType: {name}({number})"
