"""What numbers and strings mean, exactly: which kind a text is, and the value of a date or a time.

One rule for all: a type holds a text when nothing of its meaning is lost. A double holds `0.1`, because the shortest
text of that double is 0.1 again; it does not hold 2**60+1, nor a number with more digits than it can give back.
"""

import re
import struct
from datetime import date, datetime
from decimal import Decimal
from enum import IntEnum
from typing import Final


class Kind(IntEnum):
    """What a value was seen to be. The order is fixed: it is the order in the JSON of a Shape."""

    NULL = 0
    BOOL = 1
    INT = 2
    """An integer that 32 bits hold."""
    LONG = 3
    BIG = 4
    """An integer beyond 64 bits, of at most 38 digits."""
    HUGE = 5
    """An integer of more than 38 digits."""
    FLOAT = 6
    """A number with fraction or exponent of at most six digits, which even a float of 32 bits gives back."""
    DOUBLE = 7
    PRECISE = 8
    """A number with fraction or exponent and more digits (beyond 17) than a double gives back, or out of its range."""
    STRING = 9
    DATE = 10
    INSTANT = 11
    """A timestamp with a zone."""
    DATETIME = 12
    """A timestamp without a zone."""
    OBJECT = 13
    ARRAY = 14
    EMPTY_OBJECT = 15
    EMPTY_ARRAY = 16


KINDS: Final = len(Kind)
LONGEST_DECIMAL: Final = 38
_UNITS_AT_MOST: Final = 999
_FARTHEST_POWER: Final = 10**8

NUMBER: Final = re.compile(r"(-?)(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")
"""The numbers of JSON; CSV has the same."""

_TEMPORAL = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[T ]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?(Z|[+-][0-9]{2}:?[0-9]{2})?)?"
)
_TIME = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?")
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_DAY_US: Final = 86_400_000_000
_FIRST_US: Final = (date(1, 1, 1).toordinal() - _EPOCH_ORDINAL) * _DAY_US
_END_US: Final = (date(9999, 12, 31).toordinal() + 1 - _EPOCH_ORDINAL) * _DAY_US
_FAR_OFFSET_MINUTES: Final = 18 * 60


def decompose(text: str) -> tuple[str, int]:
    """The digits of a number that count, and the power of ten of the last: `-1.50e3` is `15` and 2; zero has none."""
    match = NUMBER.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a number")
    whole, fraction = match[2], match[3] or ""
    digits = (whole + fraction).lstrip("0")
    kept = digits.rstrip("0")
    return kept, _power(match[4] or "0") - len(fraction) + len(digits) - len(kept) if kept else 0


def _power(text: str) -> int:
    """The exponent of a number; no type of ours reaches to where it is cut."""
    digits = text.lstrip("+-0")
    power = int(digits or "0") if len(digits) <= 8 else _FARTHEST_POWER
    return -power if text[0] == "-" else power


def double_of(text: str) -> float | None:
    """The double of a number, or None when the double would not give the number back."""
    digits, power = decompose(text)
    value = float(text)
    if not digits:
        return value
    magnitude = power + len(digits) - 1
    if len(digits) <= 15 and -290 <= magnitude <= 290:
        return value
    if len(digits) > 800 or not -400 <= magnitude <= 400 or value in (float("inf"), float("-inf")):
        return None
    exact = Decimal(f"{'-' if text[0] == '-' else ''}{digits}e{power}")
    return value if exact in (Decimal(repr(value)), Decimal(value)) else None


def float_of(text: str) -> float | None:
    """As `double_of`, for a float of 32 bits."""
    digits, power = decompose(text)
    if len(digits) <= 6 and -30 <= power + len(digits) - 1 <= 30:
        return float(text)
    value = double_of(text)
    try:
        return value if value is not None and struct.unpack("f", struct.pack("f", value))[0] == value else None
    except OverflowError:
        return None


