"""A transactional id's state as one value, and what each step makes of it. Decides nothing: the shard does.

Epochs: a producer may be given 0 to 32766. 32767 is only ever seen in markers, so that the last epoch can be fenced
too; the next epoch after the last is 0 of a new producer id.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Self

from headwater.coordinator.outcome import ProducerIdentity
from headwater.coordinator.schema import CorruptRecordError
from headwater.coordinator.transaction.records import TopicPartitions, TransactionValue
from headwater.coordinator.transaction.states import COMPLETED, FOLLOWERS, NEVER_WRITTEN, PREPARED, TransactionState
from headwater.types import TopicPartition

NO_PRODUCER_ID: Final = -1
NO_TIME: Final = -1
LAST_EPOCH: Final = 32_766
EPOCH_RISES_SINCE: Final = 2
"""The first transaction version (`transaction.version`, KIP-890) in which every end raises the epoch."""
NO_TIMEOUT_MS: Final = 2**31 - 1
"""The timeout of transactions that an outside coordinator ends; an Apache broker may have written it."""
_STATES: Final = {int(state): state for state in TransactionState if state not in NEVER_WRITTEN}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """Everything that is kept of a transactional id."""

    producer_id: int
    producer_epoch: int
    previous_producer_id: int = NO_PRODUCER_ID
    """Set by a step that gave its producer a new identity: the id that it had, which may be the same."""
    next_producer_id: int = NO_PRODUCER_ID
    """Set while prepared when the epochs are used up: the producer goes on with this id."""
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIME
    last_update_ms: int
    version: int = 0
    """The transaction version that the last step of it was made with."""

    @property
    def identity(self) -> ProducerIdentity:
        """The producer id and epoch of the instance that may write."""
        return ProducerIdentity(self.producer_id, self.producer_epoch)

    @property
    def previous_identity(self) -> ProducerIdentity | None:
        """What the instance had before its last step, None when it gave nothing new or another instance took over.

        An instance that shows it asks for that step a second time, as the answer was lost. All of it is in the record,
        so it holds over a restart.
        """
        if self.producer_epoch > LAST_EPOCH:
            return None  # An Apache broker's: nobody can go on from there but with a new producer id.
        if self.previous_producer_id not in (NO_PRODUCER_ID, self.producer_id):
            return ProducerIdentity(self.previous_producer_id, LAST_EPOCH)
        rose_at_end = self.state in COMPLETED and self.version >= EPOCH_RISES_SINCE
        if rose_at_end or self.previous_producer_id == self.producer_id:
            return ProducerIdentity(self.producer_id, self.producer_epoch - 1)
        return None

    @property
    def identity_after_end(self) -> ProducerIdentity:
        """What the instance goes on with when the markers of a prepared transaction are written."""
        if self.next_producer_id == NO_PRODUCER_ID:
            return self.identity
        return ProducerIdentity(self.next_producer_id, 0)

    @property
    def is_prepared(self) -> bool:
        """Whether it is decided, but not every marker is known to be written."""
        return self.state in PREPARED

    @property
    def is_last_epoch(self) -> bool:
        """Whether the next epoch has to be that of a new producer id."""
        return self.producer_epoch >= LAST_EPOCH

    @property
    def times_out_ms(self) -> int | None:
        """The first moment at which it has lasted too long."""
        if self.state is not TransactionState.ONGOING or self.timeout_ms == NO_TIMEOUT_MS:
            return None
        return self.start_ms + self.timeout_ms + 1

    @classmethod
    def new(cls, producer_id: int, timeout_ms: int, now_ms: int) -> Self:
        """A transactional id that was not known."""
        return cls(
            producer_id=producer_id,
            producer_epoch=0,
            timeout_ms=timeout_ms,
            state=TransactionState.EMPTY,
            last_update_ms=now_ms,
        )

    def initialized(self, identity: ProducerIdentity, previous_producer_id: int, timeout_ms: int, now_ms: int) -> Self:
        """With the identity that an instance gets; the previous id when it is the same instance as before."""
        return replace(
            self,
            state=self._follower(TransactionState.EMPTY),
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            previous_producer_id=previous_producer_id,
            timeout_ms=timeout_ms,
            start_ms=NO_TIME,
            last_update_ms=now_ms,
        )

    def with_partitions(self, partitions: frozenset[TopicPartition], version: int, now_ms: int) -> Self:
        """With more partitions; the first ones begin the transaction."""
        return replace(
            self,
            state=self._follower(TransactionState.ONGOING),
            previous_producer_id=NO_PRODUCER_ID,
            partitions=self.partitions | partitions,
            start_ms=self.start_ms if self.state is TransactionState.ONGOING else now_ms,
            last_update_ms=now_ms,
            version=version,
        )

    def prepared(self, *, commit: bool, version: int, next_producer_id: int, now_ms: int) -> Self:
        """Decided. From version 2 on with the next epoch, which the markers bring to the partitions."""
        return replace(
            self,
            state=self._follower(TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT),
            producer_epoch=self.producer_epoch + (version >= EPOCH_RISES_SINCE),
            previous_producer_id=NO_PRODUCER_ID,
            next_producer_id=next_producer_id,
            # An abort of nothing has a beginning all the same: Apache refuses to go on without one.
            start_ms=self.start_ms if self.state is TransactionState.ONGOING else now_ms,
            last_update_ms=now_ms,
            version=version,
        )

    def completed(self, now_ms: int) -> Self:
        """With a marker in every partition."""
        commit = self.state is TransactionState.PREPARE_COMMIT
        identity = self.identity_after_end
        return replace(
            self,
            state=self._follower(TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT),
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            previous_producer_id=NO_PRODUCER_ID if identity.producer_id == self.producer_id else self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset(),
            last_update_ms=now_ms,
        )

    def _follower(self, state: TransactionState) -> TransactionState:
        if state not in FOLLOWERS[self.state]:
            raise RuntimeError(f"{state.label} was decided after {self.state.label}")
        return state

    @classmethod
    def from_value(cls, value: TransactionValue) -> Self:
        """The state that a record tells."""
        state = _STATES.get(value.status)
        if state is None:
            raise CorruptRecordError(f"there is no transaction in state {value.status}")
        return cls(
            producer_id=value.producer_id,
            producer_epoch=value.producer_epoch,
            previous_producer_id=value.previous_producer_id,
            next_producer_id=value.next_producer_id,
            timeout_ms=value.timeout_ms,
            state=state,
            partitions=frozenset(
                TopicPartition(of_topic.topic, partition)
                for of_topic in value.partitions or ()
                for partition in of_topic.partitions
            ),
            start_ms=value.start_ms,
            last_update_ms=value.last_update_ms,
            version=value.client_transaction_version,
        )

    def to_value(self) -> TransactionValue:
        """The content of its record."""
        is_rotating = self.next_producer_id != NO_PRODUCER_ID
        return TransactionValue(
            producer_id=self.producer_id,
            previous_producer_id=self.previous_producer_id,
            next_producer_id=self.next_producer_id,
            producer_epoch=self.producer_epoch,
            next_producer_epoch=0 if is_rotating else -1,
            timeout_ms=self.timeout_ms,
            status=self.state,
            # Apache writes null for Empty alone.
            partitions=None if self.state is TransactionState.EMPTY else by_topic(self.partitions),
            last_update_ms=self.last_update_ms,
            start_ms=self.start_ms,
            client_transaction_version=self.version,
        )


def by_topic(partitions: Iterable[TopicPartition]) -> tuple[TopicPartitions, ...]:
    """Partitions gathered under their topics, both in order."""
    gathered: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        gathered.setdefault(topic, []).append(partition)
    return tuple(TopicPartitions(topic, tuple(numbers)) for topic, numbers in gathered.items())
