"""The database of a catalog: its transactions, its namespaces, and the requests that it has answered."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Final

from pyiceberg.catalog import PropertiesUpdateSummary
from pyiceberg.catalog.sql import IcebergNamespaceProperties, IcebergTables, SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
)
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from sqlalchemy import Connection, Select, delete, func, insert, select, union
from sqlalchemy.exc import IntegrityError

from headwater.catalog import ledger
from headwater.catalog.databases import prepare_engine
from headwater.catalog.names import BadNameError, Name, checked_namespace, levels_of, text_of

KEYS_KEPT_MS: Final = 24 * 3600 * 1000
"""How long a request's idempotency key is remembered: much longer than the lifetime that clients are told."""

_KEYS_AT_ONCE: Final = 500
"""Databases take some ten thousand parameters in a statement, and a request may name more keys."""
_MARK: Final = "exists"
"""pyiceberg keeps a namespace as rows of properties, so one without any needs a row of its own."""


class UnprocessableError(ValueError):
    """A request that contradicts itself."""


class NamespaceCatalog(SqlCatalog):
    """pyiceberg's SQL catalog with transactions that others can join."""

    def _init_catalog(self) -> None:
        prepare_engine(self.engine)
        # SQLite has one writer at a time and lets the others poll; a lock wakes them in turn.
        self._one_writer: Any = threading.Lock() if self.engine.dialect.name == "sqlite" else nullcontext()
        super()._init_catalog()
        ledger.METADATA.create_all(self.engine)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection to ask the ledger."""
        with self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that is committed when the block ends, and holds SQLite's write lock from its beginning."""
        with self._one_writer, self.engine.connect() as plain:
            connection = plain.execution_options(headwater_writes=True)
            with connection.begin():
                yield connection

    def is_answered(self, key: str | None) -> bool:
        """Whether the request with an idempotency key was carried out."""
        if key is None:
            return False
        with self.reading() as connection:
            return ledger.is_answered(connection, key)

    def mark_answered(self, connection: Connection, key: str | None, request: str) -> None:
        """Remembers a request in the transaction that carries it out."""
        if key is not None:
            ledger.mark_answered(connection, key, request, now_ms=now_ms(), kept_ms=KEYS_KEPT_MS)

    def make_namespace(self, name: Name, properties: dict[str, str], *, key: str | None = None) -> None:
        """Creates a namespace."""
        text = text_of(checked_namespace(name))
        if self.is_answered(key):
            return
        if self.namespace_exists(name):
            raise NamespaceAlreadyExistsError(f"Namespace already exists: {text}")
        try:
            with self.writing() as connection:
                connection.execute(insert(IcebergNamespaceProperties), self._rows(text, {**properties, _MARK: "true"}))
                self.mark_answered(connection, key, f"create namespace {text}")
        except IntegrityError:
            raise NamespaceAlreadyExistsError(f"Namespace already exists: {text}") from None

    # pyiceberg joins the levels of a name with dots and splits them again, which makes two levels of `v1.2`: what it
    # does with names is done here in their own form.

    def namespace_exists(self, identifier: str | Identifier) -> bool:
        """Whether there is a namespace of that name, or one below it."""
        name = _levels(identifier)
        with self.reading() as connection:
            return self._is_there(connection, name)

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        """The namespaces one level below another, or at the top."""
        above = _levels(namespace)
        if above:
            self.refuse_absent(above)
        with self.reading() as connection:
            found = {_stored(text) for text in connection.execute(union(*self._at_or_below(above))).scalars()}
        return sorted({name[: len(above) + 1] for name in found if len(name) > len(above)})

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        """The tables of a namespace."""
        name = _levels(namespace)
        self.refuse_absent(name)
        query = select(IcebergTables.table_name).where(
            IcebergTables.catalog_name == self.name, IcebergTables.table_namespace == text_of(name)
        )
        with self.reading() as connection:
            return sorted((*name, table) for table in connection.execute(query).scalars())

    def refuse_absent(self, name: Name) -> None:
        """Raises when there is no namespace of that name."""
        if not self.namespace_exists(name):
            raise NoSuchNamespaceError(f"Namespace does not exist: {text_of(name)}")

    def load_namespace_properties(self, namespace: str | Identifier) -> Properties:
        """All properties of a namespace."""
        name = _levels(namespace)
        self.refuse_absent(name)
        table = IcebergNamespaceProperties
        query = select(table.property_key, table.property_value).where(*self._of_namespace(text_of(name)))
        with self.reading() as connection:
            return {row.property_key: row.property_value for row in connection.execute(query)}

    def namespace_properties(self, name: Name) -> dict[str, str]:
        """The properties that people gave a namespace."""
        properties = self.load_namespace_properties(name)
        return {key: value for key, value in properties.items() if key != _MARK}

    def update_namespace_properties(
        self, namespace: str | Identifier, removals: set[str] | None = None, updates: Properties = EMPTY_DICT
    ) -> PropertiesUpdateSummary:
        """Sets and removes properties of a namespace, never its last row."""
        removals, name = removals or set(), _levels(namespace)
        text = text_of(name)
        if _MARK in removals or _MARK in updates:
            raise ValueError(f"the property {_MARK!r} is the catalog's own: choose another name")
        both = sorted(removals & updates.keys())
        if both:
            raise UnprocessableError(f"Invalid namespace update: cannot simultaneously set and remove keys: {both}")
        key = IcebergNamespaceProperties.property_key
        with self._changing(text) as connection:
            if not self._is_there(connection, name):
                raise NoSuchNamespaceError(f"Namespace does not exist: {text}")
            present = set(connection.execute(select(key).where(*self._of_namespace(text))).scalars())
            gone = sorted(present & (removals | updates.keys()))
            for start in range(0, len(gone), _KEYS_AT_ONCE):
                chunk = key.in_(gone[start : start + _KEYS_AT_ONCE])
                connection.execute(delete(IcebergNamespaceProperties).where(*self._of_namespace(text), chunk))
            if updates:
                connection.execute(insert(IcebergNamespaceProperties), self._rows(text, updates))
        return PropertiesUpdateSummary(
            removed=sorted(removals & present), updated=sorted(updates), missing=sorted(removals - present)
        )

    @contextmanager
    def _changing(self, text: str) -> Iterator[Connection]:
        """A transaction on a namespace. Two servers may set one new property at once."""
        try:
            with self.writing() as connection:
                yield connection
        except IntegrityError:
            raise CommitFailedException(f"{text}: its properties were changed by others; try again") from None

    def _is_there(self, connection: Connection, name: Name) -> bool:
        return any(connection.execute(query.limit(1)).first() for query in self._at_or_below(name))

    def remove_namespace(self, name: Name, *, key: str | None = None) -> None:
        """Drops an empty namespace."""
        if self.is_answered(key):
            return
        self.refuse_absent(name)
        text = text_of(name)
        if self.list_tables(name) or self.list_namespaces(name):
            raise NamespaceNotEmptyError(f"Namespace is not empty: {text}; drop its tables and namespaces first")
        with self.writing() as connection:
            connection.execute(delete(IcebergNamespaceProperties).where(*self._of_namespace(text)))
            self.mark_answered(connection, key, f"drop namespace {text}")

    def _at_or_below(self, name: Name) -> list[Select[Any]]:
        """Queries for the texts of a namespace and of those below it: those with properties, and those of tables."""
        text = text_of(name)
        queries: list[Select[Any]] = []
        for kind, column in (
            (IcebergNamespaceProperties, IcebergNamespaceProperties.namespace),
            (IcebergTables, IcebergTables.table_namespace),
        ):
            query = select(column).where(kind.catalog_name == self.name)
            if name:
                # LIKE would take `DB` for `db` in SQLite.
                below = func.substr(column, 1, len(text) + 1) == f"{text}."
                query = query.where((column == text) | below)
            queries.append(query)
        return queries

    def _of_namespace(self, text: str) -> tuple[Any, ...]:
        table = IcebergNamespaceProperties
        return table.catalog_name == self.name, table.namespace == text

    def _rows(self, text: str, properties: Properties) -> list[dict[str, str]]:
        return [
            {"catalog_name": self.name, "namespace": text, "property_key": key, "property_value": value}
            for key, value in properties.items()
        ]


def now_ms() -> int:
    """The time of rows in the ledger."""
    return time.time_ns() // 1_000_000


def _levels(identifier: str | Identifier) -> Name:
    return levels_of(identifier) if isinstance(identifier, str) else tuple(identifier)


def _stored(text: str) -> Name:
    # Databases of earlier versions may have a backquote as it is.
    try:
        return levels_of(text)
    except BadNameError:
        return tuple(text.split("."))
