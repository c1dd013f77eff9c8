"""Reads one range of a partition as Arrow batches, from the memory that the answers of brokers were received into.

While a batch is being looked at, the next answer is on its way. A range ends at its end offset also where nothing is
left to see before it: markers of transactions, aborted records, records that were compacted away.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from headwater.client.answer_memory import AnswerMemory
from headwater.client.client import Client
from headwater.client.consumer.arrow import array_of
from headwater.client.consumer.corrupt_batches import CorruptBatch, OnCorrupt, ReadingRules
from headwater.client.consumer.fetch_answers import chunk_of, kept_back
from headwater.client.consumer.fetch_lane import PartitionAnswer
from headwater.client.consumer.fetch_requests import fetch
from headwater.client.consumer.fetch_sessions import FINAL_EPOCH, NO_SESSION, FetchPlan, FetchSession, Wanted
from headwater.client.consumer.offsets import find_offsets
from headwater.client.consumer.prefetch import Chunk
from headwater.client.consumer.resets import EARLIEST_MS
from headwater.client.consumer.subscription import NO_EPOCH
from headwater.client.errors import CorruptRecordError, RefusedError, error_code
from headwater.lake.datasource.brokers import Brokers
from headwater.lake.datasource.columns import TOPIC_COLUMNS
from headwater.lake.datasource.spots import DataLoss
from headwater.lake.datasource.topic_offsets import TopicRange
from headwater.lake.errors import LakeError
from headwater.protocol.kafka_types import ErrorCode
from headwater.protocol.record_columns import RecordColumns
from headwater.types import TopicPartition

BATCH_ROWS: Final = 1 << 16
"""Larger batches gain nothing in Spark, which takes memory for a whole one."""
_SMALLEST_FETCH_BYTES: Final = 1 << 16
_MORE_THAN_ESTIMATED: Final = 1.1
_UNKNOWN_THERE: Final = (ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id)


def read_range(
    brokers: Brokers,
    wanted: TopicRange,
    *,
    columns: Collection[str],
    data_loss: DataLoss = "fail",
    on_corrupt: OnCorrupt | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of the range in their order, with these of the `TOPIC_COLUMNS`.

    What cannot be read is a `LakeError`, unless there is an `on_corrupt`: then it is skipped, and told of once in all
    the ranges that a partition is cut into.
    """
    schema = pa.schema([field for field in TOPIC_COLUMNS if field.name in columns])
    memory = AnswerMemory()
    fetches = _Fetches(brokers, wanted, data_loss, None if on_corrupt is None else _own(wanted, on_corrupt))
    while (chunk := brokers.run(fetches.next)) is not None:
        while not chunk.batches.exhausted:
            try:
                found = chunk.batches.take_columns(memory=memory)
            except CorruptRecordError as error:
                raise _unreadable(error) from error
            rows = bisect_left(found.offsets, wanted.end)
            batch = _batch(found, wanted, schema)
            for first in range(0, rows, BATCH_ROWS):
                yield batch.slice(first, min(BATCH_ROWS, rows - first))


def _own(wanted: TopicRange, on_corrupt: OnCorrupt) -> OnCorrupt:
    """Tells of those batches only that begin in the range: one that lies across its start is its neighbour's."""

    def tell(batch: CorruptBatch) -> None:
        base = batch.base_offset if batch.base_offset >= 0 else batch.first_offset
        if base < wanted.end and (base >= wanted.start or wanted.begins):
            on_corrupt(batch)

    return tell


def _unreadable(error: CorruptRecordError) -> LakeError:
    return LakeError(
        f"cannot read {error.batch}. Go on behind it with --skip-corrupt, or the option corrupt.records = skip: "
        "what cannot be read is kept in _corrupt_record"
    )


