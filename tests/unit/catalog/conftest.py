"""A catalog on a SQLite file, served on a free port, and its clients."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from catalog_parts import TABLE, Writer
from headwater.catalog.client import CatalogClient
from headwater.catalog.server import EmbeddedCatalog


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[EmbeddedCatalog]:
    with EmbeddedCatalog(str(tmp_path / "catalog.db"), str(tmp_path / "warehouse")) as catalog:
        yield catalog


@pytest.fixture
def ledger(embedded: EmbeddedCatalog) -> Iterator[CatalogClient]:
    with CatalogClient(embedded.uri) as client:
        yield client


@pytest.fixture
def rest(embedded: EmbeddedCatalog) -> Iterator[RestCatalog]:
    catalog = RestCatalog("lake", uri=embedded.uri)
    yield catalog
    catalog.close()


@pytest.fixture
def writer(embedded: EmbeddedCatalog) -> Iterator[Writer]:
    """One who commits to a table that is there and empty."""
    writer = Writer(embedded.uri)
    writer.ledger.evolve(TABLE, pa.schema([("id", pa.int64()), ("name", pa.string())]))
    yield writer
    writer.close()


@pytest.fixture(scope="module")
def shared_writer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Writer]:
    """A writer like `writer` for the tests of a module whose requests are refused, or may be carried out twice."""
    folder = tmp_path_factory.mktemp("shared")
    with EmbeddedCatalog(str(folder / "catalog.db"), str(folder / "warehouse")) as catalog:
        writer = Writer(catalog.uri)
        writer.ledger.evolve(TABLE, pa.schema([("id", pa.int64()), ("name", pa.string())]))
        yield writer
        writer.close()
