"""A producer's transactions as a table of states. No clock, no network: it is told what happened.

    UNINITIALIZED ──► INITIALIZING ──► READY ──► IN_TRANSACTION ──► COMMITTING ──► READY
                                                      │                  │
                                                      ▼                  ▼
                                                ABORTABLE_ERROR ◄────────┘
                                                      │
                                                      ▼
                                                   ABORTING ──► READY            anything ──► FATAL_ERROR

- `init_transactions` comes first and takes the transactional id from whoever had it. It may be repeated when it ran
  out of time.
- Records and offsets are sent in IN_TRANSACTION only.
- What cannot be sent makes the transaction one that can only be aborted (ABORTABLE_ERROR): sending and committing
  raise what happened, until `abort`.
- COMMITTING and ABORTING last until the coordinator has answered. A call that ran out of time is repeated, and never
  replaced by the other one: how the transaction ended may be decided already.
- FATAL_ERROR has no way out: somebody else has the transactional id, or the broker has no memory of it.

Under protocol version 1 (KIP-98) a partition is added to the transaction by a request before it is written to. Under
version 2 (KIP-890) the first write adds it, and the end of each transaction brings a new epoch.
"""

from collections.abc import Callable, Collection
from enum import Enum
from typing import Final

from headwater.client.errors import ClientError
from headwater.types import TopicPartition


class TransactionState(Enum):
    """Where a transactional producer stands."""

    UNINITIALIZED = "not initialized"
    INITIALIZING = "initializing"
    READY = "ready"
    IN_TRANSACTION = "in a transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "in a transaction that can only be aborted"
    FATAL_ERROR = "of no more use"


_S = TransactionState
TRANSITIONS: Final[dict[TransactionState, frozenset[TransactionState]]] = {
    _S.UNINITIALIZED: frozenset({_S.INITIALIZING, _S.FATAL_ERROR}),
    _S.INITIALIZING: frozenset({_S.READY, _S.UNINITIALIZED, _S.FATAL_ERROR}),
    _S.READY: frozenset({_S.IN_TRANSACTION, _S.FATAL_ERROR}),
    _S.IN_TRANSACTION: frozenset({_S.COMMITTING, _S.ABORTING, _S.ABORTABLE_ERROR, _S.FATAL_ERROR}),
    _S.COMMITTING: frozenset({_S.READY, _S.ABORTABLE_ERROR, _S.FATAL_ERROR}),
    _S.ABORTING: frozenset({_S.READY, _S.FATAL_ERROR}),
    _S.ABORTABLE_ERROR: frozenset({_S.ABORTING, _S.FATAL_ERROR}),
    _S.FATAL_ERROR: frozenset(),
}
"""What may follow what."""


class TransactionStateError(ClientError):
    """A transactional call that does not fit the producer's state; nothing was changed by it."""


class Transactions:
    """The transactions of one producer, one after the other."""

    def __init__(self, on_change: Callable[[], None] | None = None) -> None:
        self.state = TransactionState.UNINITIALIZED
        self.error: ClientError | None = None
        self.adds_by_writing = False
        self.started = False
        self.needs_new_epoch = False
        self._partitions: set[TopicPartition] = set()
        self._to_add: set[TopicPartition] = set()
        self._on_change = on_change

    def initialize(self) -> None:
        """`init_transactions` begins."""
        self._go(TransactionState.INITIALIZING, "init_transactions")

    def initialization_failed(self) -> None:
        """`init_transactions` ran out of time; it may be called again."""
        self._go(TransactionState.UNINITIALIZED, "init_transactions")

    def initialized(self) -> None:
        """The producer has its identity."""
        self._become_ready("init_transactions")

    def begin(self, *, adds_by_writing: bool) -> None:
        """A transaction begins, under version 2 of the protocol if `adds_by_writing`."""
        self._go(TransactionState.IN_TRANSACTION, "begin_transaction")
        self.adds_by_writing = adds_by_writing

    def refusal(self, call: str) -> ClientError | None:
        """Why records and offsets may not be sent now; None where they may."""
        if self.error is not None:
            return self.error
        return None if self.state is TransactionState.IN_TRANSACTION else self._misplaced(call)

    def may_write(self, partition: TopicPartition) -> bool:
        """Whether a batch of this partition may be sent; False: `to_add` names it from now on."""
        if partition in self._partitions:
            return True
        if self.adds_by_writing:
            self._partitions.add(partition)
            self.started = True
            return True
        self._to_add.add(partition)
        return False

    @property
    def to_add(self) -> Collection[TopicPartition]:
        """Partitions that the coordinator must hear of before they are written to."""
        return frozenset(self._to_add)

    def added(self, partitions: Collection[TopicPartition]) -> None:
        """The coordinator has heard of them."""
        self._to_add.difference_update(partitions)
        self._partitions.update(partitions)
        self.started = True

    def offsets_added(self) -> None:
        """Offsets of a group are part of the transaction: it has something to end."""
        self.started = True

    def commit(self) -> None:
        """`commit_transaction` begins, or goes on after it ran out of time."""
        if self.state is not TransactionState.COMMITTING:
            self._go(TransactionState.COMMITTING, "commit_transaction")

    def abort(self) -> None:
        """`abort_transaction` begins, or goes on after it ran out of time."""
        if self.state is TransactionState.ABORTING:
            return
        if self.state is TransactionState.ABORTABLE_ERROR:
            self._change(TransactionState.ABORTING, None)
        else:
            self._go(TransactionState.ABORTING, "abort_transaction")
        self._to_add.clear()

    def ended(self) -> None:
        """The coordinator has ended the transaction, or there was nothing to end."""
        self._become_ready("the end of a transaction")

    def fail(self, error: ClientError, *, fatal: bool) -> None:
        """Something could not be sent. While no transaction is open, or one is aborted, only what is fatal counts."""
        if self.state is TransactionState.FATAL_ERROR:
            return
        if fatal:
            self._change(TransactionState.FATAL_ERROR, error)
        elif TransactionState.ABORTABLE_ERROR in TRANSITIONS[self.state]:
            self._change(TransactionState.ABORTABLE_ERROR, error)

    @property
    def only_aborts(self) -> bool:
        """Whether what is still to be sent is of no use any more."""
        return self.state in (
            TransactionState.ABORTABLE_ERROR,
            TransactionState.ABORTING,
            TransactionState.FATAL_ERROR,
        )

    def _become_ready(self, call: str) -> None:
        self._go(TransactionState.READY, call)
        self.started = self.needs_new_epoch = False
        self._partitions.clear()
        self._to_add.clear()

    def _go(self, state: TransactionState, call: str) -> None:
        if self.error is not None:
            raise self.error
        if state not in TRANSITIONS[self.state]:
            raise self._misplaced(call)
        self._change(state, None)

    def _change(self, state: TransactionState, error: ClientError | None) -> None:
        self.state, self.error = state, error
        if self._on_change is not None:
            self._on_change()

    def _misplaced(self, call: str) -> TransactionStateError:
        advice = {
            TransactionState.UNINITIALIZED: "call init_transactions first",
            TransactionState.READY: "call begin_transaction first",
            TransactionState.IN_TRANSACTION: "commit or abort the transaction first",
            TransactionState.COMMITTING: "call commit_transaction again until it succeeds",
            TransactionState.ABORTING: "call abort_transaction again until it succeeds",
        }.get(self.state, "close it and make another")
        return TransactionStateError(f"{call} while the producer is {self.state.value}: {advice}")
