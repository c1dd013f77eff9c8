"""One partition of `__transaction_state`: its transactional ids, and every decision about their transactions.

Behaves as Apache Kafka 4.1 with transaction.version 2 (KIP-890), towards clients of that version and older ones.
Decides and replays, and does nothing else: the runtime appends, and writes the markers that a decision calls for. All
state is what the records say, so a restart forgets nothing. Where it is safer than Apache:
- InitProducerId with an epoch that is not the current one never aborts the open transaction of a newer instance;
- an end that an instance repeats is not taken for that of a newer instance, which would hand out the newer's epoch;
- what tells that a request is repeated is in the record: a restart in between does not shut its sender out;
- fencing the last epoch changes the producer id at once, so nobody is ever given epoch 32767.
"""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Final

from headwater.config.broker_attributes import BrokerAttributes
from headwater.coordinator.deadlines import Deadlines
from headwater.coordinator.outcome import Answer, Caller, CoordinatorRecord, Markers, Outcome, ProducerIdentity
from headwater.coordinator.transaction import listing, records
from headwater.coordinator.transaction.listing import TransactionFilter
from headwater.coordinator.transaction.states import (
    END_BY_OLDER_CLIENT,
    END_WITH_CURRENT_EPOCH,
    END_WITH_PREVIOUS_EPOCH,
    EXPIRABLE,
    TransactionState,
    Verdict,
)
from headwater.coordinator.transaction.transaction import EPOCH_RISES_SINCE, NO_PRODUCER_ID, Transaction
from headwater.protocol.errors import ApiError
from headwater.protocol.kafka_types import NO_THROTTLE, ErrorCode, ProducerId, i16
from headwater.protocol.transaction_descriptions import TransactionState as DescribedTransaction
from headwater.types import TopicPartition

from kio.schema.end_txn.v5.request import EndTxnRequest  # isort: skip
from kio.schema.end_txn.v5.response import EndTxnResponse  # isort: skip
from kio.schema.init_producer_id.v5.request import InitProducerIdRequest  # isort: skip
from kio.schema.init_producer_id.v5.response import InitProducerIdResponse  # isort: skip
from kio.schema.list_transactions.v2.response import TransactionState as ListedTransaction  # isort: skip

_MILLISECOND: Final = timedelta(milliseconds=1)
_NOBODY: Final = ProducerIdentity(-1, -1)
_EPOCH_RISES_SINCE_END_TXN: Final = 5
# The versions since which clients know PRODUCER_FENCED; older ones are told INVALID_PRODUCER_EPOCH.
_INIT_KNOWS_FENCED: Final = 4
_OTHERS_KNOW_FENCED: Final = 2
_TOMBSTONES_AT_ONCE: Final = 10_000


