"""How the table of a load is laid out: its columns, its partitions, the order and the size of its files."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from headwater.lake.errors import LakeUsageError
from headwater.lake.load.request import LoadRequest
from headwater.lake.shapes import SchemaPlan
from headwater.lake.sources.source import Source

LEFTOVERS: Final = pa.schema([("_rescued", pa.map_(pa.string(), pa.string())), ("_corrupt_record", pa.string())])
"""What was kept aside, so that nothing is lost: fields that did not fit, and records that could not be read."""

_TRANSFORM: Final = re.compile(
    r"(?P<transform>year|month|day|hour|bucket|truncate)\((?:(?P<width>\d+)\s*,\s*)?(?P<column>.+)\)"
)
_TIMES: Final = (pa.types.is_timestamp, pa.types.is_date)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLayout:
    """What the catalog is asked to make of a table. Partitions, order and properties count when it is created."""

    schema: pa.Schema
    partition_spec: Sequence[tuple[str, str]]
    sort_order: Sequence[str]
    properties: Mapping[str, str]


def table_layout(source: Source, request: LoadRequest, plan: SchemaPlan) -> TableLayout:
    """Days of event time, unless the load says otherwise; columns that say where a row comes from at the end."""
    schema = pa.schema([*plan.schema, *source.origin, *LEFTOVERS])
    if request.partition_by is None:
        time = request.event_time or source.event_time
        spec = [("day", time)] if time is not None else []
    else:
        spec = [parse_partition(text) for text in request.partition_by]
    for column in [*(column for _, column in spec), *request.sort_by]:
        if schema.get_field_index(column) < 0:
            raise LakeUsageError(f"{request.table} would have no column {column!r}; it has {', '.join(schema.names)}")
    for transform, column in spec:
        if transform in ("year", "month", "day", "hour") and not any(is_(schema.field(column).type) for is_ in _TIMES):
            raise LakeUsageError(
                f"{column!r} is {schema.field(column).type} and no time, so {request.table} cannot be partitioned by "
                f"its {transform}: name another column with --event-time, or --partition-by none"
            )
    return TableLayout(
        schema=schema, partition_spec=spec, sort_order=list(request.sort_by), properties=_properties(request)
    )


def parse_partition(text: str) -> tuple[str, str]:
    """The transform and the column of `day(time)`, `bucket(16, id)` or plain `country`.

    >>> parse_partition("bucket(16, id)")
    ('bucket[16]', 'id')
    """
    match = _TRANSFORM.fullmatch(text.strip())
    if match is None:
        return "identity", text.strip()
    transform, width = match["transform"], match["width"]
    if (transform in ("bucket", "truncate")) != (width is not None):
        raise LakeUsageError(
            f"{text!r} is no partition: write day(column), bucket(16, column), truncate(4, column) or column"
        )
    return (f"{transform}[{width}]" if width else transform), match["column"].strip()


def _properties(request: LoadRequest) -> dict[str, str]:
    properties = {
        "format-version": "2",
        "write.parquet.compression-codec": "zstd",
        # Rows come in the order of their source, task by task: a shuffle would cost more than it brings. Sorted
        # tables ask for one; small files are what `headwater lake maintain` is for.
        "write.distribution-mode": "range" if request.sort_by else "none",
        "write.merge.mode": "merge-on-read",
        "write.update.mode": "merge-on-read",
        "write.delete.mode": "merge-on-read",
        "write.metadata.delete-after-commit.enabled": "true",
    }
    if request.target_file_bytes is not None:
        properties["write.target-file-size-bytes"] = str(request.target_file_bytes)
    return properties
