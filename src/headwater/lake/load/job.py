"""One load from look to commit: what is new, its shape, the plan, the write, the position with it.

The position in the table's snapshot is the only truth. Whatever goes wrong, the job asks the catalog whether its load
was committed, and if not, begins anew from the position that is there now: another job may have moved it.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headwater.catalog.client import CatalogError
from headwater.catalog.entries import COMMITTED, SchemaChange
from headwater.catalog.positions import canonical
from headwater.lake.datasource.columns import TOMBSTONE
from headwater.lake.errors import LakeBusyError, LakeError
from headwater.lake.load.counting import CountedRows
from headwater.lake.load.layout import LEFTOVERS, table_layout
from headwater.lake.load.request import Counts, LoadReport, LoadRequest
from headwater.lake.load.rewriting import REWRITE, rewrite, rewrites_of
from headwater.lake.load.writing import write
from headwater.lake.progress import Watch, watched
from headwater.lake.shapes import SchemaPlan, plan_schema
from headwater.lake.sources.source import News, Position, Source
from headwater.lake.spark import first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.catalog.client import CatalogClient
    from headwater.catalog.entries import TableState

ATTEMPTS: Final = 10
_SIGNS_OF_A_RACE: Final = (
    "CommitFailedException",
    "Found conflicting",
    "Missing required files",
    "missing data files",
    "begin another",
)
"""What Iceberg says when another commit came between a merge's reading and its writing, and the catalog when a rewrite
of the table ended the load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadJob:
    """A load that is about to run. `spark` is called when there is work for it, not before."""

    catalog: "CatalogClient"
    spark: "Callable[[], SparkSession]"
    source: Source
    request: LoadRequest
    details: Mapping[str, Any] = field(default_factory=dict)
    """What the ledger is to remember beside the load itself: how the source is reached."""
    tell: Callable[[str], None] = lambda words: None
    watch: Watch | None = None

    def plan(self) -> LoadReport:
        """What a run would do; nothing is changed."""
        news = self._look()
        if news is None:
            return self._report(news)
        return self._report(news, plan=self._planned(news, self._state()))

    def run(self) -> LoadReport:
        """Loads what is new, once and wholly."""
        began = time.monotonic()
        attempt = 1
        while (report := self._try(attempt, began)) is None:
            attempt += 1
        return report

    def _try(self, attempt: int, began: float) -> LoadReport | None:
        """One attempt; None when another writer came first and there may be work left."""
        before = self.catalog.position(self.request.table, self.source.id)
        self.tell(f"looking for what is new in {self.source.id}")
        news = self.source.look(self.catalog, self.request.table, before)
        if news is None:
            return self._report(None, attempts=attempt, seconds=time.monotonic() - began)
        state = self._state()
        plan = self._planned(news, state)
        if state is not None and rewrites_of(plan) and not self._rewrite(state, plan):
            self._raise_when_tired(attempt)
            return None
        load_id = self.catalog.begin_load(
            table=self.request.table,
            source=self.source.id,
            mode=self.request.mode,
            before=before,
            after=news.after or None,
            details={"news": news.words, **news.details, **self.details},
        )
        after = news.after or {"load": load_id}
        writing_since = time.monotonic()
        try:
            news.register(self.catalog, load_id)
            self._evolve(plan, load_id, before)
            self.tell(f"loading {news.words} into {self.request.table}")
            writing_since = time.monotonic()
            counts = self._write(news, plan, load_id, before, after)
        except Exception as error:
            if not self._was_committed(load_id, error):
                self._raise_unless_another_was_quicker(error, attempt, news, before, state)
                return None
            counts = Counts(rows=self.catalog.load(load_id).rows or 0)
        seconds = time.monotonic() - began
        finished = self.catalog.finish_load(load_id, **asdict(counts), seconds=seconds)
        if finished.state != COMMITTED:
            raise LakeError(
                f"Spark wrote {news.words} of {self.source.id} into {self.request.table} and did not commit them: the "
                "position has not moved, so they are loaded again next time. Please report this"
            )
        return self._report(
            news,
            plan=plan,
            load_id=load_id,
            counts=counts,
            attempts=attempt,
            seconds=seconds,
            write_seconds=time.monotonic() - writing_since,
        )

    def _look(self) -> News | None:
        position = self.catalog.position(self.request.table, self.source.id)
        return self.source.look(self.catalog, self.request.table, position)

    def _state(self) -> "TableState | None":
        return self.catalog.table_state(self.request.table)

    def _planned(self, news: News, state: "TableState | None") -> SchemaPlan:
        """The first pass, and what comes of it for the table."""
        if self.source.fixed is not None:
            return SchemaPlan(schema=self.source.fixed, changes=())
        self.tell(f"inferring the schema of {news.words}")
        try:
            with ExitStack() as until_known:

                def started_and_watched() -> "SparkSession":
                    until_known.enter_context(watched(self.spark(), self.watch))
                    return self.spark()

                shape = news.shape(started_and_watched)
        except LakeError:
            raise
        except Exception as error:
            raise LakeError(
                f"looking at {news.words} of {self.source.id} failed, and nothing was loaded: {first_line(error)}"
            ) from error
        return plan_schema(shape, self._user_fields(state), self.request.policies)

    def _user_fields(self, state: "TableState | None") -> pa.Schema | None:
        if state is None:
            return None
        ours = {*self.source.origin.names, *LEFTOVERS.names}
        return pa.schema([field for field in state.schema if field.name not in ours])

    def _rewrite(self, state: "TableState", plan: SchemaPlan) -> bool:
        """Makes strings of the columns that cannot hold the news; False when another writer was quicker."""
        # What is wrong with the load itself is told before all data is written anew.
        table_layout(self.source, self.request, plan)
        paths = ", ".join(change.path for change in rewrites_of(plan))
        self.tell(f"rewriting {paths} of {self.request.table} as string")
        return rewrite(self.spark(), self.catalog, state, plan, self.source.id)

    def _evolve(self, plan: SchemaPlan, load_id: str, before: Position | None) -> None:
        layout = table_layout(self.source, self.request, plan)
        self.catalog.evolve(
            self.request.table,
            schema=layout.schema,
            partition_spec=layout.partition_spec,
            sort_order=layout.sort_order,
            properties=layout.properties,
            changes=[
                SchemaChange(kind=each.kind, path=each.path, old_type=each.old_type, new_type=each.new_type)
                for each in plan.changes
                if each.kind != REWRITE
            ],
            source=self.source.id,
            position=before,
            load_id=load_id,
        )

    def _write(self, news: News, plan: SchemaPlan, load_id: str, before: Position | None, after: Position) -> Counts:
        """The second pass."""
        wanted = [*plan.schema, *self.source.origin, *LEFTOVERS]
        if self.request.mode == "upsert" and "_offset" in self.source.origin.names:
            wanted.append(pa.field(TOMBSTONE, pa.bool_()))
        counted = CountedRows(news.read(self.spark(), pa.schema(wanted), self.request.policies))
        properties = {
            "headwater.expect": canonical({self.source.id: before}),
            "headwater.offsets": canonical({self.source.id: after}),
            "headwater.load": load_id,
        }
        with watched(self.spark(), self.watch):
            write(counted.rows, self.request, properties, news.replaced)
        return counted.counts()

    def _was_committed(self, load_id: str, error: Exception) -> bool:
        """Whether the load was committed after all. If it was not, it never will be: the ledger says that it failed."""
        try:
            return self.catalog.fail_load(load_id, first_line(error)).state == COMMITTED
        except CatalogError as unreachable:
            raise LakeError(
                f"loading {self.source.id} into {self.request.table} failed ({first_line(error)}), and the catalog "
                "does not say whether it was committed: run it again once the catalog is back; the position in the "
                f"table decides what is still to be done. {unreachable}"
            ) from error

    def _another_was_quicker(self, error: Exception, before: Position | None, planned_for: "TableState | None") -> bool:
        """Another writer moved the position, changed the table under a merge, or rewrote what the plan is made for."""
        now = self._state()
        if (now.positions.get(self.source.id) if now is not None else None) != before:
            return True
        schemas = {each.schema_id for each in (now, planned_for) if each is not None}
        if isinstance(error, CatalogError) and len(schemas) > 1:
            return True
        return any(sign in str(error) for sign in _SIGNS_OF_A_RACE)

    def _raise_unless_another_was_quicker(
        self, error: Exception, attempt: int, news: News, before: Position | None, planned_for: "TableState | None"
    ) -> None:
        if not self._another_was_quicker(error, before, planned_for):
            raise LakeError(
                f"loading {news.words} of {self.source.id} into {self.request.table} failed and nothing of it was "
                f"written: {first_line(error)}"
            ) from error
        self._raise_when_tired(attempt, error)

    def _raise_when_tired(self, attempt: int, error: Exception | None = None) -> None:
        if attempt == ATTEMPTS:
            raise LakeBusyError(
                f"other writers were quicker {ATTEMPTS} times in a row, and nothing of {self.source.id} into "
                f"{self.request.table} was written: run it again when they are done"
            ) from error

    def _report(self, news: News | None, **more: Any) -> LoadReport:
        words = "nothing new" if news is None else news.words
        return LoadReport(table=self.request.table, source=self.source.id, news=words, **more)
