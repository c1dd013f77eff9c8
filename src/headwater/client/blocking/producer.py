"""The blocking producer, `headwater.Producer`: the asyncio one on a thread of its own.

`send` does not go to that thread: a record is put into its batch by the caller, and only one that finds no memory, or
whose topic is not known yet, makes the caller wait.
"""

import logging
import time
import weakref
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from headwater.client.blocking.client import BlockingClient
from headwater.client.blocking.io_thread import IoThread
from headwater.client.errors import ClientError
from headwater.client.producer.accumulator import Accumulator
from headwater.client.producer.handles import OnDelivery, SendHandle
from headwater.client.producer.interceptors import ProducerRecord
from headwater.client.producer.memory import RoomTicket
from headwater.client.producer.producer import PartitionInfo
from headwater.client.producer.producer import Producer as AsyncProducer
from headwater.client.producer.sending import Headers, RecordSender, UnplacedRecord
from headwater.client.producer.transaction_requests import CommittedOffset, GroupMember
from headwater.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.client.producer.arrow import ArrowHandle, ColumnNames
    from headwater.client.producer.statistics import ProducerStatistics

T = TypeVar("T")
_log = logging.getLogger("headwater")

# A signal that comes right before Python begins to wait for a lock does not end the wait; it is seen in the next one.
_LONGEST_WAIT_S: Final = 0.1


