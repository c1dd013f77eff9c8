"""The function that Spark's workers run over rows with something rescued: Arrow in, Arrow out."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headwater.lake.operations.rescued_values import Replay, Replayed
from headwater.lake.shapes.paths import CORRUPT_RECORD, RESCUED
from headwater.lake.shapes.policies import Policies

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructField

AS_JSON: Final = "_headwater_as_json"
"""Whether the texts of a row are JSON."""

ROWS: Final = "_headwater_rows"
COUNTS: Final = (
    "_headwater_values",
    "_headwater_records",
    "_headwater_left_values",
    "_headwater_left_records",
    ROWS,
)
"""What is counted of each row; the last is 1 where the row must be written anew."""


def replayed_columns(
    fields: "Sequence[StructField]", policies: Policies, column: str | None
) -> "Callable[[Column], Column]":
    """A function of a struct of these fields and AS_JSON: the fields as they would be, and the counts."""
    from pyspark.sql.pandas.functions import arrow_udf
    from pyspark.sql.types import IntegerType, StructField, StructType

    def replay(rows: pa.Array) -> pa.Array:
        return replayed_rows(rows, policies, column)

    result = StructType([*fields, *(StructField(name, IntegerType()) for name in COUNTS)])
    # Spark's own hints know only plain types as results.
    udf: Callable[[Column], Column] = arrow_udf(replay, returnType=result)  # type: ignore[call-overload]
    return udf


def replayed_rows(rows: pa.StructArray, policies: Policies, column: str | None = None) -> pa.StructArray:
    """The rows after a replay. Columns that no value was found for pass through untouched."""
    arrays = {each.name: rows.field(place) for place, each in enumerate(rows.type)}
    rescued, corrupt = arrays.pop(RESCUED), arrays.pop(CORRUPT_RECORD)
    as_json = arrays.pop(AS_JSON).to_pylist()
    replay = Replay([pa.field(name, array.type) for name, array in arrays.items()], policies, column)
    found = [
        replay.row(_values_at(arrays, at), texts or (), record, as_json=bool(as_json[at]))
        for at, (texts, record) in enumerate(zip(rescued.to_pylist(), corrupt.to_pylist(), strict=True))
    ]
    columns = {name: _with_new(array, name, found) for name, array in arrays.items()}
    columns[RESCUED] = pa.array([list(each.rescued) or None for each in found], rescued.type)
    columns[CORRUPT_RECORD] = pa.array([each.corrupt for each in found], corrupt.type)
    for name, counts in zip(
        COUNTS, zip(*map(_counts, found), strict=True) if found else [()] * len(COUNTS), strict=True
    ):
        columns[name] = pa.array(counts, pa.int32())
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))


def _values_at(arrays: dict[str, pa.Array], at: int) -> Callable[[str], object]:
    return lambda name: arrays[name][at].as_py()


def _with_new(array: pa.Array, name: str, found: Sequence[Replayed]) -> pa.Array:
    """The column, with the values that were found for it in their rows."""
    new = {at: each.values[name] for at, each in enumerate(found) if name in each.values}
    if not new:
        return array
    places = {at: len(array) + place for place, at in enumerate(new)}
    both = pa.concat_arrays([array, pa.array(list(new.values()), array.type)])
    return both.take(pa.array([places.get(at, at) for at in range(len(array))], pa.int64()))


def _counts(row: Replayed) -> tuple[int, ...]:
    return (row.restored, int(row.record_restored), len(row.rescued), int(row.corrupt is not None), int(row.changed))
