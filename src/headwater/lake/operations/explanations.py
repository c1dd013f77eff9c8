"""What an explanation is: a verdict, sentences that give the reasons, and the loads that they speak of. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from headwater.catalog.entries import COMMITTED, FAILED, Load
from headwater.lake.sources.topics import offsets_of

REWIND: Final = "rewind"
"""The mode of what is no load but a step back."""


class Verdict(StrEnum):
    """What became of a file or an offset."""

    LOADED = "loaded"
    NOT_YET = "not yet loaded"
    AGAIN = "will be loaded again"
    SKIPPED = "skipped"
    LOST = "lost"
    ABSENT = "not there"
    UNKNOWN = "not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why something is in a table, or is not."""

    subject: str
    verdict: Verdict
    reasons: tuple[str, ...]
    loads: tuple[Load, ...] = ()
    """The loads that had it to do with it, oldest first."""


def moment(at_ms: int | None) -> str:
    """A time for people.

    >>> moment(1767225600000)
    '2026-01-01 00:00:00 UTC'
    """
    return "-" if at_ms is None else f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def load_words(load: Load) -> str:
    """Which load it was, when, and what became of it."""
    if load.state == COMMITTED:
        return f"load {load.load_id}, committed {moment(load.committed_ms)} in snapshot {load.snapshot_id}"
    if load.state == FAILED:
        return f"load {load.load_id}, which failed {moment(load.finished_ms)}: {load.reason}"
    return f"load {load.load_id}, begun {moment(load.begun_ms)} and not committed (under way, or its job died)"


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetTrail:
    """What the ledger knows of one offset."""

    loaded_by: tuple[Load, ...] = ()
    rewound_by: tuple[Load, ...] = ()
    """Rewinds that went back behind it after it was loaded."""
    jumped_by: Load | None = None
    """The load whose first offset lies behind it although its position did not: the log had lost it, or it lies before
    the place where the first load was told to begin."""
    tried_by: tuple[Load, ...] = ()
    """Loads that had it and were not committed."""


def trail_of(loads: Iterable[Load], topic: str, partition: int, offset: int) -> OffsetTrail:
    """Follows one offset through the loads of its source, which come newest first."""
    loaded: list[Load] = []
    rewound: list[Load] = []
    tried: list[Load] = []
    jumped = None
    for load in reversed(list(loads)):
        before = _next(offsets_of(load.before), topic, partition)
        after = _next(offsets_of(load.after), topic, partition)
        start = _next(load.details.get("from") or {}, topic, partition)
        if load.mode == REWIND:
            if load.state == COMMITTED and loaded and (after is None or after <= offset) and (before or 0) > offset:
                rewound.append(load)
            continue
        if after is None or offset >= after or (before is not None and offset < before):
            continue
        if start is not None and offset < start:
            jumped = load
        elif load.state == COMMITTED:
            loaded.append(load)
        else:
            tried.append(load)
    return OffsetTrail(loaded_by=tuple(loaded), rewound_by=tuple(rewound), jumped_by=jumped, tried_by=tuple(tried))


def _next(offsets: Mapping[str, Mapping[str, int]], topic: str, partition: int) -> int | None:
    return offsets.get(topic, {}).get(str(partition))
