"""What a producer asks coordinators for: an identity, and the parts and the end of a transaction.

Finds coordinators, and asks again where that may help, for as long as the caller's deadline allows. Knows no record and
no state: whether a request fits is decided in `transactions.py`. What only transactions need is loaded when they do.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from headwater.client.client import Client, duration
from headwater.client.coordinators import Coordinated
from headwater.client.errors import ClientError, ProducerFencedError, RefusedError, TimedOutError
from headwater.protocol.kafka_types import ErrorCode, ProducerId, i16
from headwater.types import TopicPartition

from kio.schema.init_producer_id.v5.request import InitProducerIdRequest  # isort: skip
from kio.schema.init_producer_id.v5.response import InitProducerIdResponse  # isort: skip
from kio.schema.types import TransactionalId  # isort: skip

R = TypeVar("R")

# The transaction before this one is still being ended: that is a matter of milliseconds.
_CONCURRENT_BACK_OFF_S: Final = 0.02
_FEATURE: Final = "transaction.version"
_ADDS_BY_WRITING: Final = 2
_KINDS: Final = {Coordinated.GROUP: "group", Coordinated.TRANSACTION: "transactional id"}
_MOVED: Final = frozenset({ErrorCode.not_coordinator, ErrorCode.coordinator_not_available, ErrorCode.request_timed_out})
_FENCED: Final = frozenset({ErrorCode.invalid_producer_epoch, ErrorCode.producer_fenced})
_ABORTABLE: Final = frozenset(
    {
        ErrorCode.transaction_abortable,
        ErrorCode.group_authorization_failed,
        ErrorCode.topic_authorization_failed,
        ErrorCode.fenced_instance_id,
        ErrorCode.unknown_member_id,
        ErrorCode.illegal_generation,
        ErrorCode.stale_member_epoch,
        ErrorCode.unknown_producer_id,
        ErrorCode.invalid_producer_id_mapping,
        ErrorCode.operation_not_attempted,
        ErrorCode.offset_metadata_too_large,
    }
)
"""After these the transaction can be aborted and the producer goes on."""


class Identity(NamedTuple):
    """What a producer writes under."""

    producer_id: int
    producer_epoch: int


NO_IDENTITY: Final = Identity(-1, -1)


class GroupMember(Protocol):
    """A consumer's place in its group, as `Consumer.group_metadata` gives it."""

    @property
    def group_id(self) -> str:
        """The group's name."""

    @property
    def generation_id(self) -> int:
        """The generation, or the member's epoch; -1 for somebody who is no member."""

    @property
    def member_id(self) -> str:
        """The member's name."""

    @property
    def group_instance_id(self) -> str | None:
        """The name of a static member."""


class CommittedOffset(Protocol):
    """An offset to commit with what belongs to it, as consumers know it."""

    @property
    def offset(self) -> int:
        """The next one to read."""

    @property
    def metadata(self) -> str:
        """The application's own words."""

    @property
    def leader_epoch(self) -> int | None:
        """The epoch of the last record that was read."""


def is_fatal(error: ClientError) -> bool:
    """Whether a producer is of no more use after this error of a transaction."""
    if isinstance(error, ProducerFencedError):
        return True
    return isinstance(error, RefusedError) and error.code not in _ABORTABLE and not error.code.retriable


def refusal(subject: str, code: ErrorCode, message: str | None = None) -> RefusedError:
    """The error for a code that a producer was answered with."""
    return (ProducerFencedError if code in _FENCED else RefusedError)(subject, code, message)


