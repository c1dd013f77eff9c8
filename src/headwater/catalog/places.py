"""Where a warehouse and its catalog are, as people write it and as machines take it. Needs nothing beyond Python."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote

from headwater.catalog.object_stores import S3Place, StoreAddressError, is_s3

_DATABASE: Final = "catalog.db"
_SQLITE: Final = "sqlite"
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_LONGEST_FOLDER: Final = 200
_DIGEST: Final = 16


def warehouse_url(warehouse: str) -> str:
    """The URL of a warehouse: a folder of this machine becomes absolute, an object store's loses its settings.

    >>> warehouse_url("s3://bucket/lake?region=eu-west-1")
    's3://bucket/lake'
    """
    if is_s3(warehouse):
        place = S3Place.parse(warehouse)
        if place.user:
            raise StoreAddressError(
                f"the warehouse {place.url} is named with its keys: leave them to AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, a profile or a role"
            )
        return place.url
    if warehouse.startswith("file:"):
        return warehouse.rstrip("/")
    scheme, separator, _ = warehouse.partition("://")
    if separator:
        raise StoreAddressError(f"a warehouse is a folder or an S3 store (s3://BUCKET/FOLDER), not {scheme}://…")
    path = Path(warehouse).expanduser().absolute()
    # A location with `..` in it means different folders to different engines.
    return f"file://{path.resolve() if '..' in path.parts else path}"


def default_database(warehouse: str) -> str:
    """The catalog's database when none is named: a file in the warehouse, which must be a folder then."""
    path = local_path(warehouse_url(warehouse))
    if path is None:
        raise ValueError(
            f"the catalog of {warehouse_url(warehouse)} needs a database: name a SQLite file or a postgresql:// URL "
            "with --catalog (--database, where it is served)"
        )
    return f"{path}/{_DATABASE}"


def folder_of(namespace: Sequence[str], table: str) -> tuple[str, str]:
    """The folders of a namespace and of a table in it, below a warehouse, for names of any characters.

    Only letters, digits, `_`, `-` and inner dots stand for themselves: whatever else means something to a file system,
    a URL or a glob is percent-encoded, so no name leads out of its folder and no two names share one.

    >>> folder_of(("db", "raw"), "orders"), folder_of(("v1.2",), "../a b")
    (('db.raw', 'orders'), ('v1%2E2', '%2E.%2Fa%20b'))
    """
    # Dots separate the levels of a namespace.
    levels = ".".join(_folder_name(level).replace(".", "%2E") for level in namespace)
    if levels.startswith(_DATABASE):
        # The catalog's own files have this name.
        levels = levels.replace(".", "%2E")
    return _short(levels), _short(_folder_name(table))


def _folder_name(name: str) -> str:
    encoded = quote(name, safe="").replace("~", "%7E")
    return f"%2E{encoded[1:]}" if encoded.startswith(".") else encoded


def _short(folder: str) -> str:
    # File systems take 255 bytes.
    if len(folder) <= _LONGEST_FOLDER:
        return folder
    digest = hashlib.sha256(folder.encode()).hexdigest()[:_DIGEST]
    return f"{folder[: _LONGEST_FOLDER - _DIGEST - 1]}-{digest}"


def local_path(location: str) -> str | None:
    """The path of a location on this machine's file system; None for an object store."""
    # Iceberg takes a location as it is: nothing in it is percent-encoded, and `#` and `?` are letters like others.
    if location.startswith("file:"):
        return "/" + location.removeprefix("file:").lstrip("/")
    # A scheme stands at the beginning: `://` further on is part of a path.
    return None if _SCHEME.match(location) else location


def is_there(database: str) -> bool:
    """Whether the file of a database is there; nothing is made. A server is asked nothing: who names it means it."""
    scheme, separator, rest = database.partition("://")
    if separator and scheme != _SQLITE:
        return True
    file = rest.partition("?")[0].removeprefix("/") if separator else database
    # SQLite takes databases that are no files, and files in words of its own.
    return file.startswith(("file:", ":memory:")) or not file or Path(file).expanduser().is_file()
