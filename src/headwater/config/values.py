"""Text to value and back, by the rules of Kafka's own parser."""

from collections.abc import Sequence
from math import isfinite
from typing import Final, TypeAlias

from headwater.config.definitions import INT_MAX, LONG_MAX, SHORT_MAX, ConfigDef, ConfigType, ConfigValue
from headwater.config.errors import ConfigError

PlainValue: TypeAlias = str | int | float | bool | Sequence[str]
"""What a caller, a command line or a file may give as a value."""

_LARGEST: Final = {ConfigType.SHORT: SHORT_MAX, ConfigType.INT: INT_MAX, ConfigType.LONG: LONG_MAX}
_WORDS: Final = {
    ConfigType.BOOLEAN: "true or false",
    ConfigType.SHORT: "a whole number of 16 bits",
    ConfigType.INT: "a whole number of 32 bits",
    ConfigType.LONG: "a whole number of 64 bits",
    ConfigType.DOUBLE: "a number",
}


def as_text(value: PlainValue) -> str:
    """A value as it would stand in a properties file.

    >>> as_text(True), as_text(["a", "b"])
    ('true', 'a,b')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    return ",".join(as_text(item) for item in value)


def parse(definition: ConfigDef, text: str) -> ConfigValue:
    """The value that `text` stands for; `ConfigError` when it is of the wrong type or out of range."""
    text = text.strip()
    try:
        value = _parse_type(definition.type, text)
    except ValueError:
        raise _refusal(definition, text, _WORDS[definition.type]) from None
    if not definition.allowed.check(value):
        raise _refusal(definition, text, definition.allowed.text)
    return value


def format_value(definition: ConfigDef, value: ConfigValue) -> str | None:
    """A value as DescribeConfigs shows it; None for an unset one, and for a secret."""
    if value is None or definition.sensitive:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _java_double(value)
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def _parse_type(config_type: ConfigType, text: str) -> ConfigValue:
    if config_type is ConfigType.BOOLEAN:
        if text.lower() not in ("true", "false"):
            raise ValueError
        return text.lower() == "true"
    if config_type in _LARGEST:
        return _parse_integer(text, _LARGEST[config_type])
    if config_type is ConfigType.DOUBLE:
        number = float(text)
        # Kafka takes NaN, which then fails or passes every comparison by chance; nobody means it.
        if not isfinite(number) or "_" in text:
            raise ValueError
        return number
    if config_type is ConfigType.LIST:
        return tuple(item.strip() for item in text.split(",")) if text else ()
    return text


def _parse_integer(text: str, largest: int) -> int:
    digits = text[1:] if text[:1] in ("+", "-") else text
    # int() alone would also take "1_000" and the digits of other scripts.
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError
    number = int(text)
    if not -largest - 1 <= number <= largest:
        raise ValueError
    return number


def _refusal(definition: ConfigDef, text: str, allowed: str) -> ConfigError:
    shown = "(hidden)" if definition.sensitive else repr(text)
    return ConfigError(f"{definition.name} = {shown} is not allowed: it must be {allowed}.")


def _java_double(value: float) -> str:
    """A double as Java prints it: plain from 0.001 up to ten million, with an exponent outside."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    shift = int(exponent or 0) + len(digits) - len(fraction) - 1
    digits = digits.rstrip("0")
    return f"{'-' if value < 0 else ''}{digits[0]}.{digits[1:] or '0'}E{shift}"
