"""Puts what the folders of a file say into the columns of its records, where these have nothing of that name. Pure."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.lake.datasource.columns import RESCUED
from headwater.lake.shapes.csv_text import parse_csv

if TYPE_CHECKING:
    from headwater.lake.shapes import Policies


def with_path_columns(batch: pa.RecordBatch, keys: Mapping[str, str | None], policies: "Policies") -> pa.RecordBatch:
    """The batch with the columns of the keys filled; a text that does not fit its column is rescued."""
    texts = pa.table({key: pa.array([text], pa.string()) for key, text in keys.items() if text is not None})
    if not keys or not texts.num_columns:
        return batch
    parsed = parse_csv(texts, batch.schema, policies)
    for name in parsed.schema.names:
        value = parsed.column(name)[0]
        if name != RESCUED and value.is_valid:
            place = batch.schema.get_field_index(name)
            column = batch.column(place)
            if column.null_count:
                filled = pc.coalesce(column, value)
                batch = batch.set_column(place, batch.schema.field(place), filled)
    rescued = parsed.column(RESCUED)[0].as_py()
    return _with_rescued(batch, rescued) if rescued and RESCUED in batch.schema.names else batch


def _with_rescued(batch: pa.RecordBatch, entries: list[tuple[str, str]]) -> pa.RecordBatch:
    place = batch.schema.get_field_index(RESCUED)
    names = batch.schema.names
    empty = {
        path: batch.column(path).is_null().to_pylist() if path in names else [True] * batch.num_rows
        for path, _ in entries
    }
    maps = []
    for row, held in enumerate(batch.column(place).to_pylist()):
        # What the record itself had is there already, and comes first.
        mine = {path for path, _ in held or ()}
        more = [(path, text) for path, text in entries if empty[path][row] and path not in mine]
        maps.append([*(held or ()), *more] or None)
    return batch.set_column(place, batch.schema.field(place), pa.array(maps, batch.schema.field(place).type))
