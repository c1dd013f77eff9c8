"""Batches of a topic that cannot be read, as rows: nothing of a topic gets lost because it cannot be understood. Pure.

A row has the place of the first record that could not be read, and the whole batch in `_corrupt_record`, if that column
is wanted. The records of such a batch that can be read are rows of their own.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from headwater.client.consumer.corrupt_batches import CorruptBatch
from headwater.lake.corrupt_text import batch_text
from headwater.lake.datasource.columns import CORRUPT, TOMBSTONE


class CorruptRows:
    """Collects what a reader skips, and gives it as batches with the columns that are wanted."""

    def __init__(self, wanted: pa.Schema) -> None:
        self._wanted = wanted
        self._skipped: list[CorruptBatch] = []

    def take(self, batch: CorruptBatch) -> None:
        """To be given to a reader as what is told of batches that it skips."""
        if CORRUPT in self._wanted.names:
            self._skipped.append(batch)

    def among(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """These batches, and between them what was skipped meanwhile."""
        for batch in batches:
            yield batch
            yield from self._rows()
        yield from self._rows()

    def _rows(self) -> Iterator[pa.RecordBatch]:
        if self._skipped:
            rows = [self._row(batch) for batch in self._skipped]
            self._skipped.clear()
            yield pa.RecordBatch.from_pylist(rows, schema=self._wanted)

    def _row(self, batch: CorruptBatch) -> dict[str, Any]:
        topic, partition = batch.partition
        row = {
            "_topic": topic,
            "_partition": partition,
            "_offset": max(min(batch.first_offset, batch.last_offset), batch.base_offset, 0),
            CORRUPT: batch_text(batch.raw),
            # It deletes nothing: what it may say about a key is not known.
            TOMBSTONE: False,
        }
        return {name: row.get(name) for name in self._wanted.names}
