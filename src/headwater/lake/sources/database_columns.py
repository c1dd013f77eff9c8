"""Columns of a PostgreSQL table: the type of a lake's table that each becomes, and how its values get there unharmed.

The database turns every value into one that nothing on the way can spoil: times travel as microseconds since 1970, for
Java's calendars and time zones would shift some; arrays travel as JSON. What has no place in a lake's table (the
numeric NaN, an infinite date, an array with more dimensions than its column says) is null, and its text goes aside.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headwater.lake.shapes.paths import join
from headwater.lake.sources.database_address import literal, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

UNFIT: Final = "_headwater_unfit"
"""The column of texts of values that have no place in a lake's table, by path; null where there are none."""

LONGEST_DECIMAL: Final = 38
_FREE_SCALE: Final = 18
"""Digits after the point of a numeric that was declared without; one with more is kept as text."""

_DAY: Final = "{0} between date '0001-01-01' and date '9999-12-31'"
_TIME: Final = "{0} between timestamp '0001-01-01' and timestamp '9999-12-31 23:59:59.999999'"
_INSTANT: Final = "{0} between timestamptz '0001-01-01 00:00Z' and timestamptz '9999-12-31 23:59:59.999999Z'"
_MICROSECONDS: Final = "(extract(epoch from {0}) * 1000000)::int8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How values of a type travel. `{0}` in a statement's part stands for the value."""

    arrow: pa.DataType
    sent: str = "{0}"
    fits: str | None = None
    """Which values have a place in a lake's table, if not all have."""
    in_json: str = "{0}"
    """The value as an element of a JSON array, made of what is sent."""


