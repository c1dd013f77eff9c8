"""What the calls of a transactional producer do: each changes the state, asks the coordinator, and changes it again.

The states are `transactions.py`'s and the requests `transaction_requests.py`'s; here is the order in which they meet.
Every call takes `max.block.ms` at most.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from headwater.client.errors import ClientError, RefusedError, TimedOutError
from headwater.client.producer.idempotence import Sequences
from headwater.client.producer.transaction_requests import (
    NO_IDENTITY,
    CommittedOffset,
    GroupMember,
    Identity,
    TransactionRequests,
    is_fatal,
)
from headwater.client.producer.transactions import Transactions
from headwater.protocol.kafka_types import ErrorCode
from headwater.types import TopicPartition

Flush = Callable[[float], Awaitable[None]]
"""Waits until everything is settled; `TimedOutError` after so many seconds."""


@dataclass(frozen=True, slots=True)
class PlainOffset:
    """An offset without anything else."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class GroupName:
    """A group whose offsets are committed by whoever knows its name: no member is checked."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class TransactionCalls:
    """The transactional calls of one producer."""

    def __init__(
        self,
        transactions: Transactions,
        requests: TransactionRequests,
        sequences: Sequences,
        flush: Flush,
        *,
        max_block_ms: int,
    ) -> None:
        self._transactions = transactions
        self._requests = requests
        self._sequences = sequences
        self._flush = flush
        self._deadline_s = max_block_ms / 1000
        self._adds_by_writing = False

    @property
    def _identity(self) -> Identity:
        return Identity(self._sequences.producer_id, self._sequences.producer_epoch)

    async def initialize(self) -> None:
        """Takes the transactional id, and ends what whoever had it before left open."""
        self._transactions.initialize()
        try:
            identity = await self._requests.identity(NO_IDENTITY, deadline_s=self._deadline_s)
            self._adds_by_writing = await self._requests.adds_by_writing()
        except BaseException as error:
            if isinstance(error, ClientError) and is_fatal(error):
                self._transactions.fail(error, fatal=True)
            else:
                self._transactions.initialization_failed()
            raise
        self._sequences.identify(*identity)
        self._transactions.initialized()

    def begin(self) -> None:
        """What is sent from now on is part of a transaction."""
        self._transactions.begin(adds_by_writing=self._adds_by_writing)

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, CommittedOffset | int], group: GroupMember | str
    ) -> None:
        """Makes a group's offsets part of the transaction."""
        transactions = self._transactions
        refusal = transactions.refusal("send_offsets_to_transaction")
        if refusal is not None:
            raise refusal
        if not offsets:
            return
        # The coordinator may know of the offsets before we hear so: whatever happens, there is something to end.
        transactions.offsets_added()
        try:
            await self._requests.commit_offsets(
                self._identity,
                {partition: _committed(offset) for partition, offset in offsets.items()},
                GroupName(group) if isinstance(group, str) else group,
                adds_by_writing=transactions.adds_by_writing,
                deadline_s=self._deadline_s,
            )
        except ClientError as error:
            transactions.needs_new_epoch = True
            transactions.fail(error, fatal=is_fatal(error))
            raise

    async def commit(self) -> None:
        """Sends what is left and ends the transaction; what could not be sent is raised, and only abort is left."""
        self._transactions.commit()
        gives_up_at = time.monotonic() + self._deadline_s
        await self._flush(self._deadline_s)
        if self._transactions.error is not None:
            raise self._transactions.error
        await self._end(gives_up_at, committed=True)

    async def abort(self) -> None:
        """Drops what is left and ends the transaction: nothing of it is seen by whoever reads committed records."""
        transactions = self._transactions
        transactions.abort()
        gives_up_at = time.monotonic() + self._deadline_s
        await self._flush(self._deadline_s)
        if transactions.error is not None:
            raise transactions.error
        await self._end(gives_up_at, committed=False)

    async def _end(self, gives_up_at: float, *, committed: bool) -> None:
        transactions = self._transactions
        try:
            if transactions.started:
                await self._end_at_coordinator(gives_up_at, committed=committed)
                # Nothing more is there to end, should what follows run out of time.
                transactions.started = False
            if transactions.needs_new_epoch:
                self._begin_anew(await self._requests.identity(self._identity, deadline_s=_left_s(gives_up_at)))
        except TimedOutError:
            raise
        except ClientError as error:
            transactions.needs_new_epoch = True
            transactions.fail(error, fatal=is_fatal(error) or not committed)
            raise
        transactions.ended()

    async def _end_at_coordinator(self, gives_up_at: float, *, committed: bool) -> None:
        transactions = self._transactions
        try:
            identity = await self._requests.end(
                self._identity,
                committed=committed,
                adds_by_writing=transactions.adds_by_writing,
                deadline_s=_left_s(gives_up_at),
            )
        except RefusedError as error:
            if committed or error.code is not ErrorCode.invalid_producer_id_mapping:
                raise
            # The coordinator has forgotten the transactional id and all that was open under it.
            identity = await self._requests.identity(NO_IDENTITY, deadline_s=_left_s(gives_up_at))
        if identity is not None:
            self._begin_anew(identity)
            transactions.needs_new_epoch = False

    def _begin_anew(self, identity: Identity) -> None:
        self._sequences.forget_all()
        self._sequences.identify(*identity)


def _left_s(gives_up_at: float) -> float:
    return max(gives_up_at - time.monotonic(), 0.001)


def _committed(offset: CommittedOffset | int) -> CommittedOffset:
    return PlainOffset(offset) if isinstance(offset, int) else offset