class Producer(BlockingClient["ThreadedProducer"]):
    """Sends records to any Kafka. Any number of threads may use it.

    >>> with Producer("localhost:9092", acks="all", linger_ms=5) as producer:  # doctest: +SKIP
    ...     handle = producer.send("orders", b"six bottles", key="ann")
    ...     handle.result()
    RecordMetadata(topic='orders', partition=0, offset=0, timestamp_ms=1763296365123)

    Settings have Kafka's names with `_` for `.`, and Kafka's defaults. Leaving the block sends what is left. A program
    that ends without that loses what was not sent yet, and a warning of the logger `headwater` says how many.
    """

    def __init__(self, bootstrap: str | None = None, **settings: object) -> None:
        self._start(lambda io: ThreadedProducer(io, bootstrap, **settings))

    @classmethod
    def from_config(cls, config: Mapping[str, object]) -> Self:
        """A producer from settings under Kafka's own names.

        >>> Producer.from_config({"bootstrap.servers": "localhost:9092", "linger.ms": 5})  # doctest: +SKIP
        """
        settings = {name.replace(".", "_"): value for name, value in config.items()}
        made = cls.__new__(cls)
        made._start(lambda io: ThreadedProducer(io, None, **settings))
        return made

    def _start(self, make: Callable[[IoThread], "ThreadedProducer"]) -> None:
        self._begin("producer", make)
        records, io = self._client.records, self._io
        io.on_fork = lambda: _refuse(records, io)
        weakref.finalize(self, _tell_what_is_lost, io, self._client.accumulator)
        self._io.run(self._client.start())
        if self._client.interceptors is None and type(self).send is Producer.send:
            # The method without a call between: that would cost a fifth of what the whole send may.
            self.send = records.send  # type: ignore[method-assign]

    def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: "Headers | None" = None,
        on_delivery: "OnDelivery | None" = None,
    ) -> SendHandle:
        """Puts a record on its way; the handle tells what becomes of it: `handle.result()` waits for that.

        Waits for memory and for word of the topic, for up to `max.block.ms`; then `TimedOutError`, and the record is
        not sent. `on_delivery(error, metadata)` is called once the record is written or has failed, by the producer's
        own thread: it may send, but not wait for this producer.
        """
        record = ProducerRecord(
            topic=topic, value=value, key=key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
        )
        interceptors = self._client.interceptors
        if interceptors is None:
            return self._put(record, on_delivery)
        record = interceptors.on_send(record)
        try:
            handle = self._put(record, on_delivery)
        except Exception as error:
            interceptors.failed(error)
            raise
        interceptors.watch(handle)
        return handle

    def _put(self, record: ProducerRecord, on_delivery: "OnDelivery | None") -> SendHandle:
        handle: SendHandle = self._client.records.send(
            record.topic,
            record.value,
            key=record.key,
            partition=record.partition,
            timestamp_ms=record.timestamp_ms,
            headers=record.headers,
            on_delivery=on_delivery,
        )
        return handle

    def send_arrow(
        self,
        topic: str,
        table: "pa.Table | pa.RecordBatch",
        *,
        key: str | None = None,
        value: str | None = None,
        partition_by: str | None = None,
        timestamp: str | None = None,
        headers: str | None = None,
    ) -> "ArrowHandle":
        """Sends every row of a table as a record; columns are named, and hold bytes or text.

        The partition is the key's, as in `send`; that of the column `partition_by`, if there is one; or the number in
        that column, if it is one of whole numbers. Rows without either go to all partitions in turn. `timestamp` is a
        column of timestamps or milliseconds, `headers` one of lists of `{key, value}`, which costs the speed: such rows
        are sent one by one. Serializers and interceptors do not see rows.

        Waits for memory as `send` does; the handle tells offsets and counts by partition.

        >>> producer.send_arrow("orders", table, key="customer", value="order").result()  # doctest: +SKIP
        {0: SentRows(count=1000000, first_offset=0, last_offset=999999)}
        """
        from headwater.client.producer.arrow import ColumnNames

        names = ColumnNames(key=key, value=value, partition_by=partition_by, timestamp=timestamp, headers=headers)
        return self._client.send_table(topic, table, names)

    def flush(self, timeout_s: float | None = None) -> None:
        """Waits until everything sent so far is written or has failed; handles tell which."""
        self._io.run(self._client.flush(timeout_s))

    def close(self, timeout_s: float | None = None) -> None:
        """Sends what is left, waits for it, and ends the thread; what takes longer fails with `ClosedError`.

        An open transaction is aborted. In a child process this does nothing: the producer is the parent's.
        """
        if self._io.closed:
            return
        try:
            self._io.run(self._client.close(timeout_s))
        finally:
            self._io.abandon()

    def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """The partitions of a topic, waited for as `send` does."""
        return self._io.run(self._client.partitions_for(topic))

    @property
    def pending_records(self) -> int:
        """How many records are on their way: sent, and neither written nor failed yet."""
        return self._client.accumulator.pending_records

    @property
    def statistics(self) -> "ProducerStatistics":
        """What the producer's connections have done so far."""
        return self._client.statistics

    def init_transactions(self) -> None:
        """Takes the `transactional.id`; transactions left open under it are ended. Once, before all else."""
        self._io.run(self._client.init_transactions())

    def begin_transaction(self) -> None:
        """What is sent from now on is part of one transaction."""
        self._io.run(self._client.begin_transaction())

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, CommittedOffset | int], group: GroupMember | str
    ) -> None:
        """Commits a consumer's offsets with the transaction, or not at all: the next ones to read, by partition.

        `group` is the consumer's `group_metadata()`, so that one that was shut out of its group cannot commit; the
        group's name alone does without that check.
        """
        self._io.run(self._client.send_offsets_to_transaction(offsets, group))

    def commit_transaction(self) -> None:
        """Sends what is left and commits. Raises what could not be sent: then only `abort_transaction` is left.

        After `TimedOutError` it is not known whether the transaction is committed: call it again.
        """
        self._io.run(self._client.commit_transaction())

    def abort_transaction(self) -> None:
        """Drops what is not sent yet and aborts: nothing of it is seen by whoever reads committed records."""
        self._io.run(self._client.abort_transaction())

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction as a block: committed at its end, aborted when something is raised in it or by the commit.

        >>> with producer.transaction():  # doctest: +SKIP
        ...     producer.send("orders", "six bottles")
        """
        block = self._client.transaction()
        self._io.run(block.__aenter__())
        try:
            yield
        except BaseException as error:
            # Ctrl-C is this thread's alone; the producer's only hears that something went wrong.
            told = error if isinstance(error, Exception) else ClientError("the block of the transaction was left early")
            self._io.run(block.__aexit__(type(told), told, None))
            raise
        self._io.run(block.__aexit__(None, None, None))


class ThreadedProducer(AsyncProducer):
    """The asyncio producer as it lives on its thread: those who send are other threads, and wait as threads do."""

    def __init__(self, io: IoThread, bootstrap: str | None, **settings: object) -> None:
        self._io = io
        super().__init__(bootstrap, **settings)

    def send_table(self, topic: str, table: "pa.Table | pa.RecordBatch", names: "ColumnNames") -> "ArrowHandle":
        """In the thread that sends: its rows are encoded there, while the producer's own thread sends others."""
        self._io.check_usable()
        if not self.records.knows(topic, None):
            self._io.run(self.wait_for_topic(topic))
        return _run_here(self._send_table(topic, table, names))

    async def _place(self, record: UnplacedRecord) -> SendHandle:
        return self._hold_back(record)

    async def _wait_for_room(self, ticket: RoomTicket) -> None:
        if not _granted(ticket, time.monotonic() + self.settings.max_block_ms / 1000):
            raise self._no_room()

    def _hold_back(self, record: UnplacedRecord) -> SendHandle:
        """In the thread that sends: waits for what a record cannot go without, word of its topic and memory."""
        self._io.check_usable()
        gives_up_at_s = time.monotonic() + self.settings.max_block_ms / 1000
        if not self.records.knows(record.topic, record.partition):
            self._io.run(self.wait_for_topic(record.topic, record.partition))
        handle: SendHandle | None = self.records.place(record)
        while handle is None:
            with self.records.line_up(record) as ticket:
                if not _granted(ticket, gives_up_at_s):
                    raise self._no_room()
                handle = self.records.place(record, ticket)
        return handle


def _run_here(rows: Coroutine[Any, Any, T]) -> T:
    """Runs what waits, if at all, as threads do: between two steps it only lets others have their turn."""
    try:
        while True:
            rows.send(None)
    except StopIteration as done:
        result: T = done.value
        return result


def _granted(ticket: RoomTicket, gives_up_at_s: float) -> bool:
    while (left_s := gives_up_at_s - time.monotonic()) > 0:
        if ticket.wait(min(left_s, _LONGEST_WAIT_S)):
            return True
    return False


def _refuse(records: RecordSender, io: IoThread) -> None:
    records.refusal = io.refusal()


def _tell_what_is_lost(io: IoThread, accumulator: Accumulator) -> None:
    if not io.closed and (lost := accumulator.pending_records):
        _log.warning("a producer was not closed: %d records may not have been sent; use `with`, or close it", lost)
