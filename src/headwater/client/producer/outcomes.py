"""What becomes of batches that were sent: written, sent again, split or failed; and who has to hear of it.

Sends nothing itself. A batch that may still be written goes back to its queue, under the number that it has; one that
will not be is failed, which a transaction and the row of numbers have to know.
"""

import logging
from collections.abc import Mapping
from typing import Final

from headwater.client.client import Client
from headwater.client.errors import ClientError, ProducerFencedError, RefusedError, TimedOutError, error_code
from headwater.client.leader_hints import SAY_WHO_LEADS
from headwater.client.producer.accumulator import Accumulator, monotonic_ms
from headwater.client.producer.batch_building import Batch
from headwater.client.producer.idempotence import FATE_UNKNOWN, Numbered, Sequences
from headwater.client.producer.produce_lane import PartitionAnswer
from headwater.client.producer.queues import PartitionQueue
from headwater.client.producer.settings import ProducerSettings
from headwater.client.producer.statistics import ProducerStatistics
from headwater.client.producer.transactions import Transactions
from headwater.protocol.kafka_types import ErrorCode
from headwater.types import TopicPartition

_log = logging.getLogger(__name__)

_STALE_METADATA: Final = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.not_leader_or_follower,
        ErrorCode.leader_not_available,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.kafka_storage_error,
        ErrorCode.network_exception,
    }
)
"""After these the cluster may look different from what we know."""
_BRIEF_PAUSE_MS: Final = 20
"""While the transaction before is being ended, which takes milliseconds and not the usual pause."""
_FATAL: Final = frozenset(
    {
        ErrorCode.producer_fenced,
        ErrorCode.cluster_authorization_failed,
        ErrorCode.transactional_id_authorization_failed,
        ErrorCode.unsupported_version,
    }
)
"""After these nothing more can be sent in the producer's name."""