def integer_of(text: str) -> int | None:
    """The integer that a number is, also when written as `2.0` or `1e3`; None if it is none (or of huge length).

    `-0` is none: only a float keeps the sign.
    """
    digits, power = decompose(text)
    if not digits:
        return 0 if text[0] != "-" else None
    if power < 0 or power + len(digits) > LONGEST_DECIMAL:
        return None
    return int(digits + "0" * power) * (-1 if text[0] == "-" else 1)


def decimal_of(text: str, precision: int, scale: int) -> Decimal | None:
    """The number as a decimal of this precision and scale, or None when it does not fit exactly."""
    digits, power = decompose(text)
    if power < -scale or len(digits) + power + scale > precision or (not digits and text[0] == "-"):
        return None
    return Decimal(f"{'-' if text[0] == '-' else ''}{digits or '0'}e{power}")


def kind_of_number(text: str) -> tuple[Kind, int, int]:
    """Kind, digits before the point and digits after it that a number needs."""
    digits, power = decompose(text)
    before = min(max(len(digits) + power, 1), _UNITS_AT_MOST)
    after = min(max(-power, 0), _UNITS_AT_MOST)
    if text != "-0" and text.lstrip("-").isdigit():
        return _kind_of_integer(text, before), before, 0
    magnitude = len(digits) + power - 1
    if len(digits) <= 6 and -30 <= magnitude <= 30:
        return Kind.FLOAT, before, after
    plain = len(digits) <= 17 and -290 <= magnitude <= 290
    return (Kind.DOUBLE if plain or double_of(text) is not None else Kind.PRECISE), before, after


def _kind_of_integer(text: str, digits: int) -> Kind:
    if digits > LONGEST_DECIMAL:
        return Kind.HUGE
    value = int(text)
    if -(2**31) <= value < 2**31:
        return Kind.INT
    return Kind.LONG if -(2**63) <= value < 2**63 else Kind.BIG


def kind_of_string(text: str) -> Kind:
    """DATE, INSTANT or DATETIME when a string is exactly one of these, else STRING."""
    return temporal_of(text)[0]


def temporal_of(text: str) -> tuple[Kind, int]:
    """Kind of a string, and its value: days since 1970 of a DATE, microseconds of an INSTANT or DATETIME, else 0.

    Taken are `2024-02-29`, `2024-02-29T12:30:00` with T or a space, up to six digits of fraction, and no zone,
    `Z`, `+02:00` or `+0200`. More digits would be lost, so such a string stays a string.
    """
    match = _TEMPORAL.fullmatch(text) if 10 <= len(text) <= 32 else None
    if match is None:
        return Kind.STRING, 0
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    try:
        if hour is None:
            return Kind.DATE, date(int(year), int(month), int(day)).toordinal() - _EPOCH_ORDINAL
        at = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second))  # noqa: DTZ001
    except ValueError:
        return Kind.STRING, 0
    value = (at.toordinal() - _EPOCH_ORDINAL) * _DAY_US
    value += ((at.hour * 60 + at.minute) * 60 + at.second) * 1_000_000 + int((fraction or "").ljust(6, "0"))
    if zone is None:
        return Kind.DATETIME, value
    if zone != "Z":
        offset_minutes = int(zone[1:3]) * 60 + int(zone[-2:])
        if int(zone[-2:]) > 59 or offset_minutes > _FAR_OFFSET_MINUTES:
            return Kind.STRING, 0
        value -= offset_minutes * 60_000_000 * (-1 if zone[0] == "-" else 1)
    return (Kind.INSTANT, value) if _FIRST_US <= value < _END_US else (Kind.STRING, 0)


def time_of(text: str) -> int | None:
    """Microseconds since midnight of `12:30:00.5`, or None."""
    match = _TIME.fullmatch(text)
    if match is None or match[1] > "23" or match[2] > "59" or match[3] > "59":
        return None
    seconds = (int(match[1]) * 60 + int(match[2])) * 60 + int(match[3])
    return seconds * 1_000_000 + int((match[4] or "").ljust(6, "0"))