TEXT: Final = Kind(arrow=pa.string(), sent="{0}::text")
_KINDS: Final[Mapping[str, Kind]] = {
    "bool": Kind(arrow=pa.bool_()),
    "int2": Kind(arrow=pa.int32(), sent="{0}::int4"),
    "int4": Kind(arrow=pa.int32()),
    "int8": Kind(arrow=pa.int64()),
    "oid": Kind(arrow=pa.int64(), sent="{0}::int8"),
    "float4": Kind(arrow=pa.float32()),
    "float8": Kind(arrow=pa.float64()),
    "bytea": Kind(arrow=pa.binary(), in_json="encode({0}, 'base64')"),
    "date": Kind(arrow=pa.date32(), sent="({0} - date '1970-01-01')", fits=_DAY),
    "timestamp": Kind(arrow=pa.timestamp("us"), sent=_MICROSECONDS, fits=_TIME),
    "timestamptz": Kind(arrow=pa.timestamp("us", tz="UTC"), sent=_MICROSECONDS, fits=_INSTANT),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseColumn:
    """A column as the database declares it; `type` is empty where it is no built-in one."""

    name: str
    type: str
    modifier: int
    """What `numeric(10, 2)` says in brackets, as the database keeps it; -1 without."""
    dimensions: int
    """0 for a column that is no array; `type` is then that of the elements."""
    nullable: bool
    cache: int | None
    """How many numbers its sequence hands to a session at once; None without a sequence."""

    @property
    def kind(self) -> Kind:
        """How its values travel, or the elements of its arrays."""
        if self.dimensions > 1:
            return TEXT
        return _numeric(self.modifier) if self.type == "numeric" else _KINDS.get(self.type, TEXT)

    @property
    def arrow(self) -> pa.Field:
        """The field of the lake's table."""
        return pa.field(self.name, pa.list_(self.kind.arrow) if self.dimensions == 1 else self.kind.arrow)

    @property
    def sql(self) -> str:
        """The column in a statement."""
        return f"t.{quoted(self.name)}"

    @property
    def sent(self) -> str:
        """The expression whose value is sent."""
        if self.dimensions != 1:
            return _sent(self.kind, self.sql)
        element = self.kind.in_json.format(_sent(self.kind, "e.v"))
        every = f"select json_agg({element} order by e.n) from unnest({self.sql}) with ordinality e(v, n)"
        # No rows make a null of what is an empty array.
        return f"case when cardinality({self.sql}) = 0 then '[]' when {self.fits} then ({every})::text end"

    @property
    def fits(self) -> str | None:
        """The condition under which a value has a place in a lake's table; None if every value has."""
        if self.dimensions != 1:
            return None if self.kind.fits is None else self.kind.fits.format(self.sql)
        # An empty array has no dimensions.
        fits = f"coalesce(array_ndims({self.sql}) = 1, cardinality({self.sql}) = 0)"
        if self.kind.fits is not None:
            misfit = f"select from unnest({self.sql}) e(v) where not ({self.kind.fits.format('e.v')})"
            fits = f"({fits} and not exists ({misfit}))"
        return fits


def schema_of(columns: Sequence[DatabaseColumn]) -> pa.Schema:
    """The fields of a lake's table for these columns."""
    return pa.schema([column.arrow for column in columns])


def select_list(columns: Sequence[DatabaseColumn]) -> str:
    """What a statement selects: the columns by place (`c0`, `c1`), and as JSON the texts of what has no place."""
    guarded = [(column, column.fits) for column in columns if column.fits is not None]
    paths = ", ".join(literal(join("", column.name)) for column, _ in guarded)
    texts = ", ".join(f"case when not ({fits}) then {column.sql}::text end" for column, fits in guarded)
    unfit = "null::text"
    if guarded:
        some = " or ".join(f"not ({fits})" for _, fits in guarded)
        unfit = f"case when {some} then jsonb_strip_nulls(jsonb_object(array[{paths}], array[{texts}]))::text end"
    sent = [f"{column.sent} as c{place}" for place, column in enumerate(columns)]
    return ", ".join([*sent, f"{unfit} as {UNFIT}"])


def received(frame: "DataFrame", columns: Sequence[DatabaseColumn]) -> "DataFrame":
    """What was selected, as columns with their names and types; `UNFIT` is a map behind them."""
    from pyspark.sql import functions as f

    values = [_received(f.col(f"c{place}"), column).alias(column.name) for place, column in enumerate(columns)]
    return frame.select(*values, f.from_json(f.col(UNFIT), "map<string,string>").alias(UNFIT))


def parse_columns(described: Sequence[Mapping[str, Any]]) -> tuple[DatabaseColumn, ...]:
    """The columns that the database described in JSON."""
    return tuple(DatabaseColumn(**column) for column in described)


def _numeric(modifier: int) -> Kind:
    """The decimal that holds every value of a declared numeric, else one with room on both sides of the point."""
    precision, scale = ((modifier - 4) >> 16) & 0xFFFF, (((modifier - 4) & 0x7FF) ^ 0x400) - 0x400
    digits = max(precision, scale) if scale >= 0 else precision - scale
    if modifier >= 0 and digits <= LONGEST_DECIMAL:
        decimal, fits = pa.decimal128(digits, max(scale, 0)), "{0} <> 'NaN'"
    else:
        decimal = pa.decimal128(LONGEST_DECIMAL, _FREE_SCALE)
        # NaN and infinity are greater than any number.
        fits = f"(abs({{0}}) < 1e{LONGEST_DECIMAL - _FREE_SCALE} and {{0}} = round({{0}}, {_FREE_SCALE}))"
    return Kind(arrow=decimal, sent=f"{{0}}::numeric({decimal.precision}, {decimal.scale})", fits=fits)


def _sent(kind: Kind, value: str) -> str:
    if kind.fits is not None:
        value = f"(case when {kind.fits.format(value)} then {value} end)"
    return kind.sent.format(value)


def _received(value: "Column", column: DatabaseColumn) -> "Column":
    from pyspark.sql import functions as f

    arrow = column.kind.arrow
    if column.dimensions != 1:
        return _decoded(value, arrow)
    elements = f.from_json(value, f"array<{_json_type(arrow)}>")
    if pa.types.is_binary(arrow):
        return f.transform(elements, f.unbase64)
    return f.transform(elements, lambda each: _decoded(each, arrow)) if pa.types.is_temporal(arrow) else elements


def _decoded(value: "Column", arrow: pa.DataType) -> "Column":
    from pyspark.sql import functions as f

    if pa.types.is_date(arrow):
        return f.date_from_unix_date(value)
    if pa.types.is_timestamp(arrow):
        instant = f.timestamp_micros(value)
        # The session's zone is UTC.
        return instant if arrow.tz is not None else instant.cast("timestamp_ntz")
    return value


def _json_type(arrow: pa.DataType) -> str:
    """How Spark calls the type of an element of a JSON array."""
    if pa.types.is_decimal(arrow):
        return f"decimal({arrow.precision},{arrow.scale})"
    if pa.types.is_date(arrow):
        return "int"
    if pa.types.is_timestamp(arrow):
        return "bigint"
    if pa.types.is_binary(arrow):
        return "string"
    names = {pa.bool_(): "boolean", pa.int32(): "int", pa.int64(): "bigint", pa.float32(): "float"}
    return names.get(arrow, "double" if arrow == pa.float64() else "string")
