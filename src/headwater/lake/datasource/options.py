"""The options of `spark.read.format("headwater")`: their names, what they may be, and errors that say so. Pure."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, cast, get_args

from headwater.lake.datasource.spots import DataLoss, Earliest, Latest, Spots, parse_spots
from headwater.lake.errors import LakeUsageError

ValueLane: TypeAlias = Literal["raw", "text", "json", "shape"]
"""What becomes of a record's value: bytes, text, typed columns; or of all values together, the shape that they have."""

CorruptPolicy: TypeAlias = Literal["fail", "skip"]

MANIFEST: Final = "manifest"
"""The option that names the files of a read of files."""

_SETTING: Final = "kafka."
_SPLIT_BYTES: Final = 32 << 20
_SUFFIXES: Final = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What to read, and as what."""

    bootstrap: str
    topics: tuple[str, ...]
    starting: Spots
    ending: Spots
    value: ValueLane
    headers: bool
    """Whether records have their headers where the user names no columns: Spark copies every column of every row."""
    split_bytes: int | None
    """How much of a log one task reads; None: what suits the size of the whole."""
    data_loss: DataLoss
    corrupt_records: CorruptPolicy
    """What becomes of what cannot be read: an error, or a row with its bytes in `_corrupt_record`."""
    policies: str
    """What becomes of values that do not fit their columns (`shapes.Policies`, as JSON)."""
    settings: Mapping[str, str]
    """A consumer's settings, by Kafka's names."""


def parse_options(given: Mapping[str, str]) -> ReadOptions:
    """The options as Spark hands them over; `LakeUsageError` for names and values that make no sense.

    >>> parse_options({"bootstrap": "localhost:9092", "topics": "orders, refunds"}).topics
    ('orders', 'refunds')
    """
    settings = {name.removeprefix(_SETTING): text for name, text in given.items() if name.startswith(_SETTING)}
    own = {name: text.strip() for name, text in given.items() if not name.startswith(_SETTING)}
    _check_names(own, settings)
    if "isolation" in own:
        settings["isolation.level"] = _one_of("isolation", own["isolation"], ("read_committed", "read_uncommitted"))
    return ReadOptions(
        bootstrap=_required(own, "bootstrap", "the address of a broker, such as localhost:9092"),
        topics=_topics(_required(own, "topics", "one topic, or several with commas between")),
        starting=parse_spots("starting", own.get("starting", "earliest"), others=Earliest()),
        ending=parse_spots("ending", own.get("ending", "latest"), others=Latest()),
        value=cast(ValueLane, _one_of("value", own.get("value", "raw"), get_args(ValueLane))),
        headers=_one_of("headers", own.get("headers", "false"), ("true", "false")) == "true",
        split_bytes=_bytes("split.bytes", own["split.bytes"]) if "split.bytes" in own else None,
        data_loss=cast(DataLoss, _one_of("data.loss", own.get("data.loss", "fail"), get_args(DataLoss))),
        corrupt_records=cast(
            CorruptPolicy, _one_of("corrupt.records", own.get("corrupt.records", "fail"), get_args(CorruptPolicy))
        ),
        policies=own.get("policies", "{}"),
        settings=settings,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReadOptions:
    """Files to read, and as what: `rows`, or the `shape` that all records have together."""

    manifest: str
    value: Literal["rows", "shape"]
    split_bytes: int
    policies: str


def parse_file_options(given: Mapping[str, str]) -> FileReadOptions:
    """The options of a read that has a `manifest`; `LakeUsageError` for names and values that make no sense."""
    names = ("manifest", "value", "split.bytes", "policies")
    for name in given:
        if name not in names:
            raise LakeUsageError(f"a read of files has no option {name!r}: the options are {', '.join(names)}")
    value = _one_of("value", given.get("value", "rows"), ("rows", "shape"))
    return FileReadOptions(
        manifest=given["manifest"],
        value="shape" if value == "shape" else "rows",
        split_bytes=_bytes("split.bytes", given["split.bytes"]) if "split.bytes" in given else _SPLIT_BYTES,
        policies=given.get("policies", "{}"),
    )


_NAMES: Final = (
    "bootstrap",
    "topics",
    "starting",
    "ending",
    "value",
    "headers",
    "split.bytes",
    "data.loss",
    "corrupt.records",
    "isolation",
    "policies",
)
_INSTEAD: Final = {
    "kafka.bootstrap.servers": "bootstrap",
    "subscribe": "topics",
    "assign": "topics",
    "startingoffsets": "starting",
    "endingoffsets": "ending",
    "startingtimestamp": "starting",
    "endingtimestamp": "ending",
    "failondataloss": "data.loss",
    "mode": "corrupt.records",
    "includeheaders": "headers",
    "minpartitions": "split.bytes",
    "path": "topics",
}
"""What somebody who knows Spark's connector for Kafka would write."""


def _check_names(own: Mapping[str, str], settings: Mapping[str, str]) -> None:
    if "bootstrap.servers" in settings:
        raise LakeUsageError("kafka.bootstrap.servers is the option bootstrap here")
    if "corrupt.records" in settings:
        raise LakeUsageError("kafka.corrupt.records is the option corrupt.records here")
    for name in own:
        if name not in _NAMES:
            close = _INSTEAD.get(name) or next(iter(difflib.get_close_matches(name, _NAMES, 1)), None)
            advice = f"did you mean {close}?" if close else f"the options are {', '.join(_NAMES)} and {_SETTING}*"
            raise LakeUsageError(f"the data source headwater has no option {name!r}: {advice}")


def _required(own: Mapping[str, str], name: str, words: str) -> str:
    if not own.get(name):
        raise LakeUsageError(f"the option {name} is missing: {words}")
    return own[name]


def _topics(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _one_of(name: str, text: str, allowed: tuple[str, ...]) -> str:
    if text.lower() not in allowed:
        raise LakeUsageError(f"{name} = {text!r} is not allowed: use {', '.join(allowed[:-1])} or {allowed[-1]}")
    return text.lower()


def _bytes(name: str, text: str) -> int:
    digits, unit = (text[:-1], _SUFFIXES[text[-1].lower()]) if text[-1:].lower() in _SUFFIXES else (text, 1)
    if not digits.isdigit() or int(digits) == 0:
        raise LakeUsageError(f"{name} = {text!r} is no number of bytes: write it as 33554432 or 32m")
    return int(digits) * unit
