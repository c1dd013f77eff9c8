"""Which column says when a row happened, judged by types first and names second."""

import re
from typing import Final

import pyarrow as pa

_NAMES: Final = (
    r"event_?(time|date|timestamp|ts|at)",
    r"occurred_?(at|on)?|happened_?(at|on)?",
    r"(time_?stamp|time|ts|datetime|date_?time|at)",
    r"created(_?(at|on|time|date))?|inserted_?at|recorded_?at|logged_?at",
    r"(order|pickup|start|begin|transaction|payment|purchase)\w*_?(time|date|datetime|at)",
    r"(date|day)",
)
"""Names that people give such columns, the surest first."""

_CHANGES: Final = re.compile(
    r"(updated?|modified|changed?|last_?(update|modified|change)\w*)(_?(at|on|time|date|ts))?"
    r"|\w+_(updated|modified)_?at",
    re.IGNORECASE,
)


def event_time_of(schema: pa.Schema) -> str | None:
    """The column of a table to take as its event time; None where no column is a time, or none stands out."""
    times: list[str] = [field.name for field in schema if pa.types.is_timestamp(field.type)]
    days: list[str] = [field.name for field in schema if pa.types.is_date(field.type)]
    for names in (times, days):
        for pattern in _NAMES:
            found = [name for name in names if re.fullmatch(pattern, name, re.IGNORECASE)]
            if found:
                return found[0]
    steady = [name for name in times if not says_change(name)]
    return steady[0] if len(steady) == 1 else None


def says_change(name: str) -> bool:
    """Whether a column's name says that it tells when its row was last changed.

    >>> says_change("updated_at"), says_change("created_at"), says_change("last_modified")
    (True, False, True)
    """
    return _CHANGES.fullmatch(name) is not None
