"""Why an offset of a topic is in a table, or is not: what the ledger says of it, then the brokers, then the table."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from headwater.client.errors import ClientError
from headwater.lake.errors import LakeError, LakeUsageError
from headwater.lake.operations.explanations import Explanation, OffsetTrail, Verdict, load_words, moment, trail_of
from headwater.lake.operations.status import reach_of
from headwater.lake.operations.table_rows import rows_of_offset
from headwater.lake.operations.topic_lag import PartitionLag, topic_lag
from headwater.lake.sources.reach import Reach
from headwater.lake.sources.topics import offsets_of, parse_topics

if TYPE_CHECKING:
    from headwater.catalog.entries import Load
    from headwater.catalog.positions import Position
    from headwater.lake.lake import Lake

_ALL_LOADS: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetOf:
    """One record of a topic."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"offset {self.offset:,} of {self.topic}-{self.partition}"


def parse_offset(text: str) -> OffsetOf:
    """`orders:0:124`: topic, partition, offset.

    >>> str(parse_offset("orders:0:124"))
    'offset 124 of orders-0'
    """
    topic, _, rest = text.partition(":")
    partition, _, offset = rest.partition(":")
    if not topic or not partition.isdecimal() or not offset.isdecimal():
        raise LakeUsageError(f"{text!r} is no offset: write TOPIC:PARTITION:OFFSET, for example orders:0:124")
    return OffsetOf(topic=topic, partition=int(partition), offset=int(offset))


def explain_offset(lake: "Lake", table: str, what: OffsetOf, *, bootstrap: str | None = None) -> Explanation:
    """What became of an offset, and why."""
    source = _source(lake, table, what)
    position = lake.catalog.position(table, source)
    loads = lake.catalog.loads(table, source, limit=_ALL_LOADS)
    trail = trail_of(loads, what.topic, what.partition, what.offset)
    read = offsets_of(position).get(what.topic, {}).get(str(what.partition))
    if read is not None and what.offset < read:
        return _behind(lake, table, what, trail)
    if trail.loaded_by:
        return _turned_back(what, trail, read)
    reach = reach_of(loads).overridden(bootstrap, {})
    answer = _ask(source, position, reach, what)
    told = _not_reached(what, read, answer)
    tried = tuple(f"it was part of {load_words(load)}" for load in trail.tried_by[-1:])
    return replace(told, reasons=(*tried, *told.reasons), loads=trail.tried_by)


def _source(lake: "Lake", table: str, what: OffsetOf) -> str:
    """The source of the table that has the topic."""
    sources = [source for _, source in lake.catalog.sources(table)]
    for source in sources:
        kind, _, topics = source.partition(":")
        if kind == "topic" and what.topic in topics.split(","):
            return source
    known = f"its sources are {', '.join(sources)}" if sources else "nothing was ever loaded into it"
    raise LakeUsageError(f"{table} has no rows of topic {what.topic}, because no load of it was ever begun: {known}")


def _behind(lake: "Lake", table: str, what: OffsetOf, trail: OffsetTrail) -> Explanation:
    """An offset that the position has passed."""
    if trail.loaded_by:
        reasons = [f"it was loaded by {load_words(trail.loaded_by[-1])}"]
        if len(trail.loaded_by) > 1:
            reasons.append(f"it was loaded {len(trail.loaded_by)} times, because its position was set back in between")
        reasons += _in_the_table(lake, table, what, trail.loaded_by[-1])
        return _explained(what, Verdict.LOADED, reasons, *trail.loaded_by)
    jump = trail.jumped_by
    if jump is None:
        return _explained(
            what, Verdict.UNKNOWN, ["the position is behind it, but the ledger does not know the load that passed it"]
        )
    if jump.before is None:
        starting = (jump.details.get("options") or {}).get("starting", "earliest")
        why = f"it lies before the place where {load_words(jump)}, began: starting = {starting}"
        return _explained(what, Verdict.SKIPPED, [why, "`headwater lake rewind` goes back to it"], jump)
    why = f"the log had lost it before {load_words(jump)}, which was told to go on without what is lost"
    return _explained(what, Verdict.LOST, [why], jump)


def _in_the_table(lake: "Lake", table: str, what: OffsetOf, load: "Load") -> list[str]:
    rows = rows_of_offset(lake, table, what.topic, what.partition, what.offset)
    if rows:
        return ["its row is in the table" if rows == 1 else "the table has more than one row of it"]
    if rows is None:
        return []
    why = {
        "upsert": "a newer row with its key has replaced it, or it says that its key is deleted",
        "dedup": "a row with its key was there already",
    }.get(load.mode, "it marks the end of a transaction, was part of an aborted one, or its row was deleted since")
    return [f"the table has no row of it: {why}"]


def _turned_back(what: OffsetOf, trail: OffsetTrail, read: int | None) -> Explanation:
    """An offset that was loaded and is not behind the position any more."""
    reasons = [f"it was loaded by {load_words(trail.loaded_by[-1])}"]
    if trail.rewound_by:
        rewind = trail.rewound_by[-1]
        kept = "its rows were deleted" if rewind.details.get("deleted") else "its row of then stays in the table"
        reasons.append(
            f"the position was set back behind it {moment(rewind.committed_ms)} (rewind {rewind.load_id}); {kept}"
        )
    else:
        reasons.append("the table was set back to an earlier snapshot since, and its position with it")
    reasons.append(
        f"the position is {'not set' if read is None else f'offset {read:,}'}, so the next load brings it again"
    )
    return _explained(what, Verdict.AGAIN, reasons, *trail.loaded_by, *trail.rewound_by)


def _ask(source: str, position: "Position | None", reach: Reach, what: OffsetOf) -> PartitionLag | str:
    """The partition as the brokers see it, or why they could not be asked."""
    topics = parse_topics(source.removeprefix("topic:"), bootstrap=reach.bootstrap, **dict(reach.options))
    try:
        lags = topic_lag(topics, position)
    except (ClientError, LakeError, OSError) as error:
        return f"the brokers at {topics.bootstrap} could not be asked for it: {error}"
    found = (lag for lag in lags if (lag.topic, lag.partition) == (what.topic, what.partition))
    return next(found, f"{what.topic} has no partition {what.partition}")


def _not_reached(what: OffsetOf, read: int | None, answer: PartitionLag | str) -> Explanation:
    """An offset that no load has had."""
    where = "nothing of its partition was loaded yet" if read is None else f"the position is offset {read:,}"
    if isinstance(answer, str):
        return _explained(what, Verdict.NOT_YET, [where, answer])
    if what.offset >= answer.end:
        words = f"the log ends before offset {answer.end:,} for readers of what is committed"
        return _explained(what, Verdict.ABSENT, [words, f"{where}; it will be loaded once it is written and committed"])
    if what.offset < answer.start:
        if read is None:
            words = f"a first load begins at offset {answer.start:,}: what lies before is gone, or not asked for"
            return _explained(what, Verdict.SKIPPED, [where, words])
        return _explained(what, Verdict.LOST, [where, f"the log begins at offset {answer.start:,}: it is gone"])
    return _explained(what, Verdict.NOT_YET, [f"{where} and the log has it: the next load brings it"])


def _explained(what: OffsetOf, verdict: Verdict, reasons: list[str], *loads: "Load") -> Explanation:
    return Explanation(subject=str(what), verdict=verdict, reasons=tuple(reasons), loads=loads)
