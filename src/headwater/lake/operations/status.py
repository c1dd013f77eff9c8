"""How the loads of a lake stand: positions, what is left to load, what the last loads did. Starts no Spark."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, get_args

from headwater.catalog.entries import COMMITTED, Load
from headwater.catalog.positions import Position
from headwater.client.errors import ClientError
from headwater.lake.errors import LakeError, LakeUsageError
from headwater.lake.load.request import Mode
from headwater.lake.operations.topic_lag import PartitionLag, topic_lag
from headwater.lake.sources.files import parse_files
from headwater.lake.sources.jdbc import parse_jdbc
from headwater.lake.sources.reach import Reach
from headwater.lake.sources.topics import parse_topics

if TYPE_CHECKING:
    from headwater.catalog.client import CatalogClient
    from headwater.catalog.entries import TableState

_DATABASE_ANSWERS_WITHIN_S: Final = 10.0
_LOADS_SHOWN: Final = 5
_LOADS_SEARCHED: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """What is left to load. None is what this kind of source cannot tell, or nobody could be asked: see `words`."""

    records: int | None = None
    """Of topics: offsets that no load has read."""
    files: int | None = None
    rows: int | None = None
    """Of a table of a database that is tracked by a number or a time."""
    changed: bool | None = None
    """Whether a table of a database that is loaded whole is another than the last load saw."""
    seconds: float | None = None
    """The age of the first of them, where they have a time."""
    partitions: tuple[PartitionLag, ...] = ()
    words: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStatus:
    """One source of a table."""

    source: str
    position: Position | None
    lag: Lag
    loads: tuple[Load, ...]
    """The last loads, newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    """One table, and how far its sources are loaded. A table that is not there (yet) has no version of its schema."""

    table: str
    schema_version: int | None
    schema_changes: int
    snapshot_id: int | None
    sources: tuple[SourceStatus, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusQuestion:
    """How to ask: what overrides what the ledger remembers of the sources, and how many loads are of interest."""

    bootstrap: str | None = None
    options: Mapping[str, str] | None = None
    loads: int = _LOADS_SHOWN


def lake_status(
    catalog: "CatalogClient", table: str | None = None, question: StatusQuestion | None = None
) -> list[TableStatus]:
    """The status of a table, or of all that are there or were tried to be loaded."""
    sources: dict[str, list[str]] = {}
    for name, source in catalog.sources(table):
        sources.setdefault(name, []).append(source)
    if table is not None:
        sources.setdefault(table, [])
    found = [_table_status(catalog, name, known, question or StatusQuestion()) for name, known in sources.items()]
    if table is not None and found[0].snapshot_id is None and not found[0].sources:
        raise LakeUsageError(f"there is no table {table} in this lake, and nothing was ever loaded into it")
    return [status for status in found if table is not None or not _is_gone(status)]


def _is_gone(status: TableStatus) -> bool:
    """Whether it is a table that was loaded into and dropped."""
    newest = [source.loads[0] for source in status.sources if source.loads]
    return status.schema_version is None and all(load.state == COMMITTED for load in newest)


def _table_status(catalog: "CatalogClient", table: str, known: list[str], question: StatusQuestion) -> TableStatus:
    state = catalog.table_state(table)
    positions = state.positions if state is not None else {}
    sources = sorted({*known, *positions})
    return TableStatus(
        table=table,
        schema_version=None if state is None else state.schema_id,
        schema_changes=len(catalog.schema_history(table)),
        snapshot_id=None if state is None else state.snapshot_id,
        sources=tuple(_source_status(catalog, table, state, source, question) for source in sources),
    )


def _source_status(
    catalog: "CatalogClient", table: str, state: "TableState | None", source: str, question: StatusQuestion
) -> SourceStatus:
    position = state.positions.get(source) if state is not None else None
    loads = catalog.loads(table, source, limit=max(question.loads, _LOADS_SEARCHED))
    reach = reach_of(loads).overridden(question.bootstrap, question.options or {})
    return SourceStatus(
        source=source,
        position=position,
        lag=_lag(catalog, table, source, position, reach),
        loads=tuple(loads[: question.loads]),
    )


def reach_of(loads: list[Load]) -> Reach:
    """How the newest load reached its source. Rewinds and the like reach none."""
    return Reach.of(next((load for load in loads if load.mode in get_args(Mode)), None))


def _lag(catalog: "CatalogClient", table: str, source: str, position: Position | None, reach: Reach) -> Lag:
    kind, _, rest = source.partition(":")
    try:
        if kind == "topic":
            return _lag_of_topics(rest, position, reach)
        if kind == "files":
            return _lag_of_files(catalog, table, source, position, reach)
        if kind == "jdbc":
            return _lag_of_database(rest, position, reach)
    except (ClientError, LakeError, OSError) as error:
        return Lag(words=f"not known: {error}")
    return Lag(words="not known: no such source can be asked")


def _lag_of_topics(topics: str, position: Position | None, reach: Reach) -> Lag:
    partitions = topic_lag(parse_topics(topics, bootstrap=reach.bootstrap, **dict(reach.options)), position)
    unread_ms = [each.first_unread_ms for each in partitions if each.first_unread_ms is not None]
    records = sum(each.records for each in partitions)
    oldest_s = max(0.0, time.time() - min(unread_ms) / 1000) if unread_ms else None
    return Lag(
        records=records,
        seconds=oldest_s if records else 0.0,
        partitions=partitions,
        words=_trouble(partitions),
    )


def _trouble(partitions: tuple[PartitionLag, ...]) -> str | None:
    lost = [f"{each.lost:,} offsets of {each.topic}-{each.partition}" for each in partitions if each.lost]
    if lost:
        return f"the log has lost {', '.join(lost)} before they were loaded: load on with data_loss=skip"
    anew = sorted({each.topic for each in partitions if each.made_anew})
    if anew:
        return f"{', '.join(anew)} was deleted and made anew since the last load: rewind to earliest, with --delete"
    beyond = [f"{each.topic}-{each.partition}" for each in partitions if each.beyond]
    if beyond:
        return f"the position is behind the end of {', '.join(beyond)}: the topic was cut or made anew; rewind it"
    return None


def _lag_of_files(catalog: "CatalogClient", table: str, source: str, position: Position | None, reach: Reach) -> Lag:
    news = parse_files(source.removeprefix("files:"), **dict(reach.options)).look(catalog, table, position)
    if news is None:
        return Lag(files=0)
    return Lag(files=len(news.files), words=news.words)


def _lag_of_database(address: str, position: Position | None, reach: Reach) -> Lag:
    options: Mapping[str, Any] = reach.options
    source = parse_jdbc(address, **options)
    found = source.peek(position, within_s=_DATABASE_ANSWERS_WITHIN_S)
    if source.track == "whole":
        return Lag(changed=found is not None)
    if found is None:
        return Lag(rows=0, seconds=0.0 if source.track == "timestamp" else None)
    return Lag(rows=found.rows, seconds=found.age_s, words=found.left_out or None)
