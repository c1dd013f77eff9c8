"""What a load is asked to do, and what it says when it is done."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from headwater.lake.shapes import Policies, SchemaPlan

Mode = Literal["append", "upsert", "dedup", "replace"]
MODES: Final = ("append", "upsert", "dedup")
"""What may be asked for. A source that is always loaded whole replaces what there is, where others append."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """How the news of a source go into a table."""

    table: str
    mode: Mode = "append"
    key: Sequence[str] = ()
    newest_by: str | None = None
    window_s: float | None = None
    event_time: str | None = None
    partition_by: Sequence[str] | None = None
    sort_by: Sequence[str] = ()
    target_file_bytes: int | None = None
    policies: Policies = field(default_factory=Policies)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many rows a load read, in how many something was rescued, and how many are corrupt."""

    rows: int = 0
    rescued: int = 0
    corrupt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """What a load did. `load_id` is None when there was nothing new, or only a plan was asked for."""

    table: str
    source: str
    news: str
    plan: SchemaPlan | None = None
    load_id: str | None = None
    counts: Counts = Counts()
    attempts: int = 1
    seconds: float = 0.0
    """From the look to the end, the start of Spark included if it was started for this."""
    write_seconds: float = 0.0
    """The second pass alone: reading, writing and the commit."""
