"""The asyncio producer, `headwater.aio.Producer`: what its users call, thin over the parts that do the work.

`send` awaits only while there is no room or nothing is known of the topic; the sender's task does the rest. All of it
belongs to the event loop that it was started on; only the accumulator behind it may be filled from other threads.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from headwater.client.client import Client
from headwater.client.configured import connection_settings
from headwater.client.errors import CannotConnectError, ClientError, ClosedError, RefusedError, TimedOutError
from headwater.client.producer.accumulator import Accumulator, AppendedRows, monotonic_ms
from headwater.client.producer.handles import OnDelivery, SendHandle
from headwater.client.producer.idempotence import Sequences
from headwater.client.producer.idle_topics import IdleTopics
from headwater.client.producer.interceptors import Interceptors, ProducerRecord
from headwater.client.producer.memory import RoomTicket
from headwater.client.producer.sender import Sender
from headwater.client.producer.sending import Headers, RecordSender, UnplacedRecord
from headwater.client.producer.settings import ProducerSettings, producer_settings
from headwater.client.producer.statistics import ProducerStatistics
from headwater.client.producer.transaction_calls import TransactionCalls
from headwater.client.producer.transaction_requests import CommittedOffset, GroupMember, TransactionRequests
from headwater.client.producer.transactions import Transactions, TransactionState
from headwater.config.errors import ConfigError
from headwater.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.client.producer.arrow import ArrowHandle, ColumnNames


class Producer:
    """Sends records to any Kafka.

    >>> async with Producer("localhost:9092", linger_ms=20) as producer:
    ...     handle = await producer.send("orders", "six bottles", key="ann")
    ...     print((await handle).offset)
    0

    Settings have Kafka's names with `_` for `.`, and Kafka's defaults. Leaving the block sends what is left.
    """

    def __init__(self, bootstrap: str | None = None, **settings: object) -> None:
        if bootstrap is not None:
            settings["bootstrap_servers"] = bootstrap
        self.settings: ProducerSettings = producer_settings(settings)
        found = self.settings
        addresses = ",".join(found.connection["bootstrap_servers"])
        if not addresses:
            raise ConfigError('bootstrap.servers is not set: name a broker, as in Producer("localhost:9092").')
        self.client = Client(addresses, connection_settings(found.connection, client_id="headwater-producer"))
        self.accumulator = Accumulator(
            batch_size=found.batch_size,
            linger_ms=found.linger_ms,
            buffer_memory=found.buffer_memory,
            compression=found.compression,
            compression_level=found.compression_level,
            wake=self._wake,
            max_request_size=found.max_request_size,
            retry_backoff_ms=found.retry_backoff_ms,
            retry_backoff_max_ms=found.retry_backoff_max_ms,
        )
        self.statistics = ProducerStatistics(self.client.statistics, self.accumulator)
        """What the producer and its connections have done so far."""
        self.records = self._record_sender()
        """The way in for records that need not wait: any thread may use it."""
        self._transactions = Transactions(self._state_changed) if found.transactional_id is not None else None
        self._sequences = Sequences(transactional=self._transactions is not None) if found.enable_idempotence else None
        self._requests = TransactionRequests(
            self.client,
            found.transactional_id,
            transaction_timeout_ms=found.transaction_timeout_ms,
            retry_backoff_ms=found.retry_backoff_ms,
            retry_backoff_max_ms=found.retry_backoff_max_ms,
        )
        self.interceptors = Interceptors(found.interceptor_classes) if found.interceptor_classes else None
        self._transaction_calls: TransactionCalls | None = None
        if self._transactions is not None and self._sequences is not None:
            self._transaction_calls = TransactionCalls(
                self._transactions, self._requests, self._sequences, self._settle_all, max_block_ms=found.max_block_ms
            )
        self._sender: Sender | None = None
        self._closed = False
        self._topics: set[str] = set()
        self._idle_topics = IdleTopics(found.metadata_max_idle_ms)
        self.client.on_metadata.append(self._metadata_changed)
        self._state_changed()

    @classmethod
    def from_config(cls, config: Mapping[str, object]) -> Self:
        """A producer from settings under Kafka's own names.

        >>> Producer.from_config({"bootstrap.servers": "localhost:9092", "linger.ms": 5})  # doctest: +SKIP
        """
        return cls(None, **{name.replace(".", "_"): value for name, value in config.items()})

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Begins to send; the first `send` does so too, if it was not done before."""
        self._running()

    async def send(
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
        """Puts a record on its way; the handle tells what becomes of it, when awaited.

        Waits for memory and for word of the topic, for up to `max.block.ms`; then `TimedOutError`, and the record is
        not sent. `on_delivery(error, metadata)` is called once the record is written or has failed.
        """
        if self._sender is None:
            self._running()
        interceptors = self.interceptors
        if interceptors is not None:
            given = ProducerRecord(topic, value, key, partition, timestamp_ms, headers)
            topic, value, key, partition, timestamp_ms, headers = interceptors.on_send(given)
        try:
            try:
                handle: SendHandle = self.records.send(
                    topic,
                    value,
                    key=key,
                    partition=partition,
                    timestamp_ms=timestamp_ms,
                    headers=headers,
                    on_delivery=on_delivery,
                )
            except _HeldBackError as held:
                handle = await self._place(held.record)
        except Exception as error:
            if interceptors is not None:
                interceptors.failed(error)
            raise
        if interceptors is not None:
            interceptors.watch(handle)
        return handle

    async def send_arrow(
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

        >>> handle = await producer.send_arrow("orders", table, key="customer", value="order")  # doctest: +SKIP
        >>> await handle  # doctest: +SKIP
        {0: SentRows(count=1000000, first_offset=0, last_offset=999999)}
        """
        from headwater.client.producer.arrow import ColumnNames

        names = ColumnNames(key=key, value=value, partition_by=partition_by, timestamp=timestamp, headers=headers)
        self._running()
        await self.wait_for_topic(topic)
        return await self._send_table(topic, table, names)

    async def _send_table(self, topic: str, table: "pa.Table | pa.RecordBatch", names: "ColumnNames") -> "ArrowHandle":
        """Puts the rows of a table on their way to a topic that is known."""
        from headwater.client.producer.arrow import ArrowHandle, TableSender, rows_with_headers

        if self.records.refusal is not None:
            raise self.records.refusal
        handle = ArrowHandle()
        partitions = self.client.partition_count(topic)
        assert partitions is not None
        if names.headers is not None:
            for record in rows_with_headers(table, names, topic, partitions):
                handle.add([AppendedRows(self.records.place(record) or await self._place(record), 1)])
            return handle
        sender = TableSender(self.accumulator, topic, partitions, self._wait_for_room)
        await sender.send(table, names, handle, ignore_keys=self.settings.partitioner_ignore_keys)
        return handle

    async def flush(self, timeout_s: float | None = None) -> None:
        """Waits until everything sent so far is written or has failed; handles tell which."""
        self._running()
        await self._flush(timeout_s)

    async def close(self, timeout_s: float | None = None) -> None:
        """Sends what is left, waits for it, and closes; what takes longer than `timeout_s` fails with `ClosedError`.

        An open transaction is aborted.
        """
        if self._closed:
            return
        self._closed = True
        self.records.refusal = _closed()
        sender = self._sender
        if sender is not None:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._finish()
            except TimeoutError:
                pass
            finally:
                await sender.stop()
        await self.client.close()
        if self.interceptors is not None:
            self.interceptors.close()

    async def partitions_for(self, topic: str) -> list["PartitionInfo"]:
        """The partitions of a topic, waited for as `send` does."""
        await self.wait_for_topic(topic)
        found = self.client.known_topics[topic].partitions
        return [
            PartitionInfo(
                topic,
                number,
                int(partition.leader_id) if partition.leader_id >= 0 else None,
                tuple(map(int, partition.replica_nodes)),
                tuple(map(int, partition.isr_nodes)),
            )
            for number, partition in sorted(found.items())
        ]

    async def init_transactions(self) -> None:
        """Takes the `transactional.id`; transactions left open under it are ended. Once, before all else."""
        self._running()
        await self._calls("init_transactions").initialize()

    async def begin_transaction(self) -> None:
        """What is sent from now on is part of one transaction."""
        self._calls("begin_transaction").begin()

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, CommittedOffset | int], group: GroupMember | str
    ) -> None:
        """Commits a consumer's offsets with the transaction, or not at all: the next ones to read, by partition.

        `group` is the consumer's `group_metadata()`, so that one that was shut out of its group cannot commit; the
        group's name alone does without that check.
        """
        await self._calls("send_offsets_to_transaction").send_offsets(offsets, group)

    async def commit_transaction(self) -> None:
        """Sends what is left and commits. Raises what could not be sent: then only `abort_transaction` is left.

        After `TimedOutError` it is not known whether the transaction is committed: call it again.
        """
        await self._calls("commit_transaction").commit()

    async def abort_transaction(self) -> None:
        """Drops what is not sent yet and aborts: nothing of it is seen by whoever reads committed records."""
        await self._calls("abort_transaction").abort()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """A transaction as a block: committed at its end, aborted when something is raised in it or by the commit.

        >>> async with producer.transaction():  # doctest: +SKIP
        ...     await producer.send("orders", "six bottles")
        """
        await self.begin_transaction()
        try:
            yield
            await self.commit_transaction()
        except TimedOutError:
            # A commit that ran out of time may have been carried out: it cannot be aborted, only repeated.
            if self._state is not TransactionState.COMMITTING:
                await self._abort_after_error()
            raise
        except BaseException:
            await self._abort_after_error()
            raise

    async def _abort_after_error(self) -> None:
        """Aborts if that is possible. What led here is what the caller hears, not what the abort says to it."""
        if self._state in (TransactionState.IN_TRANSACTION, TransactionState.ABORTABLE_ERROR):
            with suppress(ClientError):
                await self.abort_transaction()

    @property
    def _state(self) -> TransactionState | None:
        return None if self._transactions is None else self._transactions.state

    def _calls(self, call: str) -> TransactionCalls:
        if self._transaction_calls is None:
            raise ConfigError(
                f'{call} needs transactional.id: give the producer one, as in transactional_id="billing-1".'
            )
        if self._closed:
            raise _closed()
        return self._transaction_calls

    def _running(self) -> Sender:
        if self._closed:
            raise _closed()
        if self._sender is None:
            self._sender = Sender(
                self.client,
                self.accumulator,
                self.settings,
                self._requests,
                self.statistics,
                sequences=self._sequences,
                transactions=self._transactions,
                on_availability=self._route_records,
            )
        if self._sender.failure is not None:
            raise self._sender.failure
        return self._sender

    def _wake(self) -> None:
        if self._sender is not None:
            self._sender.wake()

    async def _finish(self) -> None:
        if self._state in (TransactionState.IN_TRANSACTION, TransactionState.ABORTABLE_ERROR):
            assert self._transaction_calls is not None
            with suppress(ClientError):
                await self._transaction_calls.abort()
        self.accumulator.close()
        await self._flush(None)

    async def _settle_all(self, timeout_s: float) -> None:
        """Waits until nothing of a transaction is on its way, neither to its partitions nor to its coordinator."""
        await self._flush(timeout_s)
        assert self._sender is not None
        try:
            async with asyncio.timeout(timeout_s):
                await self._sender.quiet()
        except TimeoutError:
            raise TimedOutError(f"the coordinator did not answer within {timeout_s:g} s") from None

    async def _flush(self, timeout_s: float | None) -> None:
        deliveries = self.accumulator.flush_begin()
        try:
            async with asyncio.timeout(timeout_s):
                for delivery in deliveries:
                    await delivery.settled()
        except TimeoutError:
            raise TimedOutError(f"not everything was acknowledged within {timeout_s:g} s") from None
        finally:
            self.accumulator.flush_end()

    def _record_sender(self) -> RecordSender:
        found = self.settings
        serializes = found.key_serializer is not None or found.value_serializer is not None
        return RecordSender(
            self.accumulator,
            hold_back=self._hold_back,
            prepare=self._serialized if serializes else None,
            partitioner=found.partitioner,
            ignore_keys=found.partitioner_ignore_keys,
            adaptive=found.partitioner_adaptive_partitioning_enable,
        )

    def _serialized(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: "Headers | None",
    ) -> tuple[Any, ...]:
        """None is no value, not a value to serialize."""
        if self.settings.value_serializer is not None and value is not None:
            value = self.settings.value_serializer(value)
        if self.settings.key_serializer is not None and key is not None:
            key = self.settings.key_serializer(key)
        return value, key, partition, timestamp_ms, headers

    def _hold_back(self, record: UnplacedRecord) -> SendHandle:
        """Called by `RecordSender` in the midst of `send`, which cannot wait: `send` above it does."""
        raise _HeldBackError(record)

    async def _place(self, record: UnplacedRecord) -> SendHandle:
        """Waits for what a record cannot go without: word of its topic, and memory."""
        await self.wait_for_topic(record.topic, record.partition)
        while True:
            handle: SendHandle | None = self.records.place(record)
            if handle is not None:
                return handle
            with self.records.line_up(record) as ticket:
                await self._wait_for_room(ticket)
                placed: SendHandle | None = self.records.place(record, ticket)
                if placed is not None:
                    return placed

    async def _wait_for_room(self, ticket: RoomTicket) -> None:
        try:
            async with asyncio.timeout(self.settings.max_block_ms / 1000):
                await ticket.future(asyncio.get_running_loop())
        except TimeoutError:
            raise self._no_room() from None

    def _no_room(self) -> TimedOutError:
        return TimedOutError(
            f"no memory was free within max.block.ms = {self.settings.max_block_ms}: records on their way take all of "
            f"buffer.memory = {self.settings.buffer_memory}; send more slowly, or raise it"
        )

    async def wait_for_topic(self, topic: str, partition: int | None = None) -> None:
        """Waits until it is known where records of a topic (and partition) go; `TimedOutError` after `max.block.ms`."""
        self._running()
        client, limit_ms = self.client, self.settings.max_block_ms
        reason: ClientError | None = None
        try:
            async with asyncio.timeout(limit_ms / 1000):
                client.watch([topic])
                while not self.records.knows(topic, partition):
                    try:
                        client.need_refresh([topic])
                        await client.fresh_metadata()
                    except ClientError as error:
                        if not isinstance(error, CannotConnectError) and not client.may_pass(error):
                            raise
                        reason = error
                        continue
                    code = client.topic_error(topic)
                    reason = None if code is None else RefusedError(f"topic {topic}", code)
                    if reason is not None and code is not None and not code.retriable:
                        raise reason
        except TimeoutError:
            if reason is None:
                count = client.partition_count(topic)
                reason = ClientError(f"it has {count} partitions, and {partition} is not among them")
            raise TimedOutError(f"topic {topic} is not known within max.block.ms = {limit_ms}: {reason}") from None

    def _metadata_changed(self) -> None:
        """Has records go where the cluster is now said to have partitions."""
        known = [self.accumulator.topic(name) for name in self.client.known_topics]
        self.client.forget_topics(self._idle_topics.find(known, monotonic_ms()))
        self._route_records()
        for name in [name for name in self._topics if name not in self.client.known_topics]:
            self.records.forget(name)
        self._topics = set(self.client.known_topics)
        if self._sender is not None:
            self._sender.nudge()

    def _route_records(self) -> None:
        """Tells the partitions of each topic, and which of them records without a key may go to."""
        shunned = frozenset() if self._sender is None else self._sender.unavailable
        for name, topic in self.client.known_topics.items():
            count = len(topic.partitions)
            if count == 0:
                # Records wait for its partitions as they do for those of a topic that is not known.
                self.records.forget(name)
                continue
            # Records go to partitions below the count: a broker that leaves gaps names others that there are none of.
            available = sorted(
                number for number, leader in topic.leaders.items() if number < count and leader.node_id not in shunned
            )
            self.records.set_partitions(name, count, available)

    def _state_changed(self) -> None:
        """Has `send` refuse records where they would belong to no transaction, or to one that can only be aborted."""
        if self._transactions is not None and not self._closed:
            self.records.refusal = self._transactions.refusal("send")
        if self._sender is not None:
            self._sender.nudge()


class _HeldBackError(Exception):
    """A record has to wait: its topic is not known yet, or no memory is free."""

    def __init__(self, record: UnplacedRecord) -> None:
        super().__init__()
        self.record = record


class PartitionInfo(NamedTuple):
    """One partition as the cluster tells of it; `leader` is None where it has none."""

    topic: str
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]


def _closed() -> ClosedError:
    return ClosedError("the producer is closed: make another")