class BatchOutcomes:
    """Settles the batches of one producer, and knows the numbers of those that are not settled."""

    def __init__(
        self,
        client: Client,
        accumulator: Accumulator,
        settings: ProducerSettings,
        statistics: ProducerStatistics,
        *,
        sequences: Sequences | None,
        transactions: Transactions | None,
    ) -> None:
        self.hindrance: ClientError | None = None
        """What keeps the producer from sending anything at all, for the words of those that run out of time."""
        self._client = client
        self._accumulator = accumulator
        self._settings = settings
        self._statistics = statistics
        self._sequences = sequences
        self._transactions = transactions
        self._numbered: dict[Batch, Numbered] = {}
        self._last_errors: dict[Batch, str] = {}

    def number_of(self, batch: Batch) -> Numbered | None:
        """The number under which a batch was sent before."""
        return self._numbered.get(batch)

    def seal(self, batch: Batch) -> None:
        """Makes a batch bytes, under its number; it is on its way from now on."""
        if self._sequences is None:
            batch.seal()
            return
        numbered = self._numbered.get(batch)
        if numbered is None:
            partition = TopicPartition(batch.topic, batch.partition)
            numbered = self._numbered[batch] = self._sequences.number(partition, batch.record_count)
        else:
            self._sequences.sent_again(numbered)
        batch.seal(
            numbered.producer_id, numbered.producer_epoch, numbered.base_sequence, self._transactions is not None
        )

    def settle(self, batch: Batch, answer: PartitionAnswer, broker: int) -> None:
        """Does what the answer of a broker about a batch asks for."""
        code = error_code(answer.error_code)
        if code is ErrorCode.none:
            self.done(batch, answer.base_offset, answer.log_append_time_ms)
        else:
            self.refused(batch, code, answer, broker)

    def done(self, batch: Batch, base_offset: int, append_time_ms: int) -> None:
        """The broker has the batch; -1 where it does not tell the offset."""
        numbered = self._numbered.pop(batch, None)
        if numbered is not None and self._sequences is not None:
            last_offset = -1 if base_offset < 0 else base_offset + batch.record_count - 1
            self._sequences.acknowledged(numbered, last_offset)
        self._last_errors.pop(batch, None)
        statistics = self._statistics
        statistics.batches_written += 1
        statistics.records_written += batch.record_count
        statistics.bytes_written += batch.size_bytes
        self._accumulator.done(batch, base_offset, append_time_ms)

    def refused(self, batch: Batch, code: ErrorCode, answer: PartitionAnswer, broker: int | None = None) -> None:
        """A batch was not written, or nobody knows: again, in smaller parts, or given up. `broker` has said so."""
        has_new_leader = code in SAY_WHO_LEADS and self._led_by_other(batch, broker)
        if code in _STALE_METADATA and not has_new_leader:
            self._client.need_refresh((batch.topic,))
        now_ms = monotonic_ms()
        if code is ErrorCode.message_too_large and batch.record_count > 1:
            self._split(batch)
            return
        numbered = self._numbered.get(batch)
        retriable = None
        if numbered is not None and self._sequences is not None:
            retriable = self._sequences.may_retry(numbered, code, answer.log_start_offset)
        if retriable is None:
            retriable = code.retriable
        if self._transactions is not None and self._transactions.only_aborts and code not in FATE_UNKNOWN:
            retriable = False
        in_time = now_ms - batch.created_ms < self._settings.delivery_timeout_ms
        kind = ProducerFencedError if code is ErrorCode.producer_fenced else RefusedError
        error = kind(_subject(batch), code, answer.error_message)
        if retriable and in_time and batch.attempts < self._settings.retries:
            _log.debug("attempt %d: %s; it is sent again", batch.attempts + 1, error)
            self._last_errors[batch] = str(error)
            self._statistics.batches_sent_again += 1
            pause_ms = _BRIEF_PAUSE_MS if code is ErrorCode.concurrent_transactions else 0 if has_new_leader else None
            self._accumulator.put_back(batch, now_ms, pause_ms)
        elif code is ErrorCode.duplicate_sequence_number:
            # It was written before, so long ago that the broker does not remember where.
            self.done(batch, -1, -1)
        else:
            # Given up for want of time or attempts, it may still be in the log by an earlier attempt.
            was_written = None if retriable or code in FATE_UNKNOWN else False
            self.fail(batch, error, was_written=was_written, record_errors=_record_errors(batch, code, answer))

    def _led_by_other(self, batch: Batch, broker: int | None) -> bool:
        """Whether we know already that another broker leads the batch's partition than the one that was asked."""
        leader = self._client.leader_of(batch.topic, batch.partition)
        return leader is not None and broker is not None and leader.node_id != broker

    def _split(self, batch: Batch) -> None:
        numbered = self._numbered.pop(batch, None)
        self._last_errors.pop(batch, None)
        parts = self._accumulator.split(batch)
        self._statistics.batches_split += 1
        if numbered is not None and self._sequences is not None:
            counts = [part.record_count for part in parts]
            self._numbered.update(zip(parts, self._sequences.split(numbered, counts), strict=True))

    def fail(
        self,
        batch: Batch,
        error: ClientError,
        *,
        was_written: bool | None,
        record_errors: Mapping[int, Exception] | None = None,
    ) -> None:
        """Gives a batch up; `was_written` is None where nobody knows."""
        batch.queue.muted = False
        numbered = self._numbered.pop(batch, None)
        self._last_errors.pop(batch, None)
        if numbered is not None and self._sequences is not None:
            self._sequences.failed(numbered, was_written=was_written)
        fatal = isinstance(error, RefusedError) and error.code in _FATAL
        if self._transactions is not None:
            self._transactions.needs_new_epoch = True
            self._transactions.fail(error, fatal=fatal)
        self._statistics.records_failed += batch.record_count
        self._accumulator.failed(batch, error, record_errors)

    def expire(self, batch: Batch) -> None:
        """Fails a batch that took longer than `delivery.timeout.ms`; if it was sent, it may be written all the same."""
        topic_error = self._client.topic_error(batch.topic)
        if topic_error is not None:
            last = str(RefusedError(f"topic {batch.topic}", topic_error))
        elif self.hindrance is not None:
            last = str(self.hindrance)
        else:
            last = self._last_errors.get(batch, "the broker has not answered yet")
        limit_ms = self._settings.delivery_timeout_ms
        text = f"{_subject(batch)}: not acknowledged within delivery.timeout.ms = {limit_ms}; last: {last}"
        self.fail(batch, TimedOutError(text), was_written=None if batch in self._numbered else False)

    def drop_unsent(self, queue: PartitionQueue, transactions: Transactions, now_ms: int) -> None:
        """Fails what an aborted transaction need not send; of what was sent before, it is found out where it is."""
        error = transactions.error or ClientError("the transaction was aborted before the record was sent")
        while queue.batches and queue.batches[0] not in self._numbered:
            batch = self._accumulator.drain(queue, now_ms)
            if batch is None:
                return
            self._statistics.records_failed += batch.record_count
            self._accumulator.failed(batch, error)


def _subject(batch: Batch) -> str:
    return f"partition {batch.partition} of topic {batch.topic}"


def _record_errors(batch: Batch, code: ErrorCode, answer: PartitionAnswer) -> dict[int, Exception] | None:
    """The errors of single records: those that the broker names, and one for the others that went down with them."""
    if not answer.record_errors:
        return None
    subject = _subject(batch)
    # One code stands for all: only where there is one record to blame is it surely that record's.
    blamed = code if len(answer.record_errors) == 1 else ErrorCode.invalid_record
    others = RefusedError(subject, code, "another record of the same batch was refused, and the whole batch with it")
    errors: dict[int, Exception] = dict.fromkeys(range(batch.record_count), others)
    for index, message in answer.record_errors:
        errors[index] = RefusedError(subject, blamed, message or answer.error_message)
    return errors
