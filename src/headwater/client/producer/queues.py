"""The batches that wait for the sender, by topic and partition.

Only the accumulator changes them, under its lock. Compiled by Cython (pure Python mode) and correct without it;
`queues.pxd` is its C side.
"""
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

try:
    import cython
except ImportError:
    from headwater.protocol import without_cython as cython

if TYPE_CHECKING or not cython.compiled:
    from headwater.client.producer.batch_building import Batch
else:
    from cython.cimports.headwater.client.producer.batch_building import Batch


class PartitionQueue:
    """The batches of one partition, oldest first. `open` is the last one while it takes records.

    `muted` is the sender's: a partition that it sets so is not ready. Its C attributes are declared in `queues.pxd`.
    """

    def __init__(self, topic: str, partition: int, compression: int, compression_level: int | None) -> None:
        self.topic = topic
        self.partition = partition
        self.compression = compression
        self.compression_level = compression_level
        self.batches: deque[Batch] = deque()
        self.open: Batch | None = None
        self.muted: bool = False
        self.next_order: int = 0

    def close(self) -> None:
        """What is appended from now on goes into another batch."""
        self.open = None


class TopicQueue:
    """The queues of one topic's partitions, by number. Its C attributes are declared in `queues.pxd`."""

    def __init__(self, name: str, compression: int, compression_level: int | None) -> None:
        self.name = name
        self.compression = compression
        self.compression_level = compression_level
        self.partitions: list[PartitionQueue] = []
        self.lock = threading.Lock()

    def partition_queue(self, partition: cython.Py_ssize_t) -> PartitionQueue:
        """The queue of a partition, made when it is first asked for; from any thread."""
        while partition >= len(self.partitions):
            self._add()
        found: PartitionQueue = self.partitions[partition]
        return found

    def _add(self) -> None:
        with self.lock:
            number = len(self.partitions)
            self.partitions.append(PartitionQueue(self.name, number, self.compression, self.compression_level))
