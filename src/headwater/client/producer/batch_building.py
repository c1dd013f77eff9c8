"""A batch of records for one partition, from its first record until it is settled.

Records are encoded as they arrive. Sealing writes the header over them; a batch that has to go out again under another
producer id or sequence gets a new header, and its records stay as they are. Compiled by Cython (pure Python mode) and
correct without it; `batch_building.pxd` is its C side.
"""
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from crc32c import crc32c

from headwater.client.producer.handles import Delivery
from headwater.protocol import compression as codecs
from headwater.protocol.batches import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_FLAG,
    parse_header,
)
from headwater.protocol.record_decoding import Record, decode_records
from headwater.protocol.record_writing import encoded_headers

try:
    import cython
except ImportError:
    from headwater.protocol import without_cython as cython

if TYPE_CHECKING or not cython.compiled:
    from headwater.protocol.record_writing import RecordWriter
else:
    from cython.cimports.headwater.protocol.record_writing import RecordWriter

if TYPE_CHECKING:
    from headwater.client.producer.queues import PartitionQueue

_HEADER = struct.Struct(">qiibIhiqqqhii")
_CRC = struct.Struct(">I")
_CRC_AT = 17
_COVERED_BY_CRC = 21
_SEQUENCES = 1 << 31


class Batch:
    """Records of one partition that travel together.

    `capacity_bytes` is the memory it is charged for, `order` grows with each batch of the partition: the
    order of batches, whatever happens to their sequence numbers. Its C attributes are declared in `batch_building.pxd`.
    """

    def __init__(self, queue: PartitionQueue, capacity_bytes: int, created_ms: int) -> None:
        self.queue = queue
        self.topic: str = queue.topic
        self.partition: int = queue.partition
        self.writer = RecordWriter(capacity_bytes)
        self.delivery = Delivery(queue.topic, queue.partition)
        self.capacity_bytes: int = capacity_bytes
        self.order: int = 0
        self.created_ms: int = created_ms
        self.drained_ms: int = -1
        self.retry_at_ms: int = -1
        self.attempts: int = 0
        self.producer_id: int = NO_PRODUCER_ID
        self.producer_epoch: int = NO_PRODUCER_EPOCH
        self.base_sequence: int = NO_SEQUENCE
        self.transactional: bool = False
        # The batch as it goes over the wire, once it was sealed.
        self.sealed: memoryview | None = None

    @property
    def record_count(self) -> int:
        """How many records are in it."""
        return self.writer.count

    @property
    def size_bytes(self) -> int:
        """The bytes of the batch: as sealed, or uncompressed before that."""
        return self.writer.at if self.sealed is None else len(self.sealed)

    def seal(
        self,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
    ) -> memoryview:
        """The batch as the broker takes it. The records are compressed once; sealed anew, only the header changes.

        The bytes are the batch's own: seal it again only after the request that carried them was answered or given up.
        """
        queue = self.queue
        if self.sealed is None:
            self.sealed = self._packed(queue.compression, queue.compression_level)
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.transactional = transactional
        batch = self.sealed
        writer = self.writer
        _HEADER.pack_into(
            batch,
            0,
            0,
            len(batch) - LOG_OVERHEAD,
            -1,
            2,
            0,
            queue.compression | (TRANSACTIONAL_FLAG if transactional else 0),
            writer.count - 1,
            writer.base_timestamp_ms,
            writer.max_timestamp_ms,
            producer_id,
            producer_epoch,
            base_sequence,
            writer.count,
        )
        _CRC.pack_into(batch, _CRC_AT, crc32c(batch[_COVERED_BY_CRC:]))
        return batch

    def halves(self) -> list[Batch]:
        """Two batches with the records of this one, about equal in bytes; empty if it has one record only.

        They go on under this one's sequence numbers, and its handles with them.
        """
        if self.writer.count < 2:
            return []
        data = self.seal(self.producer_id, self.producer_epoch, self.base_sequence, self.transactional)
        records = decode_records(data, parse_header(data, 0, len(data)))
        sizes = [len(record.key or b"") + len(record.value or b"") for record in records]
        first, half, taken = 1, sum(sizes) // 2, sizes[0]
        while first < len(records) - 1 and taken + sizes[first] <= half:
            taken += sizes[first]
            first += 1
        parts = [self._part(0, records[:first]), self._part(first, records[first:])]
        self.delivery.split([(0, parts[0].delivery), (first, parts[1].delivery)])
        return parts

    def release(self) -> None:
        """Lets go of the buffers, once the batch is settled or split."""
        self.writer.release()
        self.sealed = None

    def _packed(self, compression: int, level: int | None) -> memoryview:
        """Room for the header and the records behind it, compressed; what was not compressed is let go."""
        writer = self.writer
        records = memoryview(writer.buffer)[: writer.at]
        if compression == codecs.NONE:
            return records
        packed = codecs.compress(compression, records[HEADER_SIZE:], level)
        batch = bytearray(HEADER_SIZE + len(packed))
        batch[HEADER_SIZE:] = packed
        writer.release()
        return memoryview(batch)

    def _part(self, first: int, records: list[Record]) -> Batch:
        part = Batch(self.queue, HEADER_SIZE, self.created_ms)
        part.order = self.order + first
        for record in records:
            headers = encoded_headers(record.headers) if record.headers else None
            part.writer.add(record.key, record.value, headers, record.timestamp_ms)
        part.writer.resize(part.writer.at)
        part.capacity_bytes = part.writer.at
        part.attempts = self.attempts
        if self.base_sequence != NO_SEQUENCE:
            part.producer_id = self.producer_id
            part.producer_epoch = self.producer_epoch
            part.base_sequence = (self.base_sequence + first) % _SEQUENCES
            part.transactional = self.transactional
        return part