def _batch(found: RecordColumns, origin: TopicRange, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([_array(found, origin, field) for field in schema], schema=schema)


def _array(found: RecordColumns, origin: TopicRange, field: pa.Field) -> pa.Array:
    if field.name == "_topic":
        return pa.repeat(pa.scalar(origin.topic, field.type), len(found))
    if field.name == "_partition":
        return pa.repeat(pa.scalar(origin.partition, field.type), len(found))
    array = array_of(found, field.name.removeprefix("_"))
    return array.cast(field.type) if field.name == "_timestamp" else array


class _WithoutSession(FetchSession):
    """One partition is named in a few bytes: a session would only take a place at the broker."""

    def plan(self, wanted: Mapping[TopicPartition, Wanted]) -> FetchPlan:
        """Every request stands for itself."""
        return FetchPlan(NO_SESSION, FINAL_EPOCH, wanted, {})


class _Fetches:
    """The answers for one range, one after the other; all of it on the event loop of the brokers' client."""

    def __init__(self, brokers: Brokers, wanted: TopicRange, data_loss: DataLoss, on_corrupt: OnCorrupt | None) -> None:
        # Which replica is near is not asked: the leader has everything.
        self._settings = replace(brokers.settings, client_rack="")
        self._partition = TopicPartition(wanted.topic, wanted.partition)
        self._end = wanted.end
        self._skips_loss = data_loss == "skip"
        self._offset = wanted.start
        self._bytes_per_offset = wanted.size_bytes / max(wanted.offsets, 1)
        self._ahead: asyncio.Task[PartitionAnswer] | None = None
        self._rules = ReadingRules(self._settings.check_crcs, self._settings.decompressed_batch_max_bytes, on_corrupt)
        self._last: Chunk | None = None

    async def next(self, client: Client) -> Chunk | None:
        """The next records, once those before are read; None behind the end of the range."""
        await self._go_behind_the_last()
        while self._offset < self._end:
            asked_ahead, self._ahead = self._ahead, None
            try:
                answer = await (self._fetch(client) if asked_ahead is None else asked_ahead)
            except RefusedError as error:
                if error.code is not ErrorCode.offset_out_of_range:
                    raise
                await self._out_of_range(client)
                continue
            except CorruptRecordError as error:
                self._skip(error)
                continue
            if not len(answer.records):
                # The log goes on up to the end of the range at least, and has nothing more before it.
                return None
            try:
                chunk = chunk_of(self._partition, self._offset, answer, self._rules)
            except CorruptRecordError as error:
                self._skip(error)
                continue
            if chunk is None:
                return None
            self._bytes_per_offset = chunk.size_bytes / max(chunk.end.offset - self._offset, 1)
            self._last, self._offset = chunk, chunk.end.offset
            if self._offset < self._end and chunk.batches.ends_surely:
                self._ahead = asyncio.create_task(self._fetch(client))
            return chunk
        return None

    async def _go_behind_the_last(self) -> None:
        """Where something could not be read, what was asked for ahead may not be what follows."""
        last, self._last = self._last, None
        if last is None or last.batches.next_offset == self._offset:
            return
        self._offset = last.batches.next_offset
        if self._ahead is not None:
            self._ahead.cancel()
            await asyncio.gather(self._ahead, return_exceptions=True)
            self._ahead = None

    def _skip(self, error: CorruptRecordError) -> None:
        """Goes on behind what a broker keeps back as damaged, if that may be skipped."""
        if self._rules.skip is None:
            raise _unreadable(error) from error
        self._rules.skip(error.batch)
        self._offset = error.batch.next_offset

    async def _fetch(self, client: Client) -> PartitionAnswer:
        return await client.retry(
            lambda: self._fetch_once(client), deadline_s=self._settings.default_api_timeout_ms / 1000
        )

    async def _fetch_once(self, client: Client) -> PartitionAnswer:
        topic, number = self._partition
        node = await client.leader(topic, number)
        leader, topic_id = client.leader_of(topic, number), client.topic_id(topic)
        asked = Wanted(
            self._offset,
            NO_EPOCH if leader is None else leader.epoch,
            self._fetch_bytes(),
            None if topic_id is None else topic_id.bytes,
        )
        found = await fetch(
            client, node, _WithoutSession(), {self._partition: asked}, self._settings, self._settings.fetch_max_bytes
        )
        if found.throttle_ms > 0:
            # The broker has answered at once, maybe without records, and leaves it to us to keep to our quota.
            await asyncio.sleep(found.throttle_ms / 1000)
        code = error_code(found.error_code or (found.partitions[0].error_code if found.partitions else 0))
        if code in _UNKNOWN_THERE:
            # A broker that has come to lead may not have heard of it yet; a topic that is gone is an error here.
            await client.topic(topic)
            code = ErrorCode.leader_not_available
        if code is ErrorCode.corrupt_message:
            raise CorruptRecordError(kept_back(self._partition, self._offset))
        message = None
        if code is ErrorCode.none and not self._tells_all(found.partitions):
            code = ErrorCode.offset_not_available
            message = f"its leader has nothing there, and the log should go on to offset {self._end}"
        if code is not ErrorCode.none:
            raise RefusedError(f"partition {self._partition}, offset {self._offset}", code, message)
        return found.partitions[0]

    def _fetch_bytes(self) -> int:
        """What is left of the range, about: the rest of an answer would be thrown away."""
        left = int((self._end - self._offset) * self._bytes_per_offset * _MORE_THAN_ESTIMATED)
        return min(self._settings.max_partition_fetch_bytes, max(left, _SMALLEST_FETCH_BYTES))

    def _tells_all(self, answers: Sequence[PartitionAnswer]) -> bool:
        """Whether there are records, or none because the log has none before the end of the range.

        A broker that has just come to lead may not know yet that the log is that long.
        """
        if not answers or len(answers[0].records):
            return bool(answers)
        visible = answers[0].last_stable_offset if self._settings.read_committed else answers[0].high_watermark
        return visible >= self._end

    async def _out_of_range(self, client: Client) -> None:
        """Goes on where the log has something, if what is lost may be skipped."""
        timeout_s = self._settings.default_api_timeout_ms / 1000
        found = await find_offsets(client, {self._partition: EARLIEST_MS}, read_committed=False, timeout_s=timeout_s)
        there = found[self._partition]
        earliest = 0 if there is None else there.offset
        if not self._skips_loss:
            raise LakeError(
                f"partition {self._partition} has lost offset {self._offset} since the read was planned: its log "
                f"begins at {earliest} now. Read on without what is lost with the option data.loss = skip"
            )
        self._offset = earliest if earliest > self._offset else self._end
