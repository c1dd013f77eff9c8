"""A transactional producer without a client's help: it does what it is told, right or wrong, over one connection.

By default it speaks as clients did before KIP-890's second part: partitions are added before records are sent, and
the epoch stays when a transaction ends.
"""

from collections.abc import Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from .actions import Topic, eventually, unique_name
from .batches import batch
from .raw_groups import offsets_to_commit, wait_for_transaction_coordinator
from .wire import Wire

TRANSACTIONAL = 0x10
CONTROL = 0x20
# The newest versions of a client that adds each partition itself and keeps its epoch.
OLD_PRODUCE, OLD_ADD, OLD_OFFSETS, OLD_END = 11, 3, 4, 4
# From here on a Produce adds its partitions by itself, and the end of a transaction raises the epoch (KIP-890).
IMPLICIT_PRODUCE, IMPLICIT_OFFSETS, RAISING_END = 12, 5, 5


class TransactionalProducer:
    """A transactional id in use, with the producer id and epoch that it was given.

    >>> producer = TransactionalProducer(wire)
    >>> producer.add(topic)
    >>> producer.send(topic, b"value")
    >>> producer.end(committed=True)
    """

    def __init__(self, wire: Wire, transactional_id: str | None = None, *, timeout_ms: int = 60_000) -> None:
        self.wire = wire
        self.transactional_id = transactional_id or unique_name("transactional-id")
        self.timeout_ms = timeout_ms
        self.sequences: dict[tuple[str, int], int] = {}
        wait_for_transaction_coordinator(wire, self.transactional_id)
        given = eventually(self._initialised, "a producer id")
        self.id: int = given.producer_id
        self.epoch: int = given.producer_epoch

    def _initialised(self) -> Any:
        answer = self.wire.send(
            "init_producer_id", transactional_id=self.transactional_id, transaction_timeout=self.timeout_ms
        )
        if answer.error_code in (ErrorCode.concurrent_transactions, ErrorCode.coordinator_load_in_progress):
            return None
        assert answer.error_code is ErrorCode.none, answer
        return answer

    def identity(self) -> dict[str, Any]:
        """Who this producer is, as most requests want it."""
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.id,
            "producer_epoch": self.epoch,
        }

    def add(self, topic: Topic, *partitions: int) -> ErrorCode:
        """Adds partitions to the transaction; the error of the first. Waits while the last one is being ended."""

        def added() -> ErrorCode | None:
            answer = self.wire.send("add_partitions_to_txn", OLD_ADD, **self.add_values(topic, *partitions))
            error: ErrorCode = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            return None if error is ErrorCode.concurrent_transactions else error

        return eventually(lambda: _found(added()), "the end of the transaction before")[0]

    def add_values(self, topic: Topic, *partitions: int) -> dict[str, Any]:
        """AddPartitionsToTxn as far as version 3."""
        return {
            "v3_and_below_transactional_id": self.transactional_id,
            "v3_and_below_producer_id": self.id,
            "v3_and_below_producer_epoch": self.epoch,
            "v3_and_below_topics": [{"name": topic.name, "partitions": partitions or (0,)}],
        }

    def send(self, topic: Topic, *values: bytes, partition: int = 0, version: int = OLD_PRODUCE) -> ErrorCode:
        """Produces in the transaction; the sequence goes on only when it was taken."""
        sequence = self.sequences.get((topic.name, partition), 0)
        answer = self.send_batch(topic, self.batch(*values, sequence=sequence), partition=partition, version=version)
        if answer.error_code is ErrorCode.none:
            self.sequences[topic.name, partition] = sequence + len(values)
        error: ErrorCode = answer.error_code
        return error

    def send_batch(self, topic: Topic, records: bytes, *, partition: int = 0, version: int = OLD_PRODUCE) -> Any:
        """Sends these bytes under the transactional id and returns the partition's answer."""
        entry = {"index": partition, "records": records}
        named = {"name": topic.name, "topic_id": topic.id, "partition_data": [entry]}
        asked = {"transactional_id": self.transactional_id, "acks": -1, "timeout": 10_000, "topic_data": [named]}
        return self.wire.send("produce", version, **asked).responses[0].partition_responses[0]

    def batch(self, *values: bytes, sequence: int) -> bytes:
        """A batch that says it belongs to this producer's transaction."""
        given = {"producer_id": self.id, "producer_epoch": self.epoch, "base_sequence": sequence}
        return batch(*values, **given, attributes=TRANSACTIONAL)

    def send_offsets(
        self, group: str, topic: Topic, offsets: Mapping[int, int], *, metadata: str = "", **member: Any
    ) -> ErrorCode:
        """Adds the group's offsets to the transaction; the first error there is."""
        added = self.wire.send("add_offsets_to_txn", **self.identity(), group_id=group)
        if added.error_code is not ErrorCode.none:
            refused: ErrorCode = added.error_code
            return refused
        topics = offsets_to_commit(topic, offsets, metadata)
        answer = self.wire.send(
            "txn_offset_commit", OLD_OFFSETS, **self.identity(), group_id=group, topics=topics, **member
        )
        error: ErrorCode = answer.topics[0].partitions[0].error_code
        return error

    def end(self, *, committed: bool, version: int = OLD_END) -> ErrorCode:
        """Commits or aborts; takes over the epoch that it is given, if it is given one."""
        answer = self.wire.send("end_txn", version, **self.identity(), committed=committed)
        if answer.error_code is ErrorCode.none and version >= RAISING_END:
            if answer.producer_id != self.id or answer.producer_epoch != self.epoch:
                self.sequences.clear()
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
        error: ErrorCode = answer.error_code
        return error

    def state(self) -> str:
        """The state of its transaction, as DescribeTransactions says it."""
        (found,) = self.wire.send("describe_transactions", transactional_ids=[self.transactional_id]).transaction_states
        assert found.error_code is ErrorCode.none, found
        state: str = found.transaction_state
        return state

    def wait_until_complete(self) -> str:
        """Waits until the markers are written, and says how it ended."""
        return eventually(lambda: state if (state := self.state()).startswith("Complete") else "", "the markers")


def _found(error: ErrorCode | None) -> tuple[ErrorCode, ...]:
    """An error to stop waiting at: ErrorCode.none is false."""
    return () if error is None else (error,)
