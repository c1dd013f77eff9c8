"""How fields are named in words and in `_rescued`: `a.b`, and `a["b.c"]` where a key has characters of the notation.

Two different places in a record never share a path, so nothing that is rescued hides something else.
"""

import json
import re

METADATA_COLUMNS = (
    "_key",
    "_partition_id",
    "_offset",
    "_timestamp",
    "_topic",
    "_headers",
    "_path",
    "_modified",
    "_row",
    "_rescued",
    "_corrupt_record",
    # What a load asks of a source and does not store.
    "_partition",
    "_tombstone",
    # Iceberg has columns of these names of its own: a table that has them too cannot be merged into.
    "_file",
    "_pos",
    "_deleted",
    "_spec_id",
    "_row_id",
    "_last_updated_sequence_number",
    "_change_type",
    "_change_ordinal",
    "_commit_snapshot_id",
)
"""Names that no user's field can have as a column: one of such a name (in any case) is rescued."""

RESCUED = "_rescued"
CORRUPT_RECORD = "_corrupt_record"
SPILL_SUFFIX = "__string"
"""What the second column of a field has after its name, under the policy `columns`."""

_ODD = re.compile(r"""[.\[\]"#\\\x00-\x1f]""")
_PLAIN = r"""(?P<plain>[^.\[\]"#\\\x00-\x1f]+)"""
_QUOTED = r"""\[(?P<quoted>"(?:[^"\\]|\\.)*")\]"""
_FIRST_STEP = re.compile(f"{_PLAIN}|{_QUOTED}")
_STEP = re.compile(rf"\.{_PLAIN}|{_QUOTED}")


def join(parent: str, name: str) -> str:
    """The path of a field below another (below the record: parent is empty).

    >>> join("a", "b"), join("a", "b.c"), join("", "")
    ('a.b', 'a["b.c"]', '[""]')
    """
    if not name or _ODD.search(name):
        return f"{parent}[{json.dumps(name, ensure_ascii=False)}]"
    return f"{parent}.{name}" if parent else name


def split(path: str) -> list[str] | None:
    """The keys that a path was joined from; None for one that leads to no field (an `earlier` value, `elements`).

    >>> split('a.b["c.d"]'), split('[""]'), split("a#0")
    (['a', 'b', 'c.d'], [''], None)
    """
    keys: list[str] = []
    at = 0
    while at < len(path):
        match = _STEP.match(path, at) if at else _FIRST_STEP.match(path)
        if match is None:
            return None
        keys.append(json.loads(match["quoted"]) if match["plain"] is None else match["plain"])
        at = match.end()
    return keys or None


def earlier(path: str, turn: int) -> str:
    """The path of a value whose key is repeated later in the same object; turn counts from 0."""
    return f"{path}#{turn}"


def elements(path: str) -> str:
    """The path that stands for all elements of a list, in policies and in words about the schema."""
    return f"{path}[]"


def is_metadata(name: str) -> bool:
    """Whether a column of the load itself has this name."""
    return name.lower() in METADATA_COLUMNS
