"""The one way in which a PostgreSQL database is asked: over libpq, from this process, for as long as a context lasts.

Whoever asks can only read, in UTC, and every statement is a transaction of its own, so that nobody is held up by what
was asked. Errors say what the database said, and never a secret.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote_plus

from headwater.lake.errors import LakeError
from headwater.lake.sources.database_address import DatabaseTable
from headwater.lake.sources.database_parameters import driver_parameters, libpq_parameters

if TYPE_CHECKING:
    from psycopg import Connection

FETCH_ROWS: Final = 1_000
"""Rows that the driver holds at once. Without a limit it would hold all."""

_APPLICATION: Final = "headwater lake"
_CONNECT_TIMEOUT_S: Final = 10
_DRIVER: Final = "org.postgresql.Driver"
# A server that is switched off in the middle of a question is noticed after less than a minute, not after two hours.
_KEEPS_ALIVE: Final = {"keepalives_idle": "30", "keepalives_interval": "5", "keepalives_count": "4"}
_SESSION: Final = "set default_transaction_read_only = on; set time zone 'UTC'; set datestyle = 'ISO'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """A database that answers; `connected` opens one."""

    table: DatabaseTable
    connection: "Connection[tuple[Any, ...]]"
    within_s: float | None

    def ask(self, question: str) -> Mapping[str, Any] | None:
        """The only row of the answer, by the names of its columns; None without one.

        It comes as JSON, so that no type of the database is anybody's affair here.
        """
        rows = self.rows(f"select row_to_json(q)::text from ({question}) q")
        return json.loads(rows[0][0]) if rows else None

    def rows(self, statement: str) -> Sequence[tuple[Any, ...]]:
        """All rows of a statement that has few."""
        from psycopg import Error, errors

        try:
            return self.connection.execute(statement.encode()).fetchall()
        except errors.QueryCanceled as error:
            if self.within_s is None:
                raise _could_not_be_asked(self.table, error) from None
            raise LakeError(
                f"{self.table.url} gave no answer within {self.within_s:g} s: it is busy, somebody locks the table, "
                "or there is much to count and no index for it"
            ) from None
        except Error as error:
            raise _could_not_be_asked(self.table, error) from None

    def driver_properties(self) -> dict[str, str]:
        """The options by which Spark reads rows of this very server, as this very user.

        Another server of the same name might be behind this one, and rows that were counted here be missing there.
        Secrets are among the options, never in the URL, which Spark shows in its errors.
        """
        info = self.connection.info
        host = f"[{info.host}]" if ":" in info.host else info.host
        secret = {"password": info.password} if info.password else {}
        return {
            "readOnly": "true",
            "tcpKeepAlive": "true",
            **driver_parameters(self.table.parameters, info.get_parameters()),
            **secret,
            "user": info.user,
            "url": f"jdbc:postgresql://{host}:{info.port}/{self.table.database}",
            "driver": _DRIVER,
            "fetchsize": str(FETCH_ROWS),
            # Instants that are sent as text have their zone in it, and it is always the same.
            "sessionInitStatement": "set time zone 'UTC'",
        }


@contextmanager
def connected(table: DatabaseTable, *, within_s: float | None = None) -> Iterator[Database]:
    """The database of a table. `within_s` bounds how long connecting and each answer may take; else an answer has time.

    >>> with connected(parse_database_table("postgresql://db/shop#orders")) as database:  # doctest: +SKIP
    ...     database.ask("select count(*) as rows from orders")
    {'rows': 3}
    """
    try:
        import psycopg
    except ImportError as error:
        raise LakeError(f'psycopg cannot be used ({error}): pip install "headwater[lake]"') from None
    session = _SESSION if within_s is None else f"{_SESSION}; set statement_timeout = {int(within_s * 1000)}"
    try:
        connection = psycopg.connect(**_how_to_connect(table, within_s), autocommit=True, prepare_threshold=None)
    except psycopg.Error as error:
        raise _could_not_be_asked(table, error) from None
    with closing(connection):
        try:
            connection.execute(session.encode())
        except psycopg.Error as error:
            raise _could_not_be_asked(table, error) from None
        yield Database(table=table, connection=connection, within_s=within_s)


def _how_to_connect(table: DatabaseTable, within_s: float | None) -> dict[str, Any]:
    """Several hosts are tried one after the other, as the driver for Java does it."""
    places = [host.rpartition(":") for host in table.hosts.split(",")]
    return {
        "connect_timeout": _CONNECT_TIMEOUT_S,
        "application_name": _APPLICATION,
        "client_encoding": "UTF8",
        **_KEEPS_ALIVE,
        **libpq_parameters(table.parameters),
        "host": ",".join(host.strip("[]") for host, _, _ in places),
        # The URL names the server, also where PGHOSTADDR names another: the driver would not heed that.
        "hostaddr": "",
        "port": ",".join(port for _, _, port in places),
        "dbname": unquote_plus(table.database),
        **({} if within_s is None else {"connect_timeout": max(1, int(within_s))}),
    }


def _could_not_be_asked(table: DatabaseTable, error: Exception) -> LakeError:
    """In the server's own words if it has some; what libpq says goes on for lines."""
    said = getattr(getattr(error, "diag", None), "message_primary", None)
    words = said or (str(error).strip().splitlines() or ["no reason was given"])[0]
    if getattr(getattr(error, "pgconn", None), "needs_password", False):
        words += ". Say it in the URL, as the option password, in PGPASSWORD or in ~/.pgpass (and the user alike)"
    return LakeError(f"{table.url} could not be asked: {words}")
