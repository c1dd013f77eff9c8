"""Where a table of a database is, and the secrets that open it: kept apart, so that only the first is ever told."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, unquote

from headwater.lake.errors import LakeUsageError
from headwater.lake.sources.database_parameters import check_parameters

_SHAPE: Final = "jdbc:postgresql://HOST:PORT/DATABASE?user=…&password=…#SCHEMA.TABLE"
_HOST: Final = r"(?:\[[0-9a-fA-F:]+\]|[\w.-]*)(?::\d+)?"
_URL: Final = re.compile(
    r"postgresql://(?:(?P<login>[^/?#@]*)@)?"
    rf"(?P<hosts>{_HOST}(?:,{_HOST})*)/(?P<database>[^/?#@]+)(?:\?(?P<parameters>.*))?"
)
_PORT: Final = "5432"
_SCHEMA: Final = "public"
# Characters of a URL only in quotes: what somebody took for a password must not pass for the name of a table.
_PLAIN_NAME: Final = r'[^".?&@:/%#\s]+'
_NAME: Final = rf'(?:"(?:[^"]|"")+"|{_PLAIN_NAME})'
_TABLE: Final = re.compile(rf"(?:(?P<schema>{_NAME})\.)?(?P<table>{_NAME})")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseTable:
    """A table of a PostgreSQL database. Its `str` names it without user, password and other parameters."""

    hosts: str
    database: str
    schema: str
    table: str
    parameters: Mapping[str, str] = field(default_factory=dict, repr=False)
    """How to connect: user and password, and whatever else stood in the URL (`sslmode`), by the driver's names."""

    def __str__(self) -> str:
        return f"{self.url}#{self.name}"

    @property
    def url(self) -> str:
        """The address of the database, as Java spells it."""
        return f"jdbc:postgresql://{self.hosts}/{self.database}"

    @property
    def name(self) -> str:
        """The table's name for people; odd ones are quoted."""
        names = (self.schema, self.table)
        return ".".join(name if re.fullmatch(_PLAIN_NAME, name) else quoted(name) for name in names)

    @property
    def sql(self) -> str:
        """The table's name in a statement."""
        return f"{quoted(self.schema)}.{quoted(self.table)}"


def parse_database_table(
    text: str, *, user: str | None = None, password: str | None = None, more: Mapping[str, str] | None = None
) -> DatabaseTable:
    """The table that `postgresql://HOST:PORT/DATABASE?user=…&password=…#SCHEMA.TABLE` names.

    User and password may be left to arguments, to PGUSER and PGPASSWORD, or to libpq's own means (`~/.pgpass`). `more`
    are parameters that did not stand in the URL.

    >>> str(parse_database_table("postgresql://DB/shop?user=me&password=secret#orders"))
    'jdbc:postgresql://db:5432/shop#public.orders'
    """
    # The last one: a password may hold the character.
    url, mark, fragment = text.rpartition("#")
    found, table = _URL.fullmatch(url), _TABLE.fullmatch(fragment)
    if not mark or found is None or table is None:
        raise LakeUsageError(f"jdbc:{without_secrets(text)} is no table of a database: write {_SHAPE}")
    parameters = {**dict(parse_qsl(found["parameters"] or "", keep_blank_values=True)), **(more or {})}
    check_parameters(parameters)
    login = [unquote(part) for part in (found["login"] or "").split(":", 1)]
    user = user or parameters.get("user") or login[0] or os.environ.get("PGUSER")
    password = password or parameters.get("password") or "".join(login[1:]) or os.environ.get("PGPASSWORD")
    secrets = {name: value for name, value in (("user", user), ("password", password)) if value}
    return DatabaseTable(
        hosts=_with_port(found["hosts"]),
        database=found["database"],
        schema=_unquoted(table["schema"] or _SCHEMA),
        table=_unquoted(table["table"]),
        parameters={**parameters, **secrets},
    )


def without_secrets(text: str) -> str:
    """The text of a source as it may be shown: without a login, and without all that follows a question mark."""
    return re.sub(r"//.*@", "//", text, flags=re.DOTALL).partition("?")[0]


def quoted(name: str) -> str:
    """An identifier in a statement."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text in a statement."""
    return "'" + text.replace("'", "''") + "'"


def _with_port(hosts: str) -> str:
    """Spelled in full, because it is part of the name under which a table keeps its position."""
    each = [host.lower() for host in (hosts or "localhost").split(",")]
    return ",".join(host if re.search(r":\d+$", host) else f"{host}:{_PORT}" for host in each)


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name
