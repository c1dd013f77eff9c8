"""The words that the tables are written in: what one config is, and what its values may be.

Holds no table and reads no file. Rows are made by `define`, or by `accept` for names that Kafka has and that
mean nothing here.
"""

from collections.abc import Callable
from enum import Enum, IntEnum
from typing import Final, NamedTuple, TypeAlias

ConfigValue: TypeAlias = bool | int | float | str | tuple[str, ...] | None

SHORT_MAX: Final = 2**15 - 1
INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
DOUBLE_MAX: Final = 1.7976931348623157e308


class ConfigType(IntEnum):
    """Type of a config's values; the numbers are those that DescribeConfigs answers with."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Importance(Enum):
    """How likely a config is to need a thought."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class UpdateMode(Enum):
    """Where a config may be changed while the broker runs."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"
    PER_TOPIC = "per-topic"


class Allowed(NamedTuple):
    """A rule for values: `text` completes the sentence "it must be …", `check` decides."""

    text: str
    check: Callable[[ConfigValue], bool]


class ConfigDef(NamedTuple):
    """One config: its Kafka name and all that is known about it.

    `synonyms` are the broker configs that stand in for this one while it is unset, nearest first. `ignored`
    marks names that are taken so that a Kafka file can be used, and that change nothing here. `internal` ones
    are described only when they are set.
    """

    name: str
    type: ConfigType
    default: ConfigValue
    allowed: Allowed
    doc: str
    importance: Importance
    update: UpdateMode
    synonyms: tuple[str, ...]
    ignored: bool
    internal: bool

    @property
    def read_only(self) -> bool:
        """Whether only a restart can change it."""
        return self.update is UpdateMode.READ_ONLY

    @property
    def sensitive(self) -> bool:
        """Whether its value is never shown to anybody."""
        return self.type is ConfigType.PASSWORD

    @property
    def attribute(self) -> str:
        """Its name as a Python attribute: `num.partitions` is `num_partitions`."""
        return self.name.replace(".", "_")


ANY: Final = Allowed("any value of its type", lambda _: True)


def _number(value: ConfigValue) -> float:
    # Rules run after parsing, so that a value of another type here is our own mistake in a table.
    if isinstance(value, (int, float)):
        return value
    raise TypeError(f"a range was put on a config with the value {value!r}")


def at_least(low: float) -> Allowed:
    """Numbers from `low` up."""
    return Allowed(f"at least {low}", lambda value: _number(value) >= low)


def between(low: float, high: float) -> Allowed:
    """Numbers from `low` to `high`, both included."""
    return Allowed(f"between {low} and {high}", lambda value: low <= _number(value) <= high)


def between_or(low: int, high: int, other: int) -> Allowed:
    """Numbers from `low` to `high`, or exactly `other`."""
    return Allowed(
        f"between {low} and {high}, or {other}",
        lambda value: value == other or low <= _number(value) <= high,
    )


def one_of(*choices: str) -> Allowed:
    """One of some words, spelt exactly so."""
    return Allowed(f"one of {', '.join(choices)}", lambda value: value in choices)


def one_of_any_case(*choices: str) -> Allowed:
    """One of some words, in small or capital letters."""
    folded = frozenset(choice.lower() for choice in choices)
    return Allowed(f"one of {', '.join(choices)} (in any case)", lambda value: str(value).lower() in folded)


def each_of(*choices: str) -> Allowed:
    """A list of some words."""
    return Allowed(
        f"a list of {', '.join(choices)}",
        lambda value: isinstance(value, tuple) and all(item in choices for item in value),
    )


def only(value: ConfigValue, text: str) -> Allowed:
    """A single value; `text` names it and gives the reason."""
    return Allowed(text, lambda given: given == value)


def not_empty() -> Allowed:
    """Any text but the empty one."""
    return Allowed("a text that is not empty", lambda value: value != "")


def _is_replica_list(value: ConfigValue) -> bool:
    if not isinstance(value, tuple) or value in ((), ("*",)):
        return value in ((), ("*",))
    pairs = (item.split(":") for item in value)
    return all(len(pair) == 2 and pair[0].isdecimal() and pair[1].isdecimal() for pair in pairs)


def replica_list() -> Allowed:
    """Replicas as `partition:broker` pairs, or `*` for all of them."""
    return Allowed("* or a list of partition:broker pairs", _is_replica_list)


def define(
    name: str,
    config_type: ConfigType,
    default: ConfigValue,
    allowed: Allowed = ANY,
    *,
    doc: str,
    importance: Importance = Importance.MEDIUM,
    update: UpdateMode = UpdateMode.READ_ONLY,
    synonyms: tuple[str, ...] = (),
    ignored: bool = False,
    internal: bool = False,
) -> ConfigDef:
    """One row of a table."""
    return ConfigDef(
        name=name,
        type=config_type,
        default=default,
        allowed=allowed,
        doc=doc,
        importance=importance,
        update=update,
        synonyms=synonyms,
        ignored=ignored,
        internal=internal,
    )


def accept(
    name: str,
    config_type: ConfigType,
    default: ConfigValue,
    allowed: Allowed = ANY,
    *,
    doc: str,
    importance: Importance = Importance.MEDIUM,
    update: UpdateMode = UpdateMode.READ_ONLY,
    synonyms: tuple[str, ...] = (),
    internal: bool = False,
) -> ConfigDef:
    """One row for a name that is known, checked and accepted, and that has no effect here."""
    return define(
        name,
        config_type,
        default,
        allowed,
        doc=f"{doc} Accepted for Kafka's sake; no effect here.",
        importance=importance,
        update=update,
        synonyms=synonyms,
        ignored=True,
        internal=internal,
    )
