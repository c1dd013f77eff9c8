"""Values of the column that tracks a database table: numbers here, literals in a statement, texts in a position."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from headwater.lake.errors import LakeUsageError
from headwater.lake.sources.database_address import literal
from headwater.lake.sources.database_columns import DatabaseColumn

INTEGERS: Final = ("int2", "int4", "int8")
TIMES: Final = ("timestamp", "timestamptz")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedValues:
    """Integers as they are; times as microseconds since 1970, which compare and divide as integers do."""

    column: DatabaseColumn
    lag_s: float = 0.0
    zone: str = "UTC"

    @property
    def edge(self) -> str | None:
        """The latest time that is loaded, in a statement and by the database's clock; None for integers."""
        if self.column.type not in TIMES:
            return None
        now = "now()" if self.column.type == "timestamptz" else f"(now() at time zone {literal(self.zone)})"
        return f"({now} - make_interval(secs => {self.lag_s}))"

    def age_s(self, number: int, *, edge: int) -> float | None:
        """How old a time was when the latest one that is loaded was `edge`; integers have no age."""
        return None if self.column.type not in TIMES else self.lag_s + (edge - number) / 1_000_000

    def number(self, value: str) -> str:
        """The expression that makes an integer of a value."""
        return f"({self.column.kind.sent.format(value)})"

    def sql(self, number: int) -> str:
        """A value as a literal."""
        return f"{self.column.type} '{self.spelled(number)}'"

    def spelled(self, number: int) -> str:
        """A value in a position.

        >>> number = DatabaseColumn(name="id", type="int8", modifier=-1, dimensions=0, nullable=False, cache=1)
        >>> TrackedValues(column=number).spelled(4711)
        '4711'
        """
        if self.column.type not in TIMES:
            return str(number)
        text = (_EPOCH + number * _MICROSECOND).replace(tzinfo=None).isoformat(timespec="microseconds")
        return text + ("Z" if self.column.type == "timestamptz" else "")

    def parsed(self, text: str) -> int:
        """The inverse of `spelled`; a person may have written it."""
        try:
            if self.column.type not in TIMES:
                return int(text)
            time = datetime.fromisoformat(text)
        except ValueError:
            raise LakeUsageError(
                f"{text!r} is no {self.column.type}, so nothing lies behind it in {self.column.name}: rewind to "
                f"a position like {self.spelled(1_700_000_000_000_000 if self.column.type in TIMES else 4711)}"
            ) from None
        return (time.replace(tzinfo=time.tzinfo or UTC) - _EPOCH) // _MICROSECOND
