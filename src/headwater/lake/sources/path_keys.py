"""What the folders of a file say about its records: `in/day=2026-01-31/x.json` has the field `day`. Pure.

They are texts, and get their types together with the data; `month=01` is the number 1. A record that has a field of the
same name keeps its own; the path, which every row has in `_path`, still tells the other.
"""

from typing import Final
from urllib.parse import unquote

NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
"""What writers of such folders write for null."""


def path_keys(path: str, base: str) -> dict[str, str | None]:
    """The fields in the folders of a file below a base.

    >>> path_keys("/in/day=2026-01-31/city=K%C3%B6ln/x.json", "/in")
    {'day': '2026-01-31', 'city': 'Köln'}
    """
    if "=" not in path:
        return {}
    folders = path[len(base) :].split("/")[:-1] if path != base else []
    found: dict[str, str | None] = {}
    for folder in folders:
        key, equals, value = folder.partition("=")
        if equals and key:
            found[unquote(key)] = None if value == NO_VALUE else _plain(unquote(value))
    return found


def _plain(value: str) -> str:
    """Digits without the zeros that only make folders sort well."""
    padded = len(value) > 1 and value[0] == "0" and value.isascii() and value.isdigit()
    return (value.lstrip("0") or "0") if padded else value
