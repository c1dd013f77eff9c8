"""Where a warehouse and its catalog are, as people write it and as machines take it. Needs nothing beyond Python."""

from pathlib import Path
from typing import Final

_DATABASE: Final = "catalog.db"
_SQLITE: Final = "sqlite"


def warehouse_url(warehouse: str) -> str:
    """The URL of a warehouse: a folder of this machine becomes absolute, an object store's stays as it is."""
    if "://" in warehouse or warehouse.startswith("file:"):
        return warehouse.rstrip("/")
    return f"file://{Path(warehouse).expanduser().absolute()}"


def default_database(warehouse: str) -> str:
    """The catalog's database when none is named: a file in the warehouse, which must be a folder then."""
    path = local_path(warehouse_url(warehouse))
    if path is None:
        raise ValueError(f"the catalog of {warehouse} needs a database: name a SQLite file or a postgresql:// URL")
    return f"{path}/{_DATABASE}"


def local_path(location: str) -> str | None:
    """The path of a location on this machine's file system; None for an object store."""
    # Iceberg takes a location as it is: nothing in it is percent-encoded, and `#` and `?` are letters like others.
    if location.startswith("file:"):
        return "/" + location.removeprefix("file:").lstrip("/")
    return location if "://" not in location else None


def is_there(database: str) -> bool:
    """Whether the file of a database is there; nothing is made. A server is asked nothing: who names it means it."""
    scheme, separator, rest = database.partition("://")
    if separator and scheme != _SQLITE:
        return True
    file = rest.partition("?")[0].removeprefix("/") if separator else database
    # SQLite takes databases that are no files, and files in words of its own.
    return file.startswith(("file:", ":memory:")) or not file or Path(file).expanduser().is_file()
