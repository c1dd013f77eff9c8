"""Where a warehouse and its catalog are, as people write it and as machines take it. Needs nothing beyond Python."""

from pathlib import Path
from typing import Final

from headwater.catalog.object_stores import S3Place, StoreAddressError, is_s3

_DATABASE: Final = "catalog.db"
_SQLITE: Final = "sqlite"


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
    return f"file://{Path(warehouse).expanduser().absolute()}"


def default_database(warehouse: str) -> str:
    """The catalog's database when none is named: a file in the warehouse, which must be a folder then."""
    path = local_path(warehouse_url(warehouse))
    if path is None:
        raise ValueError(
            f"the catalog of {warehouse_url(warehouse)} needs a database: name a SQLite file or a postgresql:// URL "
            "with --catalog (--database, where it is served)"
        )
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
