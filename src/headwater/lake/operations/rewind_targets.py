"""Where a rewind goes: `earliest`, offsets as JSON, before a load, or a time; each kind of source has its own way."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from headwater.catalog.entries import COMMITTED, Load
from headwater.catalog.positions import Position, load_of
from headwater.lake.datasource.topic_offsets import resolve_ranges
from headwater.lake.errors import LakeUsageError
from headwater.lake.load.request import MODES
from headwater.lake.operations.status import reach_of
from headwater.lake.sources.topics import TopicSource, offsets_of, parse_topics

if TYPE_CHECKING:
    from headwater.catalog.client import CatalogClient

_ALL_LOADS: Final = 1_000_000
_BEFORE_LOAD: Final = "load:"
_BY_TIME: Final = "ts:"

Offsets = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The position to go to, None for the beginning; what is loaded again from there; how loads write their rows."""

    position: Position | None
    again: str
    mode: str


def find_target(
    catalog: "CatalogClient", table: str, source: str, position: Position, to: str, *, bootstrap: str | None
) -> Target:
    """The place that `to` names; a LakeUsageError when it is none, or lies ahead of the position."""
    loads = catalog.loads(table, source, limit=_ALL_LOADS)
    mode = next((load.mode for load in loads if load.mode in MODES), "append")
    if "topics" in position:
        reach = reach_of(loads).overridden(bootstrap, {})
        topics = parse_topics(source.removeprefix("topic:"), bootstrap=reach.bootstrap, **dict(reach.options))
        return _topic_target(offsets_of(position), loads, to, topics, mode)
    if to.startswith("{"):
        target: Position | None = _json(to)
        if load_of(position) is not None or (target is not None and target.keys() != position.keys()):
            raise LakeUsageError(f"{to} is no position of {source}: name a load (load:ID), a time, or earliest")
    elif to == "earliest":
        target = None
    elif to.startswith(_BEFORE_LOAD):
        target = _load_before(loads, to).before
    else:
        target = _position_at(loads, _time_ms(to))
    return Target(position=target, again=_again(catalog, table, source, position, target, loads), mode=mode)


def _topic_target(read: Offsets, loads: list[Load], to: str, source: TopicSource, mode: str) -> Target:
    if to.startswith("{"):
        target = _named_offsets(read, to)
    elif to.startswith(_BEFORE_LOAD):
        load = _load_before(loads, to)
        target = _copied(load.details.get("from") or {} if load.before is None else offsets_of(load.before))
    else:
        target = _asked_offsets(read, to, source)
    ahead = [
        f"{topic}-{partition} at {offset:,}"
        for topic, partition, offset in _flat(target)
        if to != "earliest" and offset > read.get(topic, {}).get(partition, 0)
    ]
    if ahead:
        raise LakeUsageError(f"{to} is ahead of the position in {', '.join(ahead)}: a rewind only goes back")
    again = [(offset - target.get(topic, {}).get(partition, 0)) for topic, partition, offset in _flat(read)]
    offsets = sum(count for count in again if count > 0)
    words = f"{offsets:,} offsets in {sum(count > 0 for count in again):,} partitions"
    lost = -sum(count for count in again if count < 0)
    if lost:
        words += f", and {lost:,} that the log has lost are passed over"
    # Without ids: who goes back to a place means the topic that is there now.
    return Target(position={"topics": target} if target else None, again=words, mode=mode)


def _asked_offsets(read: Offsets, to: str, source: TopicSource) -> dict[str, dict[str, int]]:
    """Where the log begins, or had come to at a time; only of partitions that were read."""
    starting = to if to == "earliest" else f"{_BY_TIME}{_time_ms(to)}"
    target = _copied(read)
    ranges = resolve_ranges(
        source.bootstrap, sorted(read), starting=starting, settings=source.settings, data_loss="skip"
    )
    for found in ranges:
        partition = str(found.partition)
        if partition in target[found.topic]:
            known = target[found.topic][partition]
            target[found.topic][partition] = found.start if to == "earliest" else min(found.start, known)
    return target


def _named_offsets(read: Offsets, to: str) -> dict[str, dict[str, int]]:
    """The position, with other offsets for the partitions that the JSON names."""
    given = _json(to)
    if len(read) == 1 and all(str(name).isdecimal() for name in given):
        given = {next(iter(read)): given}
    target = _copied(read)
    for topic, partitions in given.items():
        if topic not in target or not isinstance(partitions, dict):
            raise LakeUsageError(
                f'{to} has no offsets of {", ".join(read)}: write {{"{next(iter(read))}": {{"0": 12}}}}'
            )
        for partition, offset in partitions.items():
            if partition not in target[topic] or not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
                known = ", ".join(target[topic])
                raise LakeUsageError(f"{partition!r}: {offset!r} is no offset of {topic}: its partitions are {known}")
            target[topic][partition] = offset
    return target


def _load_before(loads: list[Load], to: str) -> Load:
    wanted = to.removeprefix(_BEFORE_LOAD)
    found = [load for load in loads if load.load_id.startswith(wanted)] if wanted else []
    if len(found) != 1:
        what = "no load" if not found else "more than one load"
        raise LakeUsageError(
            f"there is {what} of this table and source whose id begins with {wanted!r}; "
            "`headwater lake status` shows them"
        )
    if found[0].state != COMMITTED:
        raise LakeUsageError(f"load {found[0].load_id} is {found[0].state}: it never moved the position")
    return found[0]


def _position_at(loads: list[Load], at_ms: int) -> Position | None:
    """What the position was at a time: what the last commit before had left."""
    for load in loads:
        if load.state == COMMITTED and load.committed_ms is not None and load.committed_ms <= at_ms:
            return load.after
    return None


def _again(
    catalog: "CatalogClient",
    table: str,
    source: str,
    position: Position,
    target: Position | None,
    loads: list[Load],
) -> str:
    if load_of(position) is None:
        return "all rows" if target is None else f"what lies behind {json.dumps(target)}"
    kept = _chain(loads, target)
    if load_of(target) is not None and load_of(target) not in _chain(loads, position):
        raise LakeUsageError(f"load {load_of(target)} does not lead to the present position, so it is no way back")
    known = catalog.known_files(table, source)
    files = sum(load_id not in kept for load_id in known.column("load_id").to_pylist())
    return f"{files:,} file{'' if files == 1 else 's'}"


def _chain(loads: list[Load], position: Position | None) -> set[str]:
    """The loads that led to a position: each names the one before it."""
    by_id = {load.load_id: load for load in loads}
    chain: set[str] = set()
    load_id = load_of(position)
    while load_id is not None and load_id in by_id and load_id not in chain:
        chain.add(load_id)
        load_id = load_of(by_id[load_id].before)
    return chain


def _json(text: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise LakeUsageError(f"{text} is no JSON: {error}") from None
    assert isinstance(value, dict)
    return value


def _time_ms(text: str) -> int:
    text = text.removeprefix(_BY_TIME)
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise LakeUsageError(
            f'{text!r} is no place to go back to: write earliest, load:ID, offsets as {{"orders": {{"0": 12}}}}, or '
            "a time such as 2026-01-31T12:00:00Z"
        ) from None
    return int((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _copied(offsets: Offsets) -> dict[str, dict[str, int]]:
    return {topic: dict(partitions) for topic, partitions in offsets.items()}


def _flat(offsets: Offsets) -> list[tuple[str, str, int]]:
    return [(topic, each, offset) for topic, partitions in offsets.items() for each, offset in partitions.items()]
