"""The ledger over HTTP, under `/headwater/v1`: what `client.CatalogClient` talks to. JSON, and Arrow streams for files.

Every call may be repeated: a client whose answer was lost sends it again, and nothing happens twice.
"""

from typing import Annotated, Any, Final, TypeAlias

import pyarrow as pa
from fastapi import APIRouter, Query, Response

from headwater.catalog import ledger
from headwater.catalog.arrow_input import FILES, MalformedArrowError, read_table
from headwater.catalog.bodies import Body
from headwater.catalog.commits import positions_of
from headwater.catalog.entries import PENDING, Load
from headwater.catalog.evolution import Wanted
from headwater.catalog.growing import Evolution, evolve, rewind, state_of
from headwater.catalog.ledger import NoSuchLoadError
from headwater.catalog.ledger_json import (
    change_to_json,
    file_to_json,
    load_to_json,
    state_to_json,
)
from headwater.catalog.ledger_requests import (
    changes_of,
    counts_of,
    load_id_of,
    mode_of,
    object_of,
    optional_text,
    pairs_of,
    position_of,
    properties_of,
    schema_of,
    text_of_field,
)
from headwater.catalog.names import name_of, text_of
from headwater.catalog.namespaces import now_ms
from headwater.catalog.positions import Position
from headwater.catalog.request_json import parse_object
from headwater.catalog.tables import LakeCatalog

_ARROW: Final = "application/vnd.apache.arrow.stream"
_Limit: TypeAlias = Annotated[int, Query(ge=0, le=2**31 - 1)]


def ledger_routes(catalog: LakeCatalog) -> APIRouter:
    """All routes of the ledger."""
    routes = APIRouter(prefix="/headwater/v1")
    _writing_of_loads(routes, catalog)
    _reading_of_loads(routes, catalog)
    _files(routes, catalog)
    _tables(routes, catalog)
    return routes


def _writing_of_loads(routes: APIRouter, catalog: LakeCatalog) -> None:
    @routes.post("/loads")
    def begin_load(body: Body) -> dict[str, Any]:
        request = parse_object(body)
        load = Load(
            load_id=load_id_of(request),
            table=text_of(name_of(text_of_field(request, "table"))),
            source=text_of_field(request, "source"),
            mode=mode_of(request),
            state=PENDING,
            before=position_of(request, "before"),
            after=position_of(request, "after"),
            details=object_of(request, "details"),
            begun_ms=now_ms(),
        )
        with catalog.writing() as connection:
            ledger.begin_load(connection, load)
        return {"load_id": load.load_id}

    @routes.post("/loads/{load_id}/finish")
    def finish_load(load_id: str, body: Body) -> dict[str, Any]:
        counts = counts_of(parse_object(body))
        with catalog.writing() as connection:
            ledger.finish_load(connection, load_id, counts, now_ms())
        return load(load_id)

    @routes.post("/loads/{load_id}/fail")
    def fail_load(load_id: str, body: Body) -> dict[str, Any]:
        reason = str(parse_object(body).get("reason", ""))
        with catalog.writing() as connection:
            ledger.fail_load(connection, load_id, reason, now_ms())
        return load(load_id)

    def load(load_id: str) -> dict[str, Any]:
        with catalog.reading() as connection:
            return load_to_json(_known(ledger.find_load(connection, load_id), load_id))


def _reading_of_loads(routes: APIRouter, catalog: LakeCatalog) -> None:
    @routes.get("/loads")
    def list_loads(table: str | None = None, source: str | None = None, limit: _Limit = 100) -> dict[str, Any]:
        with catalog.reading() as connection:
            found = ledger.list_loads(connection, table=_stored(table), source=source, limit=limit)
        return {"loads": [load_to_json(load) for load in found]}

    @routes.get("/sources")
    def list_sources(table: str | None = None) -> dict[str, Any]:
        with catalog.reading() as connection:
            found = ledger.list_sources(connection, _stored(table))
        return {"sources": [{"table": table, "source": source} for table, source in found]}

    @routes.get("/loads/{load_id}")
    def load(load_id: str) -> dict[str, Any]:
        with catalog.reading() as connection:
            return load_to_json(_known(ledger.find_load(connection, load_id), load_id))


