"""What ListTransactions and DescribeTransactions tell of transactional ids. Reads only."""

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from headwater.coordinator.pattern_syntax import PatternError
from headwater.coordinator.patterns import Pattern, compiled
from headwater.coordinator.transaction.states import TransactionState
from headwater.coordinator.transaction.transaction import Transaction, by_topic
from headwater.protocol.errors import ApiError
from headwater.protocol.kafka_types import ErrorCode, ProducerId, TopicName, i16, i32, i32Timedelta, i64
from headwater.protocol.transaction_descriptions import TopicData
from headwater.protocol.transaction_descriptions import TransactionState as DescribedTransaction

from kio.schema.list_transactions.v2.request import ListTransactionsRequest  # isort: skip
from kio.schema.list_transactions.v2.response import TransactionState as ListedTransaction  # isort: skip
from kio.schema.types import TransactionalId  # isort: skip

_BY_LABEL: Final = {state.label: state for state in TransactionState}


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionFilter:
    """Which transactional ids are asked for; every condition that is set must hold."""

    states: frozenset[TransactionState] | None = None
    producer_ids: frozenset[int] | None = None
    longer_than_ms: int = -1
    pattern: Pattern | None = None
    """Of the whole id; in time that grows with the id's length alone, as the pattern is a client's."""
    unknown_states: tuple[str, ...] = ()
    """What was asked for and is no state; the client is told."""

    @classmethod
    def from_request(cls, request: ListTransactionsRequest) -> "TransactionFilter":
        """The filter of a request; ApiError INVALID_REGULAR_EXPRESSION when its pattern is none."""
        names, pattern = request.state_filters, request.transactional_id_pattern
        try:
            matcher = compiled(pattern) if pattern else None
        except PatternError as error:
            raise ApiError(ErrorCode.invalid_regular_expression, f"{pattern!r:.100} is no pattern: {error}") from error
        return cls(
            states=frozenset(_BY_LABEL[name] for name in names if name in _BY_LABEL) if names else None,
            producer_ids=frozenset(request.producer_id_filters) if request.producer_id_filters else None,
            longer_than_ms=request.duration_filter,
            pattern=matcher,
            unknown_states=tuple(dict.fromkeys(name for name in names if name not in _BY_LABEL)),
        )

    def accepts(self, transactional_id: str, transaction: Transaction, now_ms: int) -> Generator[None, None, bool]:
        """Steps to whether an id is asked for. As in Apache, one without a transaction counts as very long."""
        is_asked_for = (
            (self.states is None or transaction.state in self.states)
            and (self.producer_ids is None or transaction.producer_id in self.producer_ids)
            and (self.longer_than_ms < 0 or now_ms - transaction.start_ms > self.longer_than_ms)
        )
        if is_asked_for and self.pattern is not None:
            is_asked_for = yield from self.pattern.steps(transactional_id)
        return is_asked_for


def listed(
    transactions: Mapping[str, Transaction], wanted: TransactionFilter, now_ms: int
) -> Iterator[ListedTransaction | None]:
    """The transactional ids that a filter accepts, with None for every pause in between."""
    for transactional_id, transaction in transactions.items():
        yield None
        if (yield from wanted.accepts(transactional_id, transaction, now_ms)):
            yield ListedTransaction(
                transactional_id=TransactionalId(transactional_id),
                producer_id=ProducerId(transaction.producer_id),
                transaction_state=transaction.state.label,
            )


def described(transactional_id: str, transaction: Transaction | None) -> DescribedTransaction:
    """One transactional id in full, or that it is not known."""
    if transaction is None:
        return undescribed(
            transactional_id, ErrorCode.transactional_id_not_found if transactional_id else ErrorCode.invalid_request
        )
    return DescribedTransaction(
        error_code=ErrorCode.none,
        transactional_id=TransactionalId(transactional_id),
        transaction_state=transaction.state.label,
        transaction_timeout=i32Timedelta.parse(timedelta(milliseconds=transaction.timeout_ms)),
        transaction_start_time_ms=i64(transaction.start_ms),
        producer_id=ProducerId(transaction.producer_id),
        producer_epoch=i16(transaction.producer_epoch),
        topics=tuple(
            TopicData(topic=TopicName(of_topic.topic), partitions=tuple(map(i32, of_topic.partitions)))
            for of_topic in by_topic(transaction.partitions)
        ),
    )


def undescribed(transactional_id: str, error_code: ErrorCode) -> DescribedTransaction:
    """The answer for a transactional id that cannot be described."""
    return DescribedTransaction(
        error_code=error_code,
        transactional_id=TransactionalId(transactional_id),
        transaction_state="",
        transaction_timeout=i32Timedelta.parse(timedelta(0)),
        transaction_start_time_ms=i64(0),
        producer_id=ProducerId(0),
        producer_epoch=i16(0),
        topics=(),
    )
