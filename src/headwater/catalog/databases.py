"""The databases a catalog can live in: a SQLite file, or PostgreSQL for more than one server."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, event

from headwater.private_files import make_private_dirs, make_private_file

_BUSY_TIMEOUT_MS: Final = 30_000


def database_url(database: str) -> str:
    """The URL of a database that people write as a path or as a URL; ValueError for one that cannot be used."""
    scheme, separator, rest = database.partition("://")
    if scheme in ("postgresql", "postgres", "postgresql+psycopg"):
        if find_spec("psycopg") is None:
            raise ValueError('a catalog on PostgreSQL needs its driver: pip install "headwater[postgres]"')
        return f"postgresql+psycopg://{rest}"
    if scheme == "sqlite":
        return database
    if separator:
        raise ValueError(f"a catalog is kept in a SQLite file or in PostgreSQL, not in {scheme}://…")
    path = Path(database).expanduser().absolute()
    make_private_dirs(path.parent)
    return f"sqlite:///{path}"


def prepare_engine(engine: Engine) -> None:
    """Makes SQLite fit for a server: readers beside the writer, commits that survive a power failure, patience."""
    if engine.dialect.name != "sqlite":
        return

    @event.listens_for(engine, "do_connect")
    def make_file(_dialect: Any, _record: Any, arguments: Any, _parameters: Any) -> None:
        # SQLite gives its other files the mode of this one. URIs say themselves whether a file may be made.
        if arguments and arguments[0] != ":memory:" and not str(arguments[0]).startswith("file:"):
            make_private_file(arguments[0])

    @event.listens_for(engine, "connect")
    def set_up(connection: Any, _record: Any) -> None:
        # Python's own transaction control begins too late for a compare-and-set; `begin` below does it.
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout={_BUSY_TIMEOUT_MS}")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # Who reads first and writes later is refused when another wrote in between: writers take their turn at once.
        writes = connection.get_execution_options().get("headwater_writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