def _files(routes: APIRouter, catalog: LakeCatalog) -> None:
    @routes.post("/loads/{load_id}/files")
    def add_files(load_id: str, body: Body) -> dict[str, Any]:
        files = read_table(body, FILES)
        if any(column.null_count for column in files.columns):
            raise MalformedArrowError("a file has a path, a time and a size: none of them can be null")
        with catalog.writing() as connection:
            load = _known(ledger.find_load(connection, load_id), load_id)
            if load.state != PENDING:
                raise ValueError(
                    f"load {load_id} is {load.state}: files can be added to a pending one only, begin another"
                )
            ledger.add_files(connection, load_id, files)
        return {"files": files.num_rows}

    @routes.get("/loads/{load_id}/files")
    def files_of(load_id: str) -> Response:
        with catalog.reading() as connection:
            _known(ledger.find_load(connection, load_id), load_id)
            return _arrow(ledger.files_of(connection, [load_id]))

    @routes.get("/known-files")
    def known_files(table: str, source: str) -> Response:
        position = _position(catalog, table, source)
        with catalog.reading() as connection:
            return _arrow(ledger.files_of(connection, ledger.chain_of(connection, source, position)))

    @routes.get("/file")
    def find_file(table: str, path: str) -> dict[str, Any]:
        with catalog.reading() as connection:
            found = ledger.find_file(connection, text_of(name_of(table)), path)
        return {"entries": [file_to_json(entry) for entry in found]}


def _tables(routes: APIRouter, catalog: LakeCatalog) -> None:
    @routes.get("/table")
    def table_state(table: str) -> dict[str, Any]:
        found = catalog.find(name_of(table))
        return {"table": state_to_json(state_of(found)) if found is not None else None}

    @routes.get("/position")
    def position(table: str, source: str) -> dict[str, Any]:
        return {"position": _position(catalog, table, source)}

    @routes.get("/schema-history")
    def schema_history(table: str) -> dict[str, Any]:
        with catalog.reading() as connection:
            found = ledger.schema_history(connection, text_of(name_of(table)))
        return {"changes": [change_to_json(change) for change in found]}

    @routes.post("/evolve")
    def evolve_table(body: Body) -> dict[str, Any]:
        return {"table": state_to_json(state_of(evolve(catalog, _evolution(parse_object(body)))))}

    @routes.post("/rewind")
    def rewind_table(body: Body) -> dict[str, Any]:
        request = parse_object(body)
        name, load_id = name_of(text_of_field(request, "table")), load_id_of(request)
        rewind(catalog, name, text_of_field(request, "source"), position_of(request), load_id)
        with catalog.reading() as connection:
            return load_to_json(_known(ledger.find_load(connection, load_id), load_id))


def _evolution(request: dict[str, Any]) -> Evolution:
    properties = properties_of(request)
    return Evolution(
        name=name_of(text_of_field(request, "table")),
        wanted=Wanted(
            schema=schema_of(request, properties),
            partition_spec=pairs_of(request, "partition_spec"),
            sort_order=pairs_of(request, "sort_order"),
            properties=properties,
        ),
        changes=changes_of(request),
        source=optional_text(request, "source"),
        position=position_of(request),
        load_id=optional_text(request, "load_id"),
    )


def _stored(table: str | None) -> str | None:
    return text_of(name_of(table)) if table is not None else None


def _position(catalog: LakeCatalog, table: str, source: str) -> Position | None:
    found = catalog.find(name_of(table))
    return positions_of(found.metadata.current_snapshot()).get(source) if found is not None else None


def _known(load: Load | None, load_id: str) -> Load:
    if load is None:
        raise NoSuchLoadError(f"there is no load {load_id}")
    return load


def _arrow(table: pa.Table) -> Response:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return Response(sink.getvalue().to_pybytes(), media_type=_ARROW)
