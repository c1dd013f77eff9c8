"""Where to start and where to end, as the options `starting` and `ending` say it. Pure.

`earliest`, `latest`, `ts:2026-01-31T12:00:00Z`, `ts:1769860800000`, or offsets by topic and partition as JSON:
`{"orders": {"0": 12, "1": "latest"}}`. A partition that the JSON does not name starts at the earliest offset and ends
at the latest, so that partitions which were added later are read too.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias

from headwater.lake.errors import LakeUsageError
from headwater.types import TopicPartition

_BY_TIME: Final = "ts:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Earliest:
    """The first offset that the log still has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latest:
    """Behind the last record that may be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOffset:
    """A certain offset."""

    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AtTime:
    """The first record at or after a time; behind the last record where there is none."""

    timestamp_ms: int


DataLoss: TypeAlias = Literal["fail", "skip"]
"""What to do about offsets that the log does not have (any more): an error, or go on with those that it has."""

Spot: TypeAlias = Earliest | Latest | AtOffset | AtTime


@dataclass(frozen=True, slots=True, kw_only=True)
class Spots:
    """A spot for every partition: its own, or the one that all others have."""

    others: Spot
    named: Mapping[TopicPartition, Spot]

    def of(self, partition: TopicPartition) -> Spot:
        """The spot of one partition."""
        return self.named.get(partition, self.others)


LATEST: Final = Spots(others=Latest(), named={})
"""The end of every partition."""


def parse_spots(option: str, text: str, *, others: Spot) -> Spots:
    """What the option of this name says; `others` is for partitions that it leaves out.

    >>> parse_spots("starting", "earliest", others=Earliest()).of(TopicPartition("orders", 0))
    Earliest()
    """
    text = text.strip()
    if text.startswith("{"):
        return Spots(others=others, named=_parse_json(option, text))
    return Spots(others=_parse_spot(option, text), named={})


def _parse_spot(option: str, text: str) -> Spot:
    word = text.lower()
    if word == "earliest":
        return Earliest()
    if word == "latest":
        return Latest()
    if word.startswith(_BY_TIME):
        return AtTime(timestamp_ms=_parse_time(option, text[len(_BY_TIME) :].strip()))
    raise LakeUsageError(
        f"{option} = {text!r} is no place in a topic: use earliest, latest, ts:<ISO 8601 or milliseconds since 1970>, "
        'or offsets as JSON such as {"orders": {"0": 12}}'
    )


def _parse_time(option: str, text: str) -> int:
    if text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise LakeUsageError(
            f"{option} = ts:{text} is no time: write it as ts:2026-01-31T12:00:00Z or in milliseconds since 1970"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    # Rounded up: the first record at or after a time between two milliseconds is not before the second.
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    whole_ms = -(-(since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds) // 1000)
    if whole_ms < 0:
        raise LakeUsageError(f"{option} = ts:{text} is before 1970, where no record is")
    return whole_ms


def _parse_json(option: str, text: str) -> dict[TopicPartition, Spot]:
    try:
        topics = json.loads(text)
    except ValueError as error:
        raise LakeUsageError(f"{option} = {text} is no JSON: {error}") from None
    named: dict[TopicPartition, Spot] = {}
    for topic, partitions in topics.items():
        if not isinstance(partitions, dict):
            raise LakeUsageError(f'{option}: offsets of topic {topic} are given by partition, as in {{"0": 12}}')
        for number, spot in partitions.items():
            if not str(number).isdigit():
                raise LakeUsageError(f"{option}: {number!r} is no partition of topic {topic}: partitions are numbers")
            named[TopicPartition(topic, int(number))] = _json_spot(option, TopicPartition(topic, int(number)), spot)
    return named


def _json_spot(option: str, partition: TopicPartition, spot: Any) -> Spot:
    if isinstance(spot, str):
        return _parse_spot(option, spot)
    if isinstance(spot, int) and not isinstance(spot, bool) and spot >= 0:
        return AtOffset(offset=spot)
    raise LakeUsageError(
        f"{option}: {json.dumps(spot)} is no offset of partition {partition}: use a number from 0 on, "
        '"earliest" or "latest"'
    )
