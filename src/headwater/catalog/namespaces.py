"""The database of a catalog: its transactions, its namespaces, and the requests that it has answered."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Final, TypeAlias

from pyiceberg.catalog import PropertiesUpdateSummary
from pyiceberg.catalog.sql import IcebergNamespaceProperties, SqlCatalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NamespaceNotEmptyError, NoSuchNamespaceError
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from sqlalchemy import Connection, delete, insert
from sqlalchemy.exc import IntegrityError

from headwater.catalog import ledger
from headwater.catalog.databases import prepare_engine

Name: TypeAlias = tuple[str, ...]

KEYS_KEPT_MS: Final = 24 * 3600 * 1000
"""How long a request's idempotency key is remembered: much longer than the lifetime that clients are told."""

_MARK: Final = "exists"
"""pyiceberg keeps a namespace as rows of properties, so one without any needs a row of its own."""


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
        dotted = _dotted(name)
        if self.is_answered(key):
            return
        if self.namespace_exists(name):
            raise NamespaceAlreadyExistsError(f"Namespace already exists: {dotted}")
        rows = [
            {"catalog_name": self.name, "namespace": dotted, "property_key": name, "property_value": value}
            for name, value in {**properties, _MARK: "true"}.items()
        ]
        try:
            with self.writing() as connection:
                connection.execute(insert(IcebergNamespaceProperties), rows)
                self.mark_answered(connection, key, f"create namespace {dotted}")
        except IntegrityError:
            raise NamespaceAlreadyExistsError(f"Namespace already exists: {dotted}") from None

    def namespace_properties(self, name: Name) -> dict[str, str]:
        """The properties that people gave a namespace."""
        properties = self.load_namespace_properties(name)
        return {key: value for key, value in properties.items() if key != _MARK}

    def update_namespace_properties(
        self, namespace: str | Identifier, removals: set[str] | None = None, updates: Properties = EMPTY_DICT
    ) -> PropertiesUpdateSummary:
        """Sets and removes properties of a namespace, never its last row."""
        if _MARK in (removals or ()):
            raise ValueError(f"the property {_MARK!r} is the catalog's own")
        return super().update_namespace_properties(namespace, removals, updates)

    def remove_namespace(self, name: Name, *, key: str | None = None) -> None:
        """Drops an empty namespace."""
        dotted = _dotted(name)
        if self.is_answered(key):
            return
        if not self.namespace_exists(name):
            raise NoSuchNamespaceError(f"Namespace does not exist: {dotted}")
        if self.list_tables(name) or self.list_namespaces(name):
            raise NamespaceNotEmptyError(f"Namespace is not empty: {dotted}; drop its tables and namespaces first")
        with self.writing() as connection:
            connection.execute(
                delete(IcebergNamespaceProperties).where(
                    IcebergNamespaceProperties.catalog_name == self.name, IcebergNamespaceProperties.namespace == dotted
                )
            )
            self.mark_answered(connection, key, f"drop namespace {dotted}")


def now_ms() -> int:
    """The time of rows in the ledger."""
    return time.time_ns() // 1_000_000


def _dotted(name: Name) -> str:
    # The database has one text for all levels, so a dot within a level would be read as two levels.
    if not name or any(not level.strip() or "." in level for level in name):
        raise ValueError(f"a namespace has levels without dots, none of them empty, unlike {list(name)}")
    return ".".join(name)
