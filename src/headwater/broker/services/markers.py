"""The markers that end transactions, written to the partitions they wrote to.

A partition that is gone needs none. One whose disk fails is tried again until it takes it: the transaction stays
decided and undone in its log meanwhile, and a restart takes it up again. Where `flush.messages` asks for it, a marker
is on the device before its transaction is called complete. Those of a transaction with very many partitions are written
in slices; it stays prepared meanwhile, and its producer is told to wait.
"""

import asyncio
import dataclasses
import logging
import struct
from typing import TYPE_CHECKING, Final

from headwater.broker.services.clock import now_ms
from headwater.broker.services.partition import Partition
from headwater.broker.services.turns import Work
from headwater.coordinator.outcome import Markers, Outcome
from headwater.protocol.errors import ApiError, ErrorCode
from headwater.protocol.records import encode_batch
from headwater.types import TopicPartition

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

logger = logging.getLogger(__name__)

_RETRY_S: Final = 0.2
_CONTROL_KEY: Final = struct.Struct(">hh")
_MARKER_VALUE: Final = struct.Struct(">hi")


class MarkerWriter:
    """Writes markers for the transaction coordinator and for WriteTxnMarkers."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    def write(self, markers: Markers) -> None:
        """Writes all markers of a transaction and tells its coordinator; what a disk refuses is tried again."""
        rest = self._broker.dispatcher.turns.begin(self._write_all(markers), is_large=False)
        if rest is not None:
            self._broker.in_background(rest)

    def _write_all(self, markers: Markers) -> Work[None]:
        failed: set[TopicPartition] = set()
        unflushed: list[Partition] = []
        for partition in markers.partitions:
            try:
                to_flush = self.write_one(
                    partition,
                    producer_id=markers.producer_id,
                    producer_epoch=markers.producer_epoch,
                    coordinator_epoch=markers.coordinator_epoch,
                    commit=markers.commit,
                )
                if to_flush is not None:
                    unflushed.append(to_flush)
            except ApiError as error:
                if error.code is ErrorCode.kafka_storage_error:
                    failed.add(partition)
                elif error.code is not ErrorCode.unknown_topic_or_partition:
                    logger.warning("the end of transaction %r in %s: %s", markers.transactional_id, partition, error)
            yield None
        rest = dataclasses.replace(markers, partitions=frozenset(failed))
        if unflushed:
            self._broker.in_background(self._flush(unflushed, rest))
        elif failed:
            self._try_later(rest)
        else:
            try:
                self._complete(markers)
            except ApiError as error:
                logger.info("transaction %s is left to its next coordinator: %s", markers.transactional_id, error)

    async def _flush(self, unflushed: list[Partition], rest: Markers) -> None:
        """Goes on with the rest once the markers so far are on the device."""
        try:
            for partition in unflushed:
                await self._broker.failures.flush(partition)
        except ApiError as error:
            # Its partition is offline: only the next start can tell which markers are there.
            logger.error("transaction %r is left to the next start: %s", rest.transactional_id, error)
            return
        self.write(rest)

    def _complete(self, markers: Markers) -> None:
        running = self._broker.transactions.running(markers.transactional_id)
        completed = running.shard.markers_written(markers, now_ms())
        completed.on_failure = lambda: self._try_later(dataclasses.replace(markers, partitions=frozenset()))
        running.carry_out_all([completed])

    def _try_later(self, markers: Markers) -> Outcome:
        asyncio.get_running_loop().call_later(_RETRY_S, self.write, markers)
        return Outcome()

    def write_one(
        self, target: TopicPartition, *, producer_id: int, producer_epoch: int, coordinator_epoch: int, commit: bool
    ) -> Partition | None:
        """Writes one marker; the partition, when it must be flushed before the marker counts.

        ApiError when the partition is gone or knows better, or its disk fails.
        """
        broker, time_ms = self._broker, now_ms()
        partition = broker.topics.partition(target.topic, target.partition)
        batch = encode_batch(
            [(_CONTROL_KEY.pack(0, int(commit)), _MARKER_VALUE.pack(0, coordinator_epoch), (), time_ms)],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional=True,
            control=True,
        )
        try:
            info = partition.append(batch, now_ms=time_ms)
        except OSError as error:
            raise broker.failures.storage_error(partition.log, "append to", error) from error
        if info.rolled:
            broker.jobs.flush_soon(partition.log)
        broker.purgatory.touched(partition)
        if target.topic == broker.groups.topic:
            running = broker.groups.running_partition(target.partition)
            if running is not None:
                running.shard.replay_end_marker(producer_id, commit)
        return partition if info.flush_needed else None
