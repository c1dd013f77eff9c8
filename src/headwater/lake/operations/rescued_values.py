"""Rescued texts into the columns of today's schema: the same rules as in a load, value by value. Pure: no Spark.

A value goes into its column if that holds it exactly and is null so far. All else stays where it is, so a replay may be
done as often as one likes.
"""

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

import pyarrow as pa
import pyarrow.types as pt

from headwater.lake.corrupt_text import AS_BASE64
from headwater.lake.shapes.fitting import ObjectFitter, Rescue
from headwater.lake.shapes.json_text import NotJson, Value, scan_record
from headwater.lake.shapes.paths import split
from headwater.lake.shapes.policies import Policies

Entry = tuple[str, str]
"""Path and raw text."""

_BARE: Final = frozenset("-0123456789tf{[")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What became of the rescued texts of a row. `values` are columns with their new values."""

    values: Mapping[str, object] = field(default_factory=dict)
    rescued: Sequence[Entry] = ()
    corrupt: str | None = None
    restored: int = 0
    """How many rescued texts found their place."""
    record_restored: bool = False
    """Whether a record that could not be read before was read now."""

    @property
    def changed(self) -> bool:
        """Whether the row must be written anew."""
        return self.restored > 0 or self.record_restored


class Replay:
    """Replays rows of a table with these fields; `column` is the path of the only field to replay."""

    def __init__(self, fields: Sequence[pa.Field], policies: Policies, column: str | None = None) -> None:
        self._types = {each.name: each.type for each in fields}
        self._fitter = ObjectFitter(list(fields), "", policies)
        self._column = column

    def row(
        self,
        now: Callable[[str], object],
        rescued: Sequence[Entry],
        corrupt: str | None = None,
        *,
        as_json: bool = True,
    ) -> Replayed:
        """What the row becomes. `now` gives the value that a column has; `as_json` says that texts are JSON.

        Other texts are cells of CSV and values of typed sources: `12` is a number to a number column, a text to a
        string column.
        """
        columns = _Columns(now, self._types)
        left: list[Entry] = []
        restored = 0
        for at, entry in enumerate(rescued):
            others = {path for path, _ in (*left, *rescued[at + 1 :])}
            more = self._place(entry, columns, others, as_json=as_json)
            restored += more is not None
            left += [entry] if more is None else more
        record = None
        if corrupt is not None and as_json and self._column is None:
            record = self._record(corrupt, columns, {path for path, _ in left})
        return Replayed(
            values=columns.changed,
            rescued=[*left, *(record or ())],
            corrupt=corrupt if record is None else None,
            restored=restored,
            record_restored=record is not None,
        )

    def _place(self, entry: Entry, columns: "_Columns", taken: set[str], *, as_json: bool) -> list[Entry] | None:
        """Puts a text into its column; what of it had to be rescued again, None if it stays as it is."""
        path, raw = entry
        keys = split(path)
        if keys is None or not self._is_wanted(keys):
            return None
        for literal in [raw] if as_json else _literals(raw):
            fitted = self._fitted_at(keys, literal)
            if fitted is None:
                continue
            found, more = fitted
            again = {path for path, _ in more}
            if not any(_is_above(path, keys) for path in again) and taken.isdisjoint(again) and columns.take(found):
                return more
        return None

    def _fitted_at(self, keys: Sequence[str], literal: str) -> tuple[dict[str, object], list[Entry]] | None:
        """What a record that has nothing but this value at this place becomes."""
        above = "".join(f"{{{json.dumps(key)}:" for key in keys)
        text = above + literal + "}" * len(keys)
        try:
            _, value = scan_record(text.encode("utf-8"))
        except (NotJson, UnicodeEncodeError):
            return None
        for _ in keys:
            value = cast("list[tuple[str, Value]]", value.held)[0][1]
        # A text that is more than one value would reach into other fields.
        if value.end != len(above) + len(literal.rstrip()) or value.tag == "n":
            return None
        return self._fitted(text.encode("utf-8"))

    def _record(self, corrupt: str, columns: "_Columns", taken: set[str]) -> list[Entry] | None:
        raw = corrupt.encode("utf-8")
        if corrupt.startswith(AS_BASE64):
            try:
                raw = base64.b64decode(corrupt.removeprefix(AS_BASE64), validate=True)
            except ValueError:
                return None
        fitted = self._fitted(raw)
        if fitted is None:
            return None
        found, more = fitted
        return more if taken.isdisjoint(again for again, _ in more) and columns.take(found) else None

    def _fitted(self, raw: bytes) -> tuple[dict[str, object], list[Entry]] | None:
        """The fields of a record and what was rescued of it; None if it is no record."""
        try:
            text, record = scan_record(raw)
        except NotJson:
            return None
        rescue = Rescue(text)
        return cast("dict[str, object]", self._fitter.fit(record, "", rescue)), rescue.entries

    def _is_wanted(self, keys: Sequence[str]) -> bool:
        wanted = None if self._column is None else split(self._column)
        return wanted is None or keys[: len(wanted)] == wanted


class _Columns:
    """The columns of a row while values are put into them: a null takes one, anything else keeps what it has."""

    def __init__(self, now: Callable[[str], object], types: Mapping[str, pa.DataType]) -> None:
        self._now = now
        self._types = types
        self.changed: dict[str, object] = {}

    def take(self, found: Mapping[str, object]) -> bool:
        """Puts the values into their columns, all or none."""
        merged: dict[str, object] = {}
        for name, value in found.items():
            now = self.changed[name] if name in self.changed else self._now(name)
            try:
                merged[name] = _merged(now, value, self._types[name])
            except _Taken:
                return False
        self.changed |= merged
        return True


class _Taken(Exception):  # noqa: N818
    """There is a value already."""


def _merged(now: object, found: object, type_: pa.DataType) -> object:
    if now is None:
        return found
    if pt.is_struct(type_):
        fields = dict(cast("dict[str, object]", now))
        for name, value in cast("dict[str, object]", found).items():
            fields[name] = _merged(fields.get(name), value, type_.field(name).type)
        return fields
    if pt.is_map(type_):
        entries = list(cast("list[tuple[str, object]]", now))
        for key, value in cast("list[tuple[str, object]]", found):
            if any(key == other for other, _ in entries):
                raise _Taken
            entries.append((key, value))
        return entries
    raise _Taken


def _is_above(path: str, keys: Sequence[str]) -> bool:
    """Whether a path leads to the field with these keys or to one that it lies in."""
    above = split(path)
    return above is not None and above == list(keys[: len(above)])


def _literals(raw: str) -> list[str]:
    """What a text that is not JSON may mean: a number, a boolean, an object, an array; else it is a string."""
    return [*([raw] if raw[:1] in _BARE else []), json.dumps(raw)]
