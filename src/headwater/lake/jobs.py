"""Jobs: the loads that a lake runs again and again, as a `lake.toml` names them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headwater.lake.errors import LakeUsageError
from headwater.lake.load.request import LoadRequest
from headwater.lake.values import nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One load that is run again and again.

    >>> Job(source="topic:orders", request=LoadRequest(table="shop.orders")).label
    'shop.orders'
    """

    source: str
    request: LoadRequest
    name: str | None = None
    bootstrap: str | None = None
    source_options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """What people call it: its name, or its table."""
        return self.name or self.request.table


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeFile:
    """A `lake.toml`, checked. None is what it does not say."""

    jobs: tuple[Job, ...]
    warehouse: str | None = None
    catalog: str | None = None
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)


def chosen(jobs: Sequence[Job], only: Sequence[str]) -> tuple[Job, ...]:
    """Those jobs that go by one of these names: of a load, or of a table."""
    for name in only:
        if not any(name in (job.name, job.request.table) for job in jobs):
            names = [*dict.fromkeys(job.label for job in jobs)]
            raise LakeUsageError(f"no load is called {name!r}{nearest(name, names)}; there are {', '.join(names)}")
    return tuple(job for job in jobs if not only or job.name in only or job.request.table in only)
