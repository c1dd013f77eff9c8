"""Reads the partitions of one topic: every leader has a fetch in flight while earlier answers are read."""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from headwater.client.client import FIRST_BACK_OFF_S, LONGEST_BACK_OFF_S, Client, duration
from headwater.client.errors import ClientError, RefusedError, TimedOutError
from headwater.client.thin.offsets import Isolation, Spot, list_offsets
from headwater.protocol.kafka_types import BrokerId, ErrorCode, TopicName, i8, i32, i64
from headwater.protocol.records import BatchHeader, decode_records, scan_headers
from headwater.types import TopicPartition

from kio.schema.fetch.v12.request import FetchPartition, FetchRequest, FetchTopic  # isort: skip
from kio.schema.fetch.v12.response import AbortedTransaction, FetchResponse, PartitionData  # isort: skip

MAX_WAIT_S: Final = 0.5
MAX_BYTES: Final = 64 * 1024 * 1024
PARTITION_MAX_BYTES: Final = 4 * 1024 * 1024
_ABORT_MARKER: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What one fetch brought of one partition.

    `batches` are the visible ones in `buffer`; the first may begin with records before `first_offset`, which
    were not asked for. `next_offset` is where the next fetch goes on, past batches that are not visible.
    """

    partition: int
    first_offset: int
    next_offset: int
    buffer: bytes
    batches: Sequence[BatchHeader]


_Answers: TypeAlias = "asyncio.Queue[list[Fetched] | ClientError]"


class Fetcher:
    """Follows the partitions in `positions` (partition to next offset). Iterate inside `contextlib.aclosing`.

    `on_gap(partition, wanted_offset, first_offset)` is told when records were deleted before they were read.
    """

    def __init__(
        self,
        client: Client,
        topic: str,
        positions: Mapping[int, int],
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        max_wait_s: float | None = None,
        on_gap: Callable[[int, int, int], None] | None = None,
    ) -> None:
        self.positions = dict(positions)
        self._client = client
        self._topic = topic
        self._isolation = isolation
        self._on_gap = on_gap
        self._max_wait_s = MAX_WAIT_S if max_wait_s is None else min(max_wait_s, MAX_WAIT_S)
        self._partition_max_bytes = PARTITION_MAX_BYTES
        self._last_success_s = time.monotonic()

    def stop_reading(self, partition: int) -> None:
        """Leaves a partition out of all further fetches."""
        self.positions.pop(partition, None)

    async def batches(self) -> AsyncGenerator[list[Fetched], None]:
        """Yields what each fetch brought (an empty list: nothing new) until no partition is left to read."""
        back_off_s = FIRST_BACK_OFF_S
        while self.positions:
            by_leader = await self._by_leader()
            answers: _Answers = asyncio.Queue(maxsize=len(by_leader))
            pumps = [asyncio.create_task(self._pump(leader, led, answers)) for leader, led in by_leader.items()]
            try:
                while self.positions:
                    answer = await answers.get()
                    if isinstance(answer, ClientError):
                        break
                    back_off_s = FIRST_BACK_OFF_S
                    yield answer
                else:
                    return
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
            self._raise_unless_passing(answer)
            self._client.forget_leaders()
            await asyncio.sleep(back_off_s)
            back_off_s = min(back_off_s * 2, LONGEST_BACK_OFF_S)

    async def _by_leader(self) -> dict[int, list[int]]:
        async def look_up() -> dict[int, list[int]]:
            by_leader: defaultdict[int, list[int]] = defaultdict(list)
            for partition in self.positions:
                by_leader[await self._client.leader(self._topic, partition)].append(partition)
            return by_leader

        return await self._client.retry(look_up)

    async def _pump(self, leader: int, partitions: Sequence[int], answers: _Answers) -> None:
        """Fetches from one leader, always one answer ahead of whoever takes them."""
        try:
            while asked := {p: self.positions[p] for p in partitions if p in self.positions}:
                await answers.put(await self._fetch(leader, asked))
        except ClientError as error:
            await answers.put(error)

    async def _fetch(self, leader: int, asked: Mapping[int, int]) -> list[Fetched]:
        answer = await self._client.send(self._request(asked), FetchResponse, to=leader)
        if answer.error_code is not ErrorCode.none:
            raise RefusedError(f"fetch from broker {leader}", answer.error_code)
        fetched = []
        for item in (item for topic in answer.responses for item in topic.partitions):
            partition = int(item.partition_index)
            if item.error_code is ErrorCode.offset_out_of_range:
                await self._skip_gap(partition)
            elif item.error_code is not ErrorCode.none:
                raise RefusedError(f"partition {partition} of topic {self._topic}", item.error_code)
            elif item.records:
                fetched.append(self._accept(item, asked[partition]))
        self._last_success_s = time.monotonic()
        return fetched

    def _request(self, asked: Mapping[int, int]) -> FetchRequest:
        partitions = tuple(
            FetchPartition(
                partition=i32(partition),
                fetch_offset=i64(offset),
                partition_max_bytes=i32(self._partition_max_bytes),
            )
            for partition, offset in asked.items()
        )
        return FetchRequest(
            replica_id=BrokerId(-1),
            max_wait=duration(self._max_wait_s),
            min_bytes=i32(1),
            max_bytes=i32(MAX_BYTES),
            isolation_level=i8(self._isolation),
            topics=(FetchTopic(topic=TopicName(self._topic), partitions=partitions),),
            forgotten_topics_data=(),
        )

    def _accept(self, item: PartitionData, first_offset: int) -> Fetched:
        """Moves the position past the batches of an answer and keeps those that may be seen."""
        partition, buffer = int(item.partition_index), item.records or b""
        batches = scan_headers(buffer, 0, len(buffer))
        if not batches:  # a batch larger than what was asked for, cut off: ask for more
            self._partition_max_bytes = min(self._partition_max_bytes * 2, MAX_BYTES * 8)
        next_offset = batches[-1].next_offset if batches else first_offset
        if partition in self.positions:
            self.positions[partition] = next_offset
        return Fetched(
            partition=partition,
            first_offset=first_offset,
            next_offset=next_offset,
            buffer=buffer,
            batches=visible_batches(buffer, batches, item.aborted_transactions or ()),
        )

    async def _skip_gap(self, partition: int) -> None:
        """Goes on at the log's start when the wanted records were deleted; past its end is an error."""
        wanted = self.positions[partition]
        place = TopicPartition(self._topic, partition)
        first = (await list_offsets(self._client, [place], Spot.EARLIEST))[place].offset
        if wanted >= first:
            raise RefusedError(
                f"offset {wanted} of partition {partition} of topic {self._topic}",
                ErrorCode.offset_out_of_range,
            )
        if self._on_gap is not None:
            self._on_gap(partition, wanted, first)
        self.positions[partition] = first

    def _raise_unless_passing(self, error: ClientError) -> None:
        """An error that may pass is waited out, but not for ever."""
        if not self._client.may_pass(error):
            raise error
        if time.monotonic() - self._last_success_s > self._client.timeout_s:
            raise TimedOutError(f"gave up after {self._client.timeout_s:g} s: {error}") from error


def visible_batches(
    buffer: bytes, batches: Sequence[BatchHeader], aborted: Sequence[AbortedTransaction]
) -> list[BatchHeader]:
    """The batches a reader may see: no markers, and nothing of transactions that a broker says were aborted.

    A broker names aborted transactions only to those who read committed records.
    """
    upcoming = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
    aborting: set[int] = set()
    visible = []
    for batch in batches:
        while upcoming and upcoming[-1].first_offset <= batch.last_offset:
            aborting.add(int(upcoming.pop().producer_id))
        if batch.is_control:
            if batch.producer_id in aborting and _is_abort_marker(buffer, batch):
                aborting.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in aborting):
            visible.append(batch)
    return visible


def _is_abort_marker(buffer: bytes, batch: BatchHeader) -> bool:
    """A marker's key is its version and its type, two bytes each."""
    key = next((record.key for record in decode_records(buffer, batch)), None)
    return key is not None and len(key) >= 4 and int.from_bytes(key[2:4], "big") == _ABORT_MARKER