class TransactionRequests:
    """Requests in the name of one transactional id, or for an identity without one."""

    def __init__(
        self,
        client: Client,
        transactional_id: str | None,
        *,
        transaction_timeout_ms: int,
        retry_backoff_ms: int,
        retry_backoff_max_ms: int,
    ) -> None:
        self._client = client
        self._transactional_id = transactional_id
        self._transaction_timeout_ms = transaction_timeout_ms
        self._backoff_s = retry_backoff_ms / 1000
        self._backoff_max_s = retry_backoff_max_ms / 1000

    async def identity(self, known: Identity, *, deadline_s: float) -> Identity:
        """A producer id and epoch; with a `known` one, the next epoch of it. Ends what others left open."""
        request = InitProducerIdRequest(
            transactional_id=None if self._transactional_id is None else TransactionalId(self._transactional_id),
            transaction_timeout=duration(self._transaction_timeout_ms / 1000),
            producer_id=ProducerId(known.producer_id),
            producer_epoch=i16(known.producer_epoch),
        )
        answer = await self._ask(request, InitProducerIdResponse, lambda answer: (answer.error_code,), deadline_s)
        return Identity(int(answer.producer_id), int(answer.producer_epoch))

    async def add_partitions(
        self, identity: Identity, partitions: Collection[TopicPartition], *, deadline_s: float
    ) -> None:
        """Makes partitions part of the transaction (version 1 of the protocol)."""
        from headwater.client.producer import transaction_messages as messages

        request = messages.add_partitions(self._transactional_id or "", identity, partitions)
        await self._ask(request, messages.AddPartitionsToTxnResponse, messages.codes_by_partition, deadline_s)

    async def commit_offsets(
        self,
        identity: Identity,
        offsets: Mapping[TopicPartition, CommittedOffset],
        group: GroupMember,
        *,
        adds_by_writing: bool,
        deadline_s: float,
    ) -> None:
        """Makes offsets of a group part of the transaction; under version 2 of the protocol one request does."""
        from headwater.client.producer import transaction_messages as messages

        name = self._transactional_id or ""
        if not adds_by_writing:
            announced = messages.add_offsets(name, identity, group.group_id)
            await self._ask(
                announced, messages.AddOffsetsToTxnResponse, lambda answer: (answer.error_code,), deadline_s
            )
        request = messages.commit_offsets(name, identity, offsets, group, adds_by_writing=adds_by_writing)
        where = (Coordinated.GROUP, group.group_id)
        await self._ask(request, messages.TxnOffsetCommitResponse, messages.codes_by_offset, deadline_s, where)

    async def end(
        self, identity: Identity, *, committed: bool, adds_by_writing: bool, deadline_s: float
    ) -> Identity | None:
        """Ends the transaction; under version 2 of the protocol that brings the identity for the next one."""
        from headwater.client.producer import transaction_messages as messages

        request = messages.end(
            self._transactional_id or "", identity, committed=committed, adds_by_writing=adds_by_writing
        )
        answer = await self._ask(request, messages.EndTxnResponse, lambda answer: (answer.error_code,), deadline_s)
        return Identity(int(answer.producer_id), int(answer.producer_epoch)) if answer.producer_id >= 0 else None

    async def adds_by_writing(self) -> bool:
        """Whether the cluster has agreed on version 2 of the protocol of transactions; any broker knows."""
        connection = await self._client.retry(self._client.connection)
        return connection.features.get(_FEATURE, 0) >= _ADDS_BY_WRITING

    async def _ask(
        self,
        request: Any,
        answer_type: type[R],
        codes_in: Callable[[Any], Iterable[ErrorCode]],
        deadline_s: float,
        where: tuple[Coordinated, str] | None = None,
    ) -> R:
        """Asks until the answer is a success, fails for good, or the deadline passes."""
        if where is None and self._transactional_id is not None:
            where = (Coordinated.TRANSACTION, self._transactional_id)
        subject = "a producer id" if where is None else f"{_KINDS[where[0]]} {where[1]}"
        gives_up_at = time.monotonic() + deadline_s
        backoff_s = self._backoff_s
        while True:
            failure: ClientError
            try:
                to = None if where is None else (await self._client.coordinator(*where)).broker
                answer = await self._client.send(request, answer_type, to=to)
                codes = [code for code in codes_in(answer) if code is not ErrorCode.none]
                if not codes:
                    return answer
                # One that will not pass says more than those that may.
                code = next((code for code in codes if not code.retriable), codes[0])
                failure = refusal(subject, code)
                if not code.retriable:
                    raise failure
                if code in _MOVED and where is not None:
                    self._client.forget_coordinator(*where)
                pause_s = _CONCURRENT_BACK_OFF_S if code is ErrorCode.concurrent_transactions else backoff_s
            except ClientError as error:
                if isinstance(error, RefusedError) and not error.code.retriable:
                    raise
                if not isinstance(error, RefusedError) and not self._client.may_pass(error):
                    raise
                failure, pause_s = error, backoff_s
                if where is not None:
                    self._client.forget_coordinator(*where)
            if time.monotonic() + pause_s > gives_up_at:
                raise TimedOutError(f"{subject}: gave up after {deadline_s:g} s: {failure}") from failure
            await asyncio.sleep(pause_s)
            backoff_s = min(backoff_s * 2, self._backoff_max_s)
