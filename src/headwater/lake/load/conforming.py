"""Rows of a typed source (Parquet, a database) made to fit the fields of a table, so that nothing is lost.

A value goes into its field where the field's type holds it exactly. Where it does not, the field is null and the text
of the value is in `_rescued` under the field's path, row by row: one value that does not fit never costs another. Lists
and maps are kept or rescued whole. Columns that no field asks for are rescued too; names are compared with their case.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    NumericType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from headwater.lake.arrow_types import spark_schema
from headwater.lake.shapes.paths import CORRUPT_RECORD, RESCUED, SPILL_SUFFIX, elements, join
from headwater.lake.shapes.policies import Policies

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_TEXTS: Final = (StringType, CharType, VarcharType)
_DIGITS: Final[dict[type[DataType], int]] = {ByteType: 3, ShortType: 5, IntegerType: 10, LongType: 19}
_DIGITS_OF_DOUBLE: Final = 15
_DIGITS_OF_FLOAT: Final = 6
_DATE: Final = r"^\d{4}-\d\d-\d\d"
_TIME: Final = r"[T ]\d\d:\d\d:\d\d(\.\d{1,6})?"
_SPELLINGS: Final[dict[type[DataType], str]] = {
    DateType: _DATE + "$",
    TimestampNTZType: _DATE + _TIME + "$",
    TimestampType: _DATE + _TIME + r"(Z|[+-]\d\d:?\d\d)$",
}
"""What a text must look like to be taken for a time: the same as in JSON."""
_AS_JSON: Final = {
    "ignoreNullFields": "false",
    # Left to itself, Spark cuts times to milliseconds.
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fitted:
    """A value in its new type, and the texts of what did not fit by path; null where it did."""

    value: "Column"
    misfits: "Sequence[tuple[str, Column]]" = ()
    unchanged: bool = False


def conform(
    frame: "DataFrame",
    fields: pa.Schema,
    origin: "Mapping[str, Column | str] | None" = None,
    policies: Policies | None = None,
) -> "DataFrame":
    """The rows of a frame as rows of exactly these fields, which were planned with these policies.

    `origin` has the columns that tell where a row comes from, as expressions over the frame, or as names of columns of
    the frame that are not the user's: `{"_path": …}`. Any other column of such a name is the user's, and is rescued.
    """
    origin = origin or {}
    names = frame.columns
    made = {name: column for name, column in origin.items() if not isinstance(column, str)}
    # From here on columns go by their place: names may hold dots, quotes, or differ by case only.
    placed = frame.select("*", *made.values()).toDF(*(f"c{place}" for place in range(len(names) + len(made))))
    ours = {name: f.col(f"c{len(names) + place}") for place, name in enumerate(made)}
    ours |= {name: f.col(f"c{names.index(column)}") for name, column in origin.items() if isinstance(column, str)}
    target = spark_schema(fields)
    wanted = [field for field in target if field.name not in (*origin, RESCUED, CORRUPT_RECORD)]
    sources_own = {column for column in origin.values() if isinstance(column, str)}
    have = [
        (field.name, field.dataType, f.col(f"c{place}"))
        for place, field in enumerate(frame.schema)
        if field.name not in sources_own
    ]
    fitted, misfits = _fit_fields(have, wanted, "", policies or Policies())
    ours[RESCUED] = _rescued(misfits)
    ours[CORRUPT_RECORD] = f.lit(None).cast("string")
    columns = {name: each.value for name, each in fitted.items()}
    return placed.select(*(_ours_or(field, ours, columns).alias(field.name) for field in target))


def converted(column: "Column", source: DataType, target: DataType) -> "Column":
    """A value in another type that holds all of it: the same with texts in the place of some values."""
    return _fit(column, source, target, "", Policies(default="string")).value


def _ours_or(field: StructField, ours: "Mapping[str, Column]", columns: "Mapping[str, Column]") -> "Column":
    return ours[field.name].cast(field.dataType) if field.name in ours else columns[field.name]


def _rescued(misfits: "Sequence[tuple[str, Column]]") -> "Column":
    """A map of what there is; null when there is nothing."""
    nothing = f.lit(None).cast("map<string,string>")
    if not misfits:
        return nothing
    entries = f.array(*(f.struct(f.lit(path).alias("path"), text.alias("text")) for path, text in misfits))
    kept = f.filter(entries, lambda entry: entry["text"].isNotNull())
    return f.when(reduce(or_, (text.isNotNull() for _, text in misfits)), f.map_from_entries(kept)).otherwise(nothing)


def _fit_fields(
    have: "Sequence[tuple[str, DataType, Column]]", wanted: Sequence[StructField], parent: str, policies: Policies
) -> "tuple[dict[str, _Fitted], list[tuple[str, Column]]]":
    """The wanted fields of a row or a struct, and what of it did not fit anywhere."""
    found = {name: place for place, (name, _, _) in enumerate(have)}
    taken = {found.get(field.name) for field in wanted}
    fitted: dict[str, _Fitted] = {}
    spilled: dict[str, Column] = {}
    misfits: list[tuple[str, Column]] = []
    names = {field.name for field in wanted}
    for field in wanted:
        if field.name not in found:
            fitted[field.name] = _Fitted(value=f.lit(None).cast(field.dataType))
            continue
        name, kind, column = have[found[field.name]]
        fitted[field.name] = fits = _fit(column, kind, field.dataType, join(parent, name), policies)
        spill = field.name + SPILL_SUFFIX
        if spill in names and spill not in found and [path for path, _ in fits.misfits] == [join(parent, name)]:
            spilled[spill] = fits.misfits[0][1]
        else:
            misfits += fits.misfits
    for name, text in spilled.items():
        fitted[name] = _Fitted(value=text)
    misfits += [
        (join(parent, name), _text(column, kind))
        for place, (name, kind, column) in enumerate(have)
        if place not in taken
    ]
    return fitted, misfits


def _fit(column: "Column", source: DataType, target: DataType, path: str, policies: Policies) -> _Fitted:
    if isinstance(source, StructType) and isinstance(target, StructType):
        return _fit_struct(column, source, target, path, policies)
    if isinstance(source, ArrayType) and isinstance(target, ArrayType):
        element = _fitting(source.elementType, target.elementType, elements(path), policies)
        inner = element(column)
        if inner.unchanged:
            return _Fitted(value=column, unchanged=True)
        return _whole(
            column,
            source,
            target,
            path,
            value=f.transform(column, lambda each: element(each).value),
            bad=f.exists(column, lambda each: _any_misfit(element(each))) if inner.misfits else None,
        )
    if isinstance(source, MapType) and isinstance(target, MapType):
        return _fit_map(column, source, target, path, policies)
    return _fit_scalar(column, source, target, path, policies)


def _fit_struct(column: "Column", source: StructType, target: StructType, path: str, policies: Policies) -> _Fitted:
    have = [(field.name, field.dataType, column.getField(field.name)) for field in source]
    fitted, misfits = _fit_fields(have, list(target), path, policies)
    if source.names == target.names and all(each.unchanged for each in fitted.values()):
        return _Fitted(value=column, unchanged=True)
    built = f.struct(*(each.value.alias(name) for name, each in fitted.items()))
    return _Fitted(value=f.when(column.isNotNull(), built), misfits=misfits)


def _fit_map(column: "Column", source: MapType, target: MapType, path: str, policies: Policies) -> _Fitted:
    key = _fitting(source.keyType, target.keyType, path, policies)
    value = _fitting(source.valueType, target.valueType, elements(path), policies)
    key_as_is, value_as_is = key(column), value(column)
    if key_as_is.unchanged and value_as_is.unchanged:
        return _Fitted(value=column, unchanged=True)
    entries = f.map_entries(column)
    rebuilt = f.map_from_entries(
        f.transform(entries, lambda each: f.struct(key(each["key"]).value, value(each["value"]).value))
    )
    bad = None
    if key_as_is.misfits or value_as_is.misfits:
        bad = f.exists(entries, lambda each: _any_misfit(key(each["key"])) | _any_misfit(value(each["value"])))
    return _whole(column, source, target, path, value=rebuilt, bad=bad)


def _fitting(source: DataType, target: DataType, path: str, policies: Policies) -> "Callable[[Column], _Fitted]":
    return lambda column: _fit(column, source, target, path, policies)


def _any_misfit(fitted: _Fitted) -> "Column":
    return reduce(or_, (text.isNotNull() for _, text in fitted.misfits), f.lit(False))


def _whole(
    column: "Column", source: DataType, target: DataType, path: str, *, value: "Column", bad: "Column | None"
) -> _Fitted:
    """A list or a map: kept if all of it fits, else rescued as it was."""
    if bad is None:
        return _Fitted(value=value)
    return _Fitted(
        value=f.when(~bad, value).otherwise(f.lit(None).cast(target)),
        misfits=[(path, f.when(bad, _text(column, source)))],
    )


def _fit_scalar(column: "Column", source: DataType, target: DataType, path: str, policies: Policies) -> _Fitted:
    if isinstance(source, NullType):
        return _Fitted(value=column.cast(target))
    if source == target or (isinstance(source, _TEXTS) and isinstance(target, StringType)):
        return _Fitted(value=column, unchanged=True)
    takes_text = policies.of(path) == "string" or not isinstance(source, (BinaryType, StructType, ArrayType, MapType))
    if isinstance(target, StringType) and takes_text:
        return _Fitted(value=_text(column, source))
    if _always_exact(source, target):
        return _Fitted(value=column.cast(target))
    if not _comparable(source, target):
        return _Fitted(value=f.lit(None).cast(target), misfits=[(path, _text(column, source))])
    value = column.try_cast(target)
    good = _held(column, value, source, target)
    return _Fitted(value=f.when(good, value), misfits=[(path, f.when(~good, _text(column, source)))])


def _always_exact(source: DataType, target: DataType) -> bool:
    """Whether the target holds every value of the source."""
    if isinstance(target, DoubleType) and isinstance(source, FloatType):
        return True
    digits = _DIGITS.get(type(source))
    if digits is not None:
        return (
            _DIGITS.get(type(target), 0) > digits
            or (isinstance(target, DoubleType) and digits <= _DIGITS_OF_DOUBLE)
            or (isinstance(target, FloatType) and digits <= _DIGITS_OF_FLOAT)
            or (isinstance(target, DecimalType) and target.precision - target.scale >= digits)
        )
    if isinstance(source, DecimalType) and isinstance(target, DecimalType):
        return target.scale >= source.scale and target.precision - target.scale >= source.precision - source.scale
    return False


def _comparable(source: DataType, target: DataType) -> bool:
    """Whether some values of the source are values of the target too, without a change of meaning."""
    if isinstance(source, NumericType):
        return isinstance(target, NumericType)
    if isinstance(source, BinaryType):
        return isinstance(target, StringType)
    return isinstance(source, _TEXTS) and isinstance(target, (DateType, TimestampType, TimestampNTZType))


def _held(column: "Column", value: "Column", source: DataType, target: DataType) -> "Column":
    """Whether the cast value is the value; never null where the column is not."""
    if isinstance(source, BinaryType):
        return f.coalesce(f.is_valid_utf8(value), f.lit(False))
    if isinstance(source, _TEXTS):
        return f.coalesce(column.rlike(_SPELLINGS[type(target)]) & value.isNotNull(), f.lit(False))
    back = value.try_cast(source)
    if isinstance(source, (FloatType, DoubleType)):
        # The texts differ where the numbers are equal: a zero with a sign is not one without.
        back, column = back.cast("string"), column.cast("string")
    return f.coalesce(back == column, f.lit(False))


def _text(column: "Column", kind: DataType) -> "Column":
    """A value as a person would write it; bytes that are no UTF-8 as base64."""
    if isinstance(kind, (StructType, ArrayType, MapType)):
        return f.when(column.isNotNull(), f.to_json(column, _AS_JSON))
    if isinstance(kind, BinaryType):
        text = column.cast("string")
        return f.when(f.is_valid_utf8(text), text).otherwise(f.concat(f.lit("base64:"), f.base64(column)))
    if isinstance(kind, (TimestampType, TimestampNTZType)):
        # The session's zone is UTC, and the text says so.
        zone = "Z" if isinstance(kind, TimestampType) else ""
        return f.concat(f.replace(column.cast("string"), f.lit(" "), f.lit("T")), f.lit(zone))
    return column.cast("string")
