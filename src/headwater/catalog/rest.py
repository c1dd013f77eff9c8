"""Iceberg's REST catalog API over a `LakeCatalog`: what Spark, pyiceberg, DuckDB and Trino talk to.

Served: configuration, namespaces, tables (create, stage, load, commit, rename, drop, purge, register), commits to
several tables, metrics (taken and dropped). Left out on purpose: views, scan planning, credentials, OAuth.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final
from urllib.parse import unquote

from fastapi import APIRouter, FastAPI, Query, Response
from fastapi.responses import JSONResponse
from pyiceberg.exceptions import NoSuchTableError, NoSuchViewError

from headwater.catalog.bodies import Body, Key
from headwater.catalog.errors import answer_errors, error_answer
from headwater.catalog.ledger_api import ledger_routes
from headwater.catalog.metadata_files import StoredTable
from headwater.catalog.names import Name, checked_level, checked_namespace, text_of
from headwater.catalog.pyiceberg_gaps import metadata_json, parse_commit_request, parse_create_request
from headwater.catalog.raw_paths import RawPaths, namespace_of_path, namespace_of_query, table_of_path
from headwater.catalog.request_json import parse_object
from headwater.catalog.requests import (
    flag_in,
    identifier_in,
    objects_in,
    properties_in,
    text_in,
    texts_in,
)
from headwater.catalog.tables import LakeCatalog, TableChange

IDEMPOTENCY_KEY_LIFETIME: Final = "PT30M"
_NS: Final = "/namespaces/{namespace}"
_TABLE: Final = "/namespaces/{namespace}/tables/{table}"


def catalog_app(catalog: LakeCatalog) -> FastAPI:
    """The app that serves a catalog and its ledger."""
    app = FastAPI(title="headwater catalog", docs_url=None, redoc_url=None, openapi_url=None)
    answer_errors(app)
    app.router.redirect_slashes = False
    app.add_middleware(RawPaths)
    routes = APIRouter(prefix="/v1")
    _configuration(routes, catalog)
    _namespaces(routes, catalog)
    _tables(routes, catalog)
    _commits(routes, catalog)
    _views(routes)
    app.include_router(routes)
    app.include_router(ledger_routes(catalog))
    _build_routes(app)
    return app


def _build_routes(app: FastAPI) -> None:
    # FastAPI builds them at the first request otherwise, in whichever thread that comes, and silences a warning of
    # pydantic meanwhile: for all threads, as warnings are, and loud again when another thread is done first.
    for route in app.routes:
        build = getattr(route, "effective_candidates", None)
        if build is not None:
            build()


def _configuration(routes: APIRouter, catalog: LakeCatalog) -> None:
    @routes.get("/config")
    def configuration() -> dict[str, Any]:
        return {
            "defaults": catalog.for_clients,
            "overrides": {},
            "idempotency-key-lifetime": IDEMPOTENCY_KEY_LIFETIME,
            "endpoints": [
                f"{method} /v1/{{prefix}}{path}"
                for path, methods in (
                    ("/namespaces", ("GET", "POST")),
                    (_NS, ("GET", "HEAD", "DELETE")),
                    (f"{_NS}/properties", ("POST",)),
                    (f"{_NS}/tables", ("GET", "POST")),
                    (f"{_NS}/register", ("POST",)),
                    (_TABLE, ("GET", "HEAD", "POST", "DELETE")),
                    (f"{_TABLE}/metrics", ("POST",)),
                    ("/tables/rename", ("POST",)),
                    ("/transactions/commit", ("POST",)),
                )
                for method in methods
            ],
        }


def _namespaces(routes: APIRouter, catalog: LakeCatalog) -> None:
    @routes.get("/namespaces")
    def list_namespaces(parent: str = "") -> dict[str, Any]:
        return {"namespaces": catalog.list_namespaces(_parent(catalog, parent) if parent else ())}

    @routes.post("/namespaces")
    def create_namespace(body: Body, key: Key = None) -> dict[str, Any]:
        request = parse_object(body)
        name = checked_namespace(request["namespace"])
        catalog.make_namespace(name, properties_in(request, "properties"), key=key)
        return {"namespace": name, "properties": catalog.namespace_properties(name)}

    @routes.get(_NS)
    def load_namespace(namespace: str) -> dict[str, Any]:
        name = namespace_of_path(namespace)
        return {"namespace": name, "properties": catalog.namespace_properties(name)}

    @routes.head(_NS)
    def namespace_exists(namespace: str) -> Response:
        catalog.refuse_absent(namespace_of_path(namespace))
        return Response(status_code=204)

    @routes.delete(_NS)
    def drop_namespace(namespace: str, key: Key = None) -> Response:
        catalog.remove_namespace(namespace_of_path(namespace), key=key)
        return Response(status_code=204)

    @routes.post(f"{_NS}/properties")
    def update_properties(namespace: str, body: Body) -> dict[str, Any]:
        request = parse_object(body)
        removals, updates = set(texts_in(request, "removals")), properties_in(request, "updates")
        summary = catalog.update_namespace_properties(namespace_of_path(namespace), removals, updates)
        return {"removed": summary.removed, "updated": summary.updated, "missing": summary.missing}


def _tables(routes: APIRouter, catalog: LakeCatalog) -> None:
    @routes.get(f"{_NS}/tables")
    def list_tables(namespace: str) -> dict[str, Any]:
        found = catalog.list_tables(namespace_of_path(namespace))
        return {"identifiers": [{"namespace": name[:-1], "name": name[-1]} for name in found]}

    @routes.post(f"{_NS}/tables")
    def create_table(namespace: str, body: Body, key: Key = None) -> Response:
        request = parse_create_request(body)
        name = (*namespace_of_path(namespace), request.name)
        metadata = catalog.stage(
            name,
            request.schema,
            location=request.location,
            spec=request.spec,
            order=request.order,
            properties=request.properties,
        )
        if request.stage:
            catalog.refuse_existing(name)
            return _json_with_metadata(None, metadata_json(metadata))
        return _table_answer(catalog.create(name, metadata, key=key))

    @routes.get(_TABLE)
    def load_table(namespace: str, table: str) -> Response:
        return _table_answer(catalog.get(table_of_path(namespace, table)))

    @routes.head(_TABLE)
    def table_exists(namespace: str, table: str) -> Response:
        name = table_of_path(namespace, table)
        if not catalog.has(name):
            raise NoSuchTableError(f"Table does not exist: {text_of(name)}")
        return Response(status_code=204)

    @routes.delete(_TABLE)
    def drop_table(
        namespace: str, table: str, purge: Annotated[bool, Query(alias="purgeRequested")] = False, key: Key = None
    ) -> Response:
        name = table_of_path(namespace, table)
        if purge:
            catalog.purge(name, key=key)
        else:
            catalog.drop(name, key=key)
        return Response(status_code=204)

    @routes.post(f"{_NS}/register")
    def register_table(namespace: str, body: Body, key: Key = None) -> Response:
        request = parse_object(body)
        name = (*namespace_of_path(namespace), checked_level(request["name"]))
        location, overwrite = text_in(request, "metadata-location"), flag_in(request, "overwrite")
        return _table_answer(catalog.register(name, location, overwrite=overwrite, key=key))

    @routes.post("/tables/rename")
    def rename_table(body: Body, key: Key = None) -> Response:
        request = parse_object(body)
        catalog.rename(identifier_in(request, "source"), identifier_in(request, "destination"), key=key)
        return Response(status_code=204)


def _commits(routes: APIRouter, catalog: LakeCatalog) -> None:
    @routes.post(_TABLE)
    def commit_table(namespace: str, table: str, body: Body, key: Key = None) -> Response:
        change = _change(table_of_path(namespace, table), parse_object(body))
        return _table_answer(catalog.commit([change], key=key)[0])

    @routes.post("/transactions/commit")
    def commit_tables(body: Body, key: Key = None) -> Response:
        parts = objects_in(parse_object(body), "table-changes")
        changes = [_change(identifier_in(part, "identifier"), part) for part in parts]
        catalog.commit(changes, key=key)
        return Response(status_code=204)

    @routes.post(f"{_TABLE}/metrics")
    def take_metrics(namespace: str, table: str) -> Response:
        return Response(status_code=204)


def _views(routes: APIRouter) -> None:
    @routes.get(f"{_NS}/views")
    def list_views(namespace: str) -> dict[str, Any]:
        return {"identifiers": []}

    @routes.post(f"{_NS}/views")
    def create_view(namespace: str) -> JSONResponse:
        return error_answer(406, "UnsupportedOperationException", "this catalog keeps no views: create a table instead")

    @routes.get(f"{_NS}/views/{{view}}")
    def load_view(namespace: str, view: str) -> Response:
        name = text_of(table_of_path(namespace, view))
        raise NoSuchViewError(f"View does not exist: {name} (this catalog keeps no views)")

    @routes.head(f"{_NS}/views/{{view}}")
    def view_exists(namespace: str, view: str) -> Response:
        return Response(status_code=404)


def _parent(catalog: LakeCatalog, text: str) -> Name:
    name = namespace_of_query(text)
    if catalog.namespace_exists(name):
        return name
    # pyiceberg encodes each level of this parameter before its HTTP library encodes the whole of it again.
    decoded = tuple(unquote(level) for level in name)
    return decoded if catalog.namespace_exists(decoded) else name


def _change(name: Name, request: Mapping[str, Any]) -> TableChange:
    parsed = parse_commit_request(request)
    return TableChange(name=name, requirements=parsed.requirements, updates=parsed.updates)


def _table_answer(table: StoredTable) -> Response:
    return _json_with_metadata(table.location, table.text)


def _json_with_metadata(location: str | None, metadata: bytes) -> Response:
    # The metadata goes out as it stands in its file: a table of 1,000 snapshots is not spelled again for each answer.
    named = b'"metadata-location":' + json.dumps(location).encode() + b"," if location is not None else b""
    return Response(b"{" + named + b'"metadata":' + metadata + b',"config":{}}', media_type="application/json")