class TransactionShard:
    """The transactional ids of one partition, and what becomes of their transactions."""

    def __init__(
        self,
        *,
        config: Callable[[], BrokerAttributes],
        take_producer_id: Callable[[], int],
        coordinator_epoch: Callable[[], int],
    ) -> None:
        self._config: Final = config
        self._take_producer_id: Final = take_producer_id
        self._coordinator_epoch: Final = coordinator_epoch
        self._transactions: Final[dict[str, Transaction]] = {}
        # Neither is cancelled when a transaction ends: a deadline that is only ever moved costs no memory.
        self._timeouts: Final = Deadlines[str]()
        self._unused_since: Final = Deadlines[str]()

    def init_producer_id(self, request: InitProducerIdRequest, caller: Caller, now_ms: int) -> Outcome:
        """InitProducerId: an instance takes a transactional id over, or (v3, KIP-360) goes on with a new epoch.

        A transaction that is open is aborted first; the caller is told to come again, and gets its epoch then.
        """
        try:
            return self._initialize(request, now_ms)
        except ApiError as error:
            return Outcome(response=_initialized(_known_code(error, caller, _INIT_KNOWS_FENCED)))

    def _initialize(self, request: InitProducerIdRequest, now_ms: int) -> Outcome:
        transactional_id = request.transactional_id
        shown = ProducerIdentity(request.producer_id, request.producer_epoch)
        timeout_ms = request.transaction_timeout // _MILLISECOND
        if not transactional_id or (shown.producer_id == -1) != (shown.producer_epoch == -1):
            raise ApiError(ErrorCode.invalid_request)
        if not 0 < timeout_ms <= self._config().transaction_max_timeout_ms:
            raise ApiError(ErrorCode.invalid_transaction_timeout)
        before = self._transactions.get(transactional_id)
        if before is None:
            after = Transaction.new(self._take_producer_id(), timeout_ms, now_ms)
        else:
            _refuse_while_prepared(before)
            if shown not in (_NOBODY, before.identity, before.previous_identity):
                raise ApiError(ErrorCode.producer_fenced)
            if before.state is TransactionState.ONGOING:
                return self._fence(
                    transactional_id, before, now_ms, response=_initialized(ErrorCode.concurrent_transactions)
                )
            is_repeated = shown == before.previous_identity
            identity = before.identity if is_repeated else self._next_identity(before)
            after = before.initialized(identity, shown.producer_id, timeout_ms, now_ms)
        return Outcome(
            response=_initialized(ErrorCode.none, after.identity),
            records=[records.encode(transactional_id, after.to_value())],
        )

    def _next_identity(self, before: Transaction) -> ProducerIdentity:
        if before.is_last_epoch:
            return ProducerIdentity(self._take_producer_id(), 0)
        return ProducerIdentity(before.producer_id, before.producer_epoch + 1)

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: frozenset[TopicPartition],
        caller: Caller,
        now_ms: int,
        *,
        transaction_version: int = 0,
    ) -> Outcome:
        """AddPartitionsToTxn and AddOffsetsToTxn; the response is an ErrorCode.

        `transaction_version` is 2 when a broker adds them for a client that leaves it to it: AddPartitionsToTxn from v4
        on, and the first write of such a client to a partition.
        """
        try:
            before = self._of_producer(transactional_id, producer_id, producer_epoch)
        except ApiError as error:
            return Outcome(response=_known_code(error, caller, _OTHERS_KNOW_FENCED))
        if before.state is TransactionState.ONGOING and partitions <= before.partitions:
            return Outcome(response=ErrorCode.none)
        after = before.with_partitions(partitions, transaction_version, now_ms)
        return Outcome(response=ErrorCode.none, records=[records.encode(transactional_id, after.to_value())])

    def verify_partitions(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: frozenset[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether each partition is part of the producer's open transaction; TRANSACTION_ABORTABLE where it is not."""
        try:
            transaction = self._of_producer(transactional_id, producer_id, producer_epoch)
        except ApiError as error:
            return dict.fromkeys(partitions, error.code)
        return {
            partition: ErrorCode.none if partition in transaction.partitions else ErrorCode.transaction_abortable
            for partition in partitions
        }

    def end(self, request: EndTxnRequest, caller: Caller, now_ms: int) -> Outcome:
        """EndTxn: a transaction commits or aborts. v5 answers with the identity that the producer goes on with."""
        try:
            return self._end(request, caller.version >= _EPOCH_RISES_SINCE_END_TXN, now_ms)
        except ApiError as error:
            return Outcome(response=_ended(_known_code(error, caller, _OTHERS_KNOW_FENCED)))

    def _end(self, request: EndTxnRequest, rises: bool, now_ms: int) -> Outcome:
        transactional_id, commit = request.transactional_id, request.committed
        before = self._known(transactional_id)
        _refuse_while_prepared(before)
        shown = ProducerIdentity(request.producer_id, request.producer_epoch)
        verdict = _verdict_on_end(before, shown, commit, rises)
        if verdict is Verdict.REFUSE:
            raise ApiError(ErrorCode.invalid_txn_state)
        if verdict is Verdict.AGAIN:
            return Outcome(response=_ended(ErrorCode.none, before.identity if rises else _NOBODY))
        after = before.prepared(
            commit=commit,
            version=EPOCH_RISES_SINCE if rises else 0,
            next_producer_id=self._take_producer_id() if rises and before.is_last_epoch else NO_PRODUCER_ID,
            now_ms=now_ms,
        )
        response = _ended(ErrorCode.none, after.identity_after_end if rises else _NOBODY)
        return self._prepare(transactional_id, after, response)

    def markers_written(self, markers: Markers, now_ms: int) -> Outcome:
        """A prepared transaction is complete.

        To be called when no partition needs its marker any more: it was written, its topic is gone, or the partition
        refused it for good because it knows a newer epoch. Markers that ended before change nothing.
        """
        before = self._transactions.get(markers.transactional_id)
        marked = ProducerIdentity(markers.producer_id, markers.producer_epoch)
        if before is None or not before.is_prepared or before.identity != marked:
            return Outcome()
        return Outcome(records=[records.encode(markers.transactional_id, before.completed(now_ms).to_value())])

    def abort_timed_out(self, now_ms: int) -> Iterator[Outcome]:
        """Aborts every transaction that lasts longer than its producer asked for, with a new epoch."""
        for transactional_id in self._timeouts.due(now_ms):
            transaction = self._transactions.get(transactional_id)
            times_out_ms = transaction.times_out_ms if transaction else None
            if transaction is None or times_out_ms is None:
                continue
            # It stays due until an abort is written: this one may fail.
            self._timeouts.set(transactional_id, times_out_ms)
            if times_out_ms <= now_ms:
                try:
                    aborted = self._fence(transactional_id, transaction, now_ms)
                except ApiError:
                    continue  # There is no producer id to be had just now.
                yield aborted

    def expire_ids(self, now_ms: int) -> Outcome:
        """Forgets transactional ids that nobody used for `transactional.id.expiration.ms`, some thousands at a time."""
        expired: list[str] = []
        for transactional_id in self._unused_since.due(now_ms - self._config().transactional_id_expiration_ms):
            transaction = self._transactions[transactional_id]
            # It stays due until a tombstone is replayed.
            self._unused_since.set(transactional_id, transaction.last_update_ms)
            if transaction.state in EXPIRABLE and len(expired) < _TOMBSTONES_AT_ONCE:
                expired.append(transactional_id)
        return Outcome(records=[records.encode(transactional_id, None) for transactional_id in expired])

    def list_transactions(self, wanted: TransactionFilter, now_ms: int) -> Iterator[ListedTransaction | None]:
        """What ListTransactions tells of this shard, id by id; None for every pause in between."""
        return listing.listed(self._transactions.copy(), wanted, now_ms)

    def describe(self, transactional_id: str) -> DescribedTransaction:
        """What DescribeTransactions tells of an id; TRANSACTIONAL_ID_NOT_FOUND stands in it when it is not known."""
        return listing.described(transactional_id, self._transactions.get(transactional_id))

    def replay(self, record: CoordinatorRecord, *, producer_id: int = -1) -> None:
        """Takes in a record of the log; CorruptRecordError when it is none."""
        decoded = record.meaning or records.decode(record.key, record.value)
        if decoded is None:
            return
        transactional_id, content = decoded
        if content is None:
            self._transactions.pop(transactional_id, None)
            self._timeouts.cancel(transactional_id)
            self._unused_since.cancel(transactional_id)
            return
        transaction = self._transactions[transactional_id] = Transaction.from_value(content)
        self._unused_since.set(transactional_id, transaction.last_update_ms)
        times_out_ms = transaction.times_out_ms
        if times_out_ms is not None:
            self._timeouts.set(transactional_id, times_out_ms)

    def replay_end_marker(self, producer_id: int, committed: bool) -> None:
        """Nothing: transactions never write to this log."""

    def loaded(self, now_ms: int) -> Iterator[Outcome]:
        """Transactions that were decided and are not known to be complete get their markers, perhaps again."""
        for transactional_id, transaction in list(self._transactions.items()):
            if transaction.is_prepared:
                yield Outcome(markers=[self._markers(transactional_id, transaction)])

    def next_deadline_ms(self) -> None:
        """None: the runtime calls `abort_timed_out` and `expire_ids` at the intervals that Kafka has settings for."""

    def on_time(self, now_ms: int) -> Iterator[Outcome]:
        """Nothing is due by itself."""
        return iter(())

    def unload(self) -> list[Answer]:
        """Nobody waits here."""
        return []

    def _known(self, transactional_id: str) -> Transaction:
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            raise ApiError(ErrorCode.invalid_producer_id_mapping if transactional_id else ErrorCode.invalid_request)
        return transaction

    def _of_producer(self, transactional_id: str, producer_id: int, producer_epoch: int) -> Transaction:
        """The transaction that a producer may go on with."""
        transaction = self._known(transactional_id)
        _refuse_while_prepared(transaction)
        _check_producer(transaction, ProducerIdentity(producer_id, producer_epoch))
        return transaction

    def _fence(
        self,
        transactional_id: str,
        before: Transaction,
        now_ms: int,
        response: InitProducerIdResponse | None = None,
    ) -> Outcome:
        """Aborts an open transaction that its producer did not end. No client is told the epoch that it gets."""
        after = before.prepared(
            commit=False,
            version=EPOCH_RISES_SINCE,
            next_producer_id=self._take_producer_id() if before.is_last_epoch else NO_PRODUCER_ID,
            now_ms=now_ms,
        )
        return self._prepare(transactional_id, after, response)

    def _prepare(
        self, transactional_id: str, after: Transaction, response: InitProducerIdResponse | EndTxnResponse | None
    ) -> Outcome:
        return Outcome(
            response=response,
            records=[records.encode(transactional_id, after.to_value())],
            markers=[self._markers(transactional_id, after)],
        )

    def _markers(self, transactional_id: str, prepared: Transaction) -> Markers:
        return Markers(
            transactional_id=transactional_id,
            producer_id=prepared.producer_id,
            producer_epoch=prepared.producer_epoch,
            coordinator_epoch=self._coordinator_epoch(),
            commit=prepared.state is TransactionState.PREPARE_COMMIT,
            partitions=prepared.partitions,
        )


def _refuse_while_prepared(transaction: Transaction) -> None:
    if transaction.is_prepared:
        raise ApiError(ErrorCode.concurrent_transactions)


def _check_producer(transaction: Transaction, shown: ProducerIdentity) -> None:
    if shown.producer_id != transaction.producer_id:
        raise ApiError(ErrorCode.invalid_producer_id_mapping)
    if shown.producer_epoch != transaction.producer_epoch:
        raise ApiError(ErrorCode.producer_fenced)


def _verdict_on_end(before: Transaction, shown: ProducerIdentity, commit: bool, rises: bool) -> Verdict:
    if rises and before.state in END_WITH_PREVIOUS_EPOCH and shown == before.previous_identity:
        return END_WITH_PREVIOUS_EPOCH[before.state][commit]
    _check_producer(before, shown)
    return (END_WITH_CURRENT_EPOCH if rises else END_BY_OLDER_CLIENT)[before.state][commit]


def _known_code(error: ApiError, caller: Caller, knows_fenced: int) -> ErrorCode:
    if error.code is ErrorCode.producer_fenced and caller.version < knows_fenced:
        return ErrorCode.invalid_producer_epoch
    return error.code


def _initialized(error_code: ErrorCode, identity: ProducerIdentity = _NOBODY) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time=NO_THROTTLE,
        error_code=error_code,
        producer_id=ProducerId(identity.producer_id),
        producer_epoch=i16(identity.producer_epoch),
    )


def _ended(error_code: ErrorCode, identity: ProducerIdentity = _NOBODY) -> EndTxnResponse:
    return EndTxnResponse(
        throttle_time=NO_THROTTLE,
        error_code=error_code,
        producer_id=ProducerId(identity.producer_id),
        producer_epoch=i16(identity.producer_epoch),
    )
