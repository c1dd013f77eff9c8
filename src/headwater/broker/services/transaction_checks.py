"""KIP-890's checks: what is written in a transaction's name belongs to one that its coordinator knows to be open.

Newer clients leave it to the broker to add a partition at the first write; for older ones it is verified that they did.
"""

from typing import TYPE_CHECKING, Final

from headwater.broker.services.clock import now_ms
from headwater.broker.services.partition import Partition
from headwater.coordinator.outcome import Caller
from headwater.protocol.errors import ApiError, ErrorCode
from headwater.protocol.records import BatchHeader
from headwater.types import TopicPartition

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

_LATER: Final = frozenset(
    (
        ErrorCode.concurrent_transactions,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    )
)
"""Errors of the coordinator after which a client should try its Produce again; not all clients know that of them."""

_PRODUCE_KNOWS_ABORTABLE_SINCE: Final = 11
_PRODUCE_ADDS_SINCE: Final = 12
_SELF: Final = Caller(version=5, client_id="", host="")


def admit_to_transaction(
    broker: "Broker",
    partition: TopicPartition,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    *,
    add: bool,
    knows_abortable: bool,
) -> Partition | None:
    """Sees to it that `partition` is part of the producer's open transaction; ApiError when it cannot be.

    Clients that do not know TRANSACTION_ABORTABLE hear INVALID_TXN_STATE.

    The partition of `__transaction_state` that has to be flushed before what rests on it is acknowledged, if any.
    """
    running = broker.transactions.running(transactional_id)
    partitions = frozenset((partition,))
    flush_needed = False
    if add:
        outcome = running.shard.add_partitions(
            transactional_id, producer_id, producer_epoch, partitions, _SELF, now_ms(), transaction_version=2
        )
        error_code = outcome.response
        try:
            flush_needed = running.write(outcome)
        except OSError as error:
            failure = broker.failures.storage_error(running.partition.log, "append to", error)
            raise ApiError(ErrorCode.coordinator_not_available, failure.message) from error
    elif broker.config.transaction_partition_verification_enable:
        found = running.shard.verify_partitions(transactional_id, producer_id, producer_epoch, partitions)
        error_code = found[partition]
    else:
        error_code = ErrorCode.none
    if error_code is ErrorCode.producer_fenced:
        error_code = ErrorCode.invalid_producer_epoch
    elif error_code is ErrorCode.transaction_abortable and not knows_abortable:
        error_code = ErrorCode.invalid_txn_state
    if error_code is not ErrorCode.none:
        raise ApiError(
            error_code, f"producer {producer_id} has no open transaction with {partition} at its coordinator"
        )
    return running.partition if flush_needed else None


def admit_batch(
    broker: "Broker",
    partition: Partition,
    transactional_id: str | None,
    header: BatchHeader,
    *,
    version: int,
) -> Partition | None:
    """The same for a batch that a producer sends; one that goes on with an open transaction needs no look."""
    if transactional_id is None:
        raise ApiError(
            ErrorCode.transactional_id_authorization_failed,
            "a transactional batch in a request without an id",
        )
    log = partition.log
    if log.has_open_transaction(header.producer_id, header.producer_epoch):
        return None
    add = version >= _PRODUCE_ADDS_SINCE
    try:
        to_flush = admit_to_transaction(
            broker,
            log.topic_partition,
            transactional_id,
            header.producer_id,
            header.producer_epoch,
            add=add,
            knows_abortable=version >= _PRODUCE_KNOWS_ABORTABLE_SINCE,
        )
    except ApiError as error:
        if error.code in _LATER:
            raise ApiError(ErrorCode.not_enough_replicas, f"{error.message}; try again") from error
        raise
    if add and header.base_sequence != 0 and not log.knows_producer(header.producer_id):
        raise ApiError(
            ErrorCode.out_of_order_sequence_number,
            f"producer {header.producer_id} begins in {log.topic_partition} with sequence {header.base_sequence}",
        )
    return to_flush
