"""Where to begin without a position: `auto.offset.reset`, and what `seek_to_beginning` and `seek_to_end` ask for."""

import re
from typing import Final, NamedTuple

EARLIEST_MS: Final = -2
LATEST_MS: Final = -1

_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,9})?)S)?)?"
)
_BY_DURATION: Final = "by_duration:"


class Reset(NamedTuple):
    """The start of the log, its end, or so many milliseconds before now."""

    name: str
    duration_ms: int | None = None

    def timestamp_ms(self, now_ms: int) -> int:
        """What ListOffsets is asked for."""
        if self.duration_ms is not None:
            return max(now_ms - self.duration_ms, 0)
        return EARLIEST_MS if self == EARLIEST else LATEST_MS


EARLIEST: Final = Reset("earliest")
LATEST: Final = Reset("latest")


def parse_reset(text: str) -> Reset | None:
    """The policy that `auto.offset.reset` names; None for `none`, ValueError for anything else.

    >>> parse_reset("by_duration:P1DT2H").duration_ms
    93600000
    """
    name = text.strip().lower()
    if name == "none":
        return None
    if name in (EARLIEST.name, LATEST.name):
        return Reset(name)
    if not name.startswith(_BY_DURATION):
        raise ValueError(f"{text!r} is no reset policy: use earliest, latest, none or by_duration:<ISO 8601 duration>")
    duration = text.strip()[len(_BY_DURATION) :]
    found = _DURATION.fullmatch(duration.upper())
    if found is None or duration.upper() == "P":
        raise ValueError(f"{duration!r} is no duration: write it as in P7D or PT1H30M")
    parts = {unit: float(number or 0) for unit, number in found.groupdict().items()}
    seconds = ((parts["days"] * 24 + parts["hours"]) * 60 + parts["minutes"]) * 60 + parts["seconds"]
    return Reset(name, round(seconds * 1000))
