"""What a load asks of a source: what is new behind a position, what shape it has, and its rows under a schema."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import pyarrow as pa

from headwater.lake.shapes import Policies, Shape

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headwater.catalog.client import CatalogClient

Position: TypeAlias = Mapping[str, Any]
"""How far a source was read, as JSON; what is in it is the source's own affair."""


class News(Protocol):
    """What is new in a source: a bounded piece of work that can be read as often as one likes."""

    @property
    def after(self) -> Position:
        """The position once all of this is loaded. A source whose position is the load itself says `{}`."""

    @property
    def words(self) -> str:
        """What it is, for people: `12 files, 3.4 MiB`."""

    @property
    def details(self) -> Mapping[str, Any]:
        """What `headwater lake explain` will want to know of it: small, plain JSON, kept in the ledger."""

    @property
    def replaced(self) -> Sequence[str]:
        """Paths of files whose rows of earlier loads go, in the commit in which these come."""

    def shape(self, spark: "Callable[[], SparkSession]") -> Shape:
        """The first pass: what the records look like. Spark is there for those who must read them to know."""

    def read(self, spark: "SparkSession", fields: pa.Schema, policies: Policies) -> "DataFrame":
        """The second pass: the records as rows of exactly these fields, which were planned with these policies."""

    def register(self, catalog: "CatalogClient", load_id: str) -> None:
        """Leaves in the ledger what is too large for a position."""


class Source(Protocol):
    """A topic, a folder, a table of a database."""

    @property
    def id(self) -> str:
        """The name under which a table keeps its position."""

    @property
    def fixed(self) -> pa.Schema | None:
        """The fields of every record where there is nothing to infer."""

    @property
    def origin(self) -> pa.Schema:
        """The columns that tell where a row comes from."""

    @property
    def event_time(self) -> str | None:
        """The column that says when a row happened, unless the load names another."""

    def look(self, catalog: "CatalogClient", table: str, position: Position | None) -> News | None:
        """What is new behind this position; None when nothing is."""
