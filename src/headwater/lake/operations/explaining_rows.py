"""Where rows of a table come from: found by a condition, then explained by the file or the offset that they name."""

import json
from typing import TYPE_CHECKING, Any, Final

from headwater.lake.errors import LakeUsageError
from headwater.lake.operations.explaining_files import explain_file
from headwater.lake.operations.explaining_offsets import OffsetOf, explain_offset
from headwater.lake.operations.explanations import Explanation
from headwater.lake.operations.table_rows import matching_rows

if TYPE_CHECKING:
    from headwater.lake.lake import Lake

MOST_ROWS: Final = 5


def explain_rows(
    lake: "Lake", table: str, condition: str, *, bootstrap: str | None = None, limit: int = MOST_ROWS
) -> list[Explanation]:
    """The first rows that meet a condition, `id = 7` say, each explained."""
    rows = matching_rows(lake, table, condition, limit=limit).to_pylist()
    if not rows:
        raise LakeUsageError(f"{table} has no row with {condition}")
    return [_explain_row(lake, table, row, bootstrap) for row in rows]


def _explain_row(lake: "Lake", table: str, row: dict[str, Any], bootstrap: str | None) -> Explanation:
    if row.get("_path") is not None:
        return explain_file(lake, table, row["_path"])
    if row.get("_offset") is None:
        raise LakeUsageError(f"the rows of {table} do not say where they come from: {', '.join(row)} are its columns")
    topics = [
        topic
        for _, source in lake.catalog.sources(table)
        if source.startswith("topic:")
        for topic in source.removeprefix("topic:").split(",")
    ]
    topic = row.get("_topic") or (topics[0] if len(topics) == 1 else None)
    if topic is None:
        where = json.dumps({"partition": row["_partition_id"], "offset": row["_offset"]})
        raise LakeUsageError(f"the row at {where} may be of any of {', '.join(topics)}: ask with --offset")
    return explain_offset(
        lake, table, OffsetOf(topic=topic, partition=row["_partition_id"], offset=row["_offset"]), bootstrap=bootstrap
    )
