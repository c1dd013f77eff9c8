"""Brokers on loopback that answer fetches as a test tells them to: what a healthy broker never says, or only in a race.

They speak ApiVersions, Metadata, ListOffsets, OffsetForLeaderEpoch, Fetch and Produce, and hold one topic, whose
records are whatever `write` was given. What is produced is written down and kept nowhere else.
"""

import asyncio
import dataclasses
import uuid
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from headwater.protocol.apis import SERVED
from headwater.protocol.fetch_lane import FetchRequest, read_request
from headwater.protocol.headers import read_header
from headwater.protocol.kafka_types import NO_THROTTLE, BrokerId, ErrorCode, TopicName, i32, i64
from headwater.protocol.messages import convert, decode_request, encode_response
from headwater.protocol.records import encode_batch

from kio.schema.api_versions.v3.response import ApiVersion, ApiVersionsResponse  # isort: skip
from kio.schema.fetch.v12 import response as by_name  # isort: skip
from kio.schema.fetch.v17.response import (  # isort: skip
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from kio.schema.list_offsets.v10.response import (  # isort: skip
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kio.schema.metadata.v12.response import (  # isort: skip
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kio.schema.produce.v13 import response as produced  # isort: skip
from kio.schema.offset_for_leader_epoch.v4.response import (  # isort: skip
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

TOPIC = "orders"
_SPOKEN = ("produce", "fetch", "list_offsets", "metadata", "api_versions", "offset_for_leader_epoch")


class Fetch(NamedTuple):
    """A fetch that came: to which broker, and what it asked of which partitions (its offsets)."""

    node: int
    request: FetchRequest
    wanted: dict[int, int]


class Leader(NamedTuple):
    """Who leads a partition, in which epoch."""

    node: int
    epoch: int


Answer = Callable[[Fetch], FetchResponse | None]
"""Answers a fetch in the place of the default; None leaves it to that."""


class ScriptedCluster:
    """Brokers 1 and 2. Change `leaders`, `moved`, `answers` and `epoch_ends` at any time; look at `fetches`."""

    def __init__(self, partitions: int, fetch_version: int) -> None:
        self.topic_id = uuid.uuid4()
        self.leaders = {number: Leader(1, 0) for number in range(partitions)}
        self.moved: dict[int, Leader] = {}
        """Leaders that the metadata do not know of yet; others than these refuse, and name them."""
        self.listed = {1, 2}
        """Brokers that the metadata name."""
        self.produced: list[tuple[int, int]] = []
        """Nodes and partitions that a batch was sent to."""
        self.answers: list[Answer] = []
        self.epoch_ends: dict[tuple[int, int], tuple[int, int]] = {}
        """End (epoch and offset) of an epoch, by partition and epoch."""
        self.fetches: list[Fetch] = []
        self.silent: set[int] = set()
        """Brokers that leave fetches and batches without an answer."""
        self.most_at_once = 0
        """Fetches that one broker had to answer at the same time, at most."""
        self.metadata_requests = 0
        self.topics_asked_for: list[list[str]] = []
        """By each request for metadata."""
        self._fetch_version = fetch_version
        self._ports: dict[int, int] = {}
        self._logs: defaultdict[int, list[tuple[int, bytes]]] = defaultdict(list)
        self._written = asyncio.Event()
        self._serving: Counter[int] = Counter()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._ports[1]}"

    def write(self, partition: int, *values: bytes, epoch: int = 0) -> None:
        """One batch."""
        base = self.end_offset(partition)
        batch = encode_batch([(None, value, (), 0) for value in values], base_offset=base, leader_epoch=epoch)
        self._logs[partition].append((base + len(values), bytes(batch)))
        self._written.set()

    def end_offset(self, partition: int) -> int:
        log = self._logs[partition]
        return log[-1][0] if log else 0

    def cut(self, partition: int, end_offset: int) -> None:
        """Takes the batches behind an offset away."""
        self._logs[partition] = [entry for entry in self._logs[partition] if entry[0] <= end_offset]

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["ScriptedCluster"]:
        servers = {}
        for node in (1, 2):

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, node: int = node) -> None:
                try:
                    while True:
                        frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                        writer.write(await self._answer(node, frame))
                except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                    pass
                finally:
                    writer.close()

            servers[node] = await asyncio.start_server(serve, "127.0.0.1", 0)
            self._ports[node] = servers[node].sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            for server in servers.values():
                server.close()

    async def _answer(self, node: int, frame: bytes) -> bytes:
        view = memoryview(frame)
        header = read_header(view)
        api, version = header.api, header.version
        if api.name == "fetch":
            request = read_request(view, header.body, version)
            self._serving[node] += 1
            self.most_at_once = max(self.most_at_once, self._serving[node])
            response: Any = await self._fetch(node, request)
            self._serving[node] -= 1
        elif api.name == "produce":
            await self._answers_at_all(node)
            response = self._produce(node, decode_request(api, version, frame, header.body))
        else:
            response = getattr(self, f"_{api.name}")(decode_request(api, version, frame, header.body))
        return encode_response(api, version, header.correlation_id, response)

    def _api_versions(self, request: Any) -> ApiVersionsResponse:
        spoken = [api for api in SERVED.values() if api.name in _SPOKEN]
        return ApiVersionsResponse(
            error_code=ErrorCode.none,
            api_keys=tuple(
                ApiVersion(
                    api_key=api.key,  # type: ignore[arg-type]
                    min_version=api.min_version,  # type: ignore[arg-type]
                    max_version=self._fetch_version if api.name == "fetch" else api.max_version,  # type: ignore[arg-type]
                )
                for api in spoken
            ),
            throttle_time=NO_THROTTLE,
        )

    def _metadata(self, request: Any) -> MetadataResponse:
        self.metadata_requests += 1
        asked = [each.name for each in request.topics] if request.topics is not None else [TOPIC]
        self.topics_asked_for.append(asked)
        brokers = tuple(
            MetadataResponseBroker(node_id=BrokerId(node), host="127.0.0.1", port=i32(port), rack=f"rack-{node}")
            for node, port in self._ports.items()
            if node in self.listed
        )
        partitions = tuple(
            MetadataResponsePartition(
                error_code=ErrorCode.none,
                partition_index=i32(number),
                leader_id=BrokerId(leader.node),
                leader_epoch=i32(leader.epoch),
                replica_nodes=(BrokerId(1), BrokerId(2)),
                isr_nodes=(BrokerId(1), BrokerId(2)),
                offline_replicas=(),
            )
            for number, leader in self.leaders.items()
        )
        topic = MetadataResponseTopic(
            error_code=ErrorCode.none, name=TopicName(TOPIC), topic_id=self.topic_id, partitions=partitions
        )
        return MetadataResponse(
            throttle_time=NO_THROTTLE,
            brokers=brokers,
            controller_id=BrokerId(1),
            cluster_id="c",
            topics=(topic,) if TOPIC in asked else (),
        )

    def _list_offsets(self, request: Any) -> ListOffsetsResponse:
        answers = tuple(
            ListOffsetsPartitionResponse(
                partition_index=each.partition_index,
                error_code=ErrorCode.none,
                offset=i64(0 if each.timestamp == -2 else self.end_offset(each.partition_index)),
            )
            for each in request.topics[0].partitions
        )
        topic = ListOffsetsTopicResponse(name=TopicName(TOPIC), partitions=answers)
        return ListOffsetsResponse(throttle_time=NO_THROTTLE, topics=(topic,))

    def _offset_for_leader_epoch(self, request: Any) -> OffsetForLeaderEpochResponse:
        answers = []
        for each in request.topics[0].partitions:
            number = int(each.partition)
            unknown = (int(each.leader_epoch), self.end_offset(number))
            epoch, end_offset = self.epoch_ends.get((number, int(each.leader_epoch)), unknown)
            answers.append(
                EpochEndOffset(
                    error_code=ErrorCode.none,
                    partition=each.partition,
                    leader_epoch=i32(epoch),
                    end_offset=i64(end_offset),
                )
            )
        topic = OffsetForLeaderTopicResult(topic=TopicName(TOPIC), partitions=tuple(answers))
        return OffsetForLeaderEpochResponse(throttle_time=NO_THROTTLE, topics=(topic,))

    async def _fetch(self, node: int, request: FetchRequest) -> FetchResponse:
        wanted = {each.partition: each.fetch_offset for _, partitions in request.topics for each in partitions}
        fetch = Fetch(node, request, wanted)
        self.fetches.append(fetch)
        await self._answers_at_all(node)
        for answer in self.answers:
            if (scripted := answer(fetch)) is not None:
                return scripted
        if not any(self.end_offset(number) > offset for number, offset in wanted.items()):
            self._written.clear()
            try:
                async with asyncio.timeout(request.max_wait_ms / 1000):
                    await self._written.wait()
            except TimeoutError:
                pass
        if gone := [number for number in wanted if self.moved.get(number, Leader(node, 0)).node != node]:
            refusals = [self._named_leader(number) for number in gone]
            return dataclasses.replace(self.response(*refusals), node_endpoints=self._endpoints())
        return self.response(*(self.found(number, offset) for number, offset in wanted.items()))

    async def _answers_at_all(self, node: int) -> None:
        while node in self.silent:
            await asyncio.sleep(0.005)

    def _produce(self, node: int, request: Any) -> produced.ProduceResponse:
        answers = []
        for each in request.topic_data[0].partition_data:
            number = int(each.index)
            self.produced.append((node, number))
            leader = self.moved.get(number, Leader(node, 0))
            named = produced.LeaderIdAndEpoch(leader_id=BrokerId(leader.node), leader_epoch=i32(leader.epoch))
            leads = leader.node == node
            answers.append(
                produced.PartitionProduceResponse(
                    index=i32(number),
                    error_code=ErrorCode.none if leads else ErrorCode.not_leader_or_follower,
                    base_offset=i64(0),
                    record_errors=(),
                    current_leader=produced.LeaderIdAndEpoch() if leads else named,
                )
            )
        topic = produced.TopicProduceResponse(topic_id=self.topic_id, partition_responses=tuple(answers))
        endpoints = tuple(convert(each, produced.NodeEndpoint) for each in self._endpoints())
        return produced.ProduceResponse(responses=(topic,), node_endpoints=endpoints)

    def _named_leader(self, partition: int) -> PartitionData:
        leader = self.moved[partition]
        return dataclasses.replace(
            self.refused(partition, ErrorCode.not_leader_or_follower),
            current_leader=LeaderIdAndEpoch(leader_id=BrokerId(leader.node), leader_epoch=i32(leader.epoch)),
        )

    def _endpoints(self) -> tuple[NodeEndpoint, ...]:
        return tuple(
            NodeEndpoint(node_id=BrokerId(node), host="127.0.0.1", port=i32(self._ports[node]))
            for node in {leader.node for leader in self.moved.values()}
        )

    def found(self, partition: int, offset: int, max_bytes: int = 1 << 30) -> PartitionData:
        """What a healthy leader answers: whole batches, as many as fit."""
        batches: list[bytes] = []
        for end_offset, batch in self._logs[partition]:
            if end_offset > offset:
                max_bytes -= len(batch)
                if max_bytes < 0:
                    break
                batches.append(batch)
        return PartitionData(
            partition_index=i32(partition),
            error_code=ErrorCode.none,
            high_watermark=i64(self.end_offset(partition)),
            last_stable_offset=i64(self.end_offset(partition)),
            log_start_offset=i64(0),
            aborted_transactions=None,
            records=b"".join(batches),  # type: ignore[arg-type]
        )

    def refused(self, partition: int, code: ErrorCode) -> PartitionData:
        """What a broker answers that has nothing but an error for a partition."""
        return dataclasses.replace(
            self.found(partition, self.end_offset(partition)), error_code=code, high_watermark=i64(-1)
        )

    def response(
        self, *partitions: PartitionData, error: ErrorCode = ErrorCode.none, session_id: int = 0
    ) -> FetchResponse:
        """An answer with these partitions in it."""
        topics: tuple[Any, ...] = ()
        if partitions and self._fetch_version <= 12:
            old = tuple(convert(partition, by_name.PartitionData) for partition in partitions)
            topics = (by_name.FetchableTopicResponse(topic=TopicName(TOPIC), partitions=old),)
        elif partitions:
            topics = (FetchableTopicResponse(topic_id=self.topic_id, partitions=partitions),)
        kind: Any = by_name.FetchResponse if self._fetch_version <= 12 else FetchResponse
        answer: FetchResponse = kind(
            throttle_time=NO_THROTTLE, error_code=error, session_id=i32(session_id), responses=topics
        )
        return answer


@asynccontextmanager
async def scripted_cluster(partitions: int = 1, *, fetch_version: int = 17) -> AsyncIterator[ScriptedCluster]:
    """A cluster of two brokers for the time of the block; broker 1 leads everything at first."""
    async with ScriptedCluster(partitions, fetch_version).serving() as cluster:
        yield cluster
