"""The records of `__transaction_state`: one for each transactional id, Kafka 4.1's format."""

from dataclasses import dataclass
from typing import Final

from headwater.coordinator.outcome import CoordinatorRecord
from headwater.coordinator.schema import (
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    CorruptRecordError,
    Field,
    Reader,
    Struct,
    array,
)


@dataclass(frozen=True, slots=True)
class TransactionKey:
    """A transactional id."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class TopicPartitions:
    """Partitions of one topic that take part in a transaction."""

    topic: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionValue:
    """Everything that is kept of a transactional id."""

    producer_id: int
    previous_producer_id: int = -1
    next_producer_id: int = -1
    producer_epoch: int
    next_producer_epoch: int = -1
    timeout_ms: int
    status: int
    partitions: tuple[TopicPartitions, ...] | None
    """None, not empty, when the transaction has none."""
    last_update_ms: int
    start_ms: int
    client_transaction_version: int = 0


_KEY: Final = Struct(TransactionKey, Field("transactional_id", STRING))
_PARTITIONS: Final = Struct(
    TopicPartitions, Field("topic", STRING), Field("partitions", array(INT32)), flexible_since=1
)
_VALUE: Final = Struct(
    TransactionValue,
    Field("producer_id", INT64),
    Field("previous_producer_id", INT64, since=1, tag=0),
    Field("next_producer_id", INT64, since=1, tag=1),
    Field("producer_epoch", INT16),
    Field("next_producer_epoch", INT16, since=1, tag=3),
    Field("timeout_ms", INT32),
    Field("status", INT8),
    Field("partitions", array(_PARTITIONS.kind)),
    Field("last_update_ms", INT64),
    Field("start_ms", INT64),
    Field("client_transaction_version", INT16, since=1, tag=2),
    flexible_since=1,
)
_KEY_NUMBER: Final = 0
_WRITTEN_VERSION: Final = 1


def encode(transactional_id: str, value: TransactionValue | None) -> CoordinatorRecord:
    """The record of a transactional id; a tombstone without a value."""
    encoded = None if value is None else _VALUE.encode(value, _WRITTEN_VERSION)
    key = _KEY.encode(TransactionKey(transactional_id), _KEY_NUMBER)
    return CoordinatorRecord(key, encoded, (transactional_id, value))


def decode(key: bytes, value: bytes | None) -> tuple[str, TransactionValue | None] | None:
    """The transactional id and its value; None for a key of another kind. CorruptRecordError for damaged bytes."""
    number = INT16.read(Reader(key), 0, False)
    if number != _KEY_NUMBER:
        if number < 0:
            raise CorruptRecordError(f"a key begins with {number}")
        return None
    transactional_id = _KEY.decode(key, _KEY_NUMBER).transactional_id
    return transactional_id, None if value is None else _VALUE.decode(value, _WRITTEN_VERSION)
