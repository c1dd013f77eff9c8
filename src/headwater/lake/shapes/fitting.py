"""Values into types: exactly, or not at all.

A fitter takes a value of JSON and gives what `pa.array` makes the same value of, or MISFIT. What does not fit inside of
an object is rescued on its own; an array is taken whole or not at all, since a gap in it would change what it says.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Final, cast

import pyarrow as pa
import pyarrow.types as pt

from headwater.lake.shapes.json_text import Value
from headwater.lake.shapes.paths import earlier, elements, join
from headwater.lake.shapes.policies import Policies
from headwater.lake.shapes.scalars import Kind, decimal_of, double_of, float_of, integer_of, temporal_of, time_of


class _Misfit:
    """The type of MISFIT."""


MISFIT: Final = _Misfit()


class Rescue:
    """What is rescued from one record. Inside of an array nothing may be: `whole` is above 0 there."""

    __slots__ = ("entries", "text", "whole")

    def __init__(self, text: str) -> None:
        self.text = text
        self.entries: list[tuple[str, str]] = []
        self.whole = 0

    def raw(self, value: Value) -> str:
        """The value as it stands in the record."""
        return self.text[value.start : value.end]

    def take(self, path: str, value: Value) -> bool:
        """Keeps a value under its path; false where that is not possible."""
        if value.tag != "n":
            if self.whole:
                return False
            self.entries.append((path, self.raw(value)))
        return True


Fitter = Callable[[Value, str, Rescue], object]
"""Value, its path, and where to put what does not fit below it."""


def fitter_of(type_: pa.DataType, path: str, policies: Policies) -> Fitter:
    """The fitter of a type, for the field at this path of the schema."""
    if pt.is_struct(type_):
        return ObjectFitter(type_.fields, path, policies).fit
    if pt.is_list(type_) or pt.is_large_list(type_):
        return _list_fitter(fitter_of(type_.value_type, elements(path), policies))
    if pt.is_map(type_) and is_text(type_.key_type):
        return _map_fitter(fitter_of(type_.item_type, elements(path), policies))
    if is_text(type_):
        return _any_text if policies.of(path) == "string" else _string
    scalar = scalar_of_number(type_)
    if scalar is not None:
        return _tagged("0", scalar)
    scalar = scalar_of_string(type_)
    if scalar is not None:
        return _tagged('"', scalar)
    return _bool if pt.is_boolean(type_) else _nothing


def is_text(type_: pa.DataType) -> bool:
    """Whether a column of this type holds strings."""
    return bool(pt.is_string(type_) or pt.is_large_string(type_))


def scalar_of_number(type_: pa.DataType) -> Callable[[str], object] | None:
    """How the text of a number becomes a value of a number type; what it gives is None where it does not fit."""
    if pt.is_integer(type_):
        highest = 2 ** (type_.bit_width - (1 if pt.is_signed_integer(type_) else 0)) - 1
        lowest = -highest - 1 if pt.is_signed_integer(type_) else 0

        def integer(text: str) -> int | None:
            value = integer_of(text)
            return value if value is not None and lowest <= value <= highest else None

        return integer
    if pt.is_float64(type_):
        return double_of
    if pt.is_float32(type_):
        return float_of
    if pt.is_decimal(type_):
        return lambda text: decimal_of(text, type_.precision, type_.scale)
    return None


def scalar_of_string(type_: pa.DataType) -> Callable[[str], object] | None:
    """How a string becomes a date, a time or a UUID; what it gives is None where it does not fit."""
    if pt.is_date32(type_):
        return _temporal(Kind.DATE)
    if pt.is_timestamp(type_) and type_.unit == "us":
        return _temporal(Kind.DATETIME if type_.tz is None else Kind.INSTANT)
    if pt.is_time64(type_) and type_.unit == "us":
        return time_of
    return _uuid if type_ == pa.uuid() else None


def _temporal(wanted: Kind) -> Callable[[str], object]:
    def temporal(text: str) -> int | None:
        kind, number = temporal_of(text)
        return number if kind is wanted else None

    return temporal


def _uuid(text: str) -> bytes | None:
    try:
        found = uuid.UUID(text)
    except ValueError:
        return None
    return found.bytes if str(found) == text else None


def _tagged(tag: str, scalar: Callable[[str], object]) -> Fitter:
    def fit(value: Value, path: str, rescue: Rescue) -> object:
        found = scalar(cast(str, value.held)) if value.tag == tag else None
        return MISFIT if found is None else found

    return fit


def _bool(value: Value, path: str, rescue: Rescue) -> object:
    return value.held if value.tag == "b" else MISFIT


def _string(value: Value, path: str, rescue: Rescue) -> object:
    return value.held if value.tag == '"' else MISFIT


def _any_text(value: Value, path: str, rescue: Rescue) -> object:
    return value.held if value.tag == '"' else rescue.raw(value)


def _nothing(value: Value, path: str, rescue: Rescue) -> object:
    return MISFIT


def _list_fitter(fit_item: Fitter) -> Fitter:
    def fit(value: Value, path: str, rescue: Rescue) -> object:
        if value.tag != "[":
            return MISFIT
        rescue.whole += 1
        found: list[object] = []
        for item in cast("list[Value]", value.held):
            fitted = None if item.tag == "n" else fit_item(item, path, rescue)
            if fitted is MISFIT:
                rescue.whole -= 1
                return MISFIT
            found.append(fitted)
        rescue.whole -= 1
        return found

    return fit


def _map_fitter(fit_value: Fitter) -> Fitter:
    """A map is like an object: an entry that does not fit is left out and rescued on its own."""

    def fit(value: Value, path: str, rescue: Rescue) -> object:
        if value.tag != "{":
            return MISFIT
        members = _last_of_each(value, path, rescue)
        if members is None:
            return MISFIT
        found: list[tuple[str, object]] = []
        for key, item in members.items():
            fitted = None if item.tag == "n" else fit_value(item, join(path, key), rescue)
            if fitted is not MISFIT:
                found.append((key, fitted))
            elif not rescue.take(join(path, key), item):
                return MISFIT
        return found

    return fit


def _last_of_each(value: Value, path: str, rescue: Rescue) -> dict[str, Value] | None:
    """The members of an object; of a repeated key the last, and the earlier ones rescued. None: they cannot be."""
    members = cast("list[tuple[str, Value]]", value.held)
    found = dict(members)
    if len(found) < len(members):
        turns: dict[str, int] = {}
        for key, item in members:
            if item is not found[key]:
                turn = turns.get(key, 0)
                turns[key] = turn + 1
                if not rescue.take(earlier(join(path, key), turn), item):
                    return None
    return found


class ObjectFitter:
    """Fits an object into the fields of a struct (or of the table); unknown fields are rescued."""

    def __init__(self, fields: list[pa.Field], path: str, policies: Policies) -> None:
        self._fitters: dict[str, Fitter] = {}
        self._spills: dict[str, str] = {}
        texts = {field.name for field in fields if is_text(field.type)}
        for field in fields:
            if policies.is_spill(path, field.name):
                continue
            self._fitters[field.name] = fitter_of(field.type, join(path, field.name), policies)
            spill = policies.spill_of(path, field.name)
            if spill is not None and spill in texts:
                self._spills[field.name] = spill

    def fit(self, value: Value, path: str, rescue: Rescue) -> object:
        """A dict with the fields that are there."""
        members = _last_of_each(value, path, rescue) if value.tag == "{" else None
        if members is None:
            return MISFIT
        found: dict[str, object] = {}
        for key, item in members.items():
            if item.tag == "n":
                continue
            fitter = self._fitters.get(key)
            fitted = MISFIT if fitter is None else fitter(item, join(path, key), rescue)
            if fitted is not MISFIT:
                found[key] = fitted
            elif fitter is not None and key in self._spills:
                found[self._spills[key]] = _any_text(item, path, rescue)
            elif not rescue.take(join(path, key), item):
                return MISFIT
        return found
