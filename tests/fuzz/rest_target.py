"""Requests to the catalog's app, in this process and without sockets: any method, path, headers and body.

An input is a request as it looks on the wire, with single newlines: the line, headers, an empty line, the body. It is
sent twice, to the door and to the app behind it. No answer may be a 500, and no file may appear beside the warehouse.
"""

import asyncio
import atexit
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote_to_bytes

import anyio.to_thread
import pyarrow as pa

from headwater.catalog.arrow_input import FILES
from headwater.catalog.doorkeeping import App, Door, DoorRules
from headwater.catalog.ledger_json import schema_to_text
from headwater.catalog.rest import catalog_app
from headwater.catalog.server import open_catalog
from headwater.catalog.tables import LakeCatalog

_INPUTS_PER_CATALOG: Final = 500
_HOST: Final = ("127.0.0.1", 8181)
_SCHEMA: Final = {
    "type": "struct",
    "schema-id": 0,
    "identifier-field-ids": [],
    "fields": [
        {"id": 1, "name": "id", "type": "long", "required": True},
        {
            "id": 2,
            "name": "tags",
            "type": {"type": "list", "element-id": 3, "element": "string", "element-required": True},
        },
        {"id": 4, "name": "price", "type": "decimal(9, 2)", "required": False, "doc": "in won"},
    ],
}
_LOAD: Final = "a" * 32


class _Served:
    """A catalog with a table, an app over it, and the folder that must stay as it is."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="headwater-fuzz-rest-"))
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
        (self.folder / "outside").write_text("precious")
        self.loop = asyncio.new_event_loop()
        self.inputs = 0
        self.catalog: LakeCatalog | None = None

    def apps(self) -> tuple[App, App]:
        """The door and the app behind it; both are new from time to time, so that tables do not pile up."""
        if self.catalog is None or self.inputs % _INPUTS_PER_CATALOG == 0:
            self.close()
            shutil.rmtree(self.folder / "in", ignore_errors=True)
            (self.folder / "in").mkdir()
            self.catalog = open_catalog(f"{self.folder}/in/catalog.db", f"{self.folder}/in/warehouse")
            self._app: App = catalog_app(self.catalog)
            self._door = Door(self._app, DoorRules(most_body_bytes=1 << 20))
            for method, path, body in _FIRST:
                status = self.status_of(self._app, _request(method, path, body))
                assert status < 300, (method, path, status)
        self.inputs += 1
        return self._door, self._app

    def close(self) -> None:
        """Lets go of the database."""
        if self.catalog is not None:
            self.catalog.close()

    def status_of(self, app: App, data: bytes) -> int:
        """The status of the answer to a request."""
        scope, body = _parsed(data)
        return self.loop.run_until_complete(_answered(app, scope, body))


def one_input(data: bytes) -> None:
    """Sends one request; raises when the answer is a fault of ours, or a file appeared where none belongs."""
    for app in _served().apps():
        status = _served().status_of(app, data)
        assert status not in (500, 501, 502), f"the answer to {data[:200]!r} is {status}"
    folder = _served().folder
    assert sorted(os.listdir(folder)) == ["in", "outside"]
    assert all(name.startswith("catalog.db") or name == "warehouse" for name in os.listdir(folder / "in"))
    assert (folder / "outside").read_text() == "precious"


def seeds() -> list[bytes]:
    """A request for each route, and some that mean harm."""
    return [_request(method, path, body) for method, path, body in (*_FIRST, *_HONEST, *_HOSTILE)]


_SERVED: list[_Served] = []


def _served() -> _Served:
    if not _SERVED:
        _SERVED.append(_Served())
    return _SERVED[0]


def _request(method: str, path: str, body: object = None) -> bytes:
    kind, text = "application/json", b""
    if isinstance(body, bytes):
        kind, text = "application/vnd.apache.arrow.stream", body
    elif body is not None:
        text = json.dumps(body).encode()
    head = f"{method} {path}\nHost: 127.0.0.1:8181\nContent-Type: {kind}\nContent-Length: {len(text)}\n\n"
    return head.encode() + text


def _parsed(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The scope that a server makes of a request, and its body."""
    head, _, body = data.partition(b"\n\n")
    line, *lines = head.split(b"\n")
    method, _, rest = line.partition(b" ")
    # What a server takes for a path; it refuses all else itself.
    target = bytes(letter for letter in rest if 0x20 < letter < 0x7F)
    raw_path, _, query = target.partition(b"?")
    headers = [(name.strip().lower(), value.strip()) for name, _, value in (each.partition(b":") for each in lines)]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "server": _HOST,
        "client": ("127.0.0.1", 1),
        "scheme": "http",
        "method": method.decode("latin-1"),
        "root_path": "",
        "path": unquote_to_bytes(raw_path).decode(errors="replace"),
        "raw_path": raw_path,
        "query_string": query,
        "headers": headers,
        "state": {},
    }
    return scope, body


async def _answered(app: App, scope: dict[str, Any], body: bytes) -> int:
    # One thread: each takes address space, of which the harness gives little.
    anyio.to_thread.current_default_thread_limiter().total_tokens = 1
    statuses: list[int] = []
    parts = [body[: len(body) // 2], body[len(body) // 2 :]]

    async def receive() -> dict[str, Any]:
        if not parts:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await app(scope, receive, send)
    assert len(statuses) == 1, statuses
    return statuses[0]


def _files() -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, FILES) as writer:
        writer.write_table(pa.table({"path": ["a", "b"], "modified_ns": [1, 2], "size": [3, 4]}, schema=FILES))
    found: bytes = sink.getvalue().to_pybytes()
    return found


_SNAPSHOT: Final = {
    "snapshot-id": 1,
    "sequence-number": 1,
    "timestamp-ms": 2_000_000_000_000,
    "manifest-list": "file:///nowhere/1.avro",
    "schema-id": 0,
    "summary": {
        "operation": "append",
        "headwater.expect": '{"topic:x": null}',
        "headwater.offsets": '{"topic:x": {"topics": {"x": {"0": 1}}}}',
        "headwater.load": _LOAD,
    },
}
_FIRST: Final[list[tuple[str, str, Any]]] = [
    ("POST", "/v1/namespaces", {"namespace": ["db"], "properties": {"owner": "ann"}}),
    (
        "POST",
        "/v1/namespaces/db/tables",
        {
            "name": "t",
            "schema": _SCHEMA,
            "partition-spec": {
                "spec-id": 0,
                "fields": [{"source-id": 1, "field-id": 1000, "transform": "bucket[4]", "name": "b"}],
            },
            "write-order": {
                "order-id": 1,
                "fields": [{"source-id": 1, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}],
            },
            "properties": {"a": "b"},
        },
    ),
    (
        "POST",
        "/headwater/v1/loads",
        {
            "load_id": _LOAD,
            "table": "db.t",
            "source": "topic:x",
            "mode": "append",
            "before": None,
            "after": {"x": 1},
            "details": {},
        },
    ),
]
_HONEST: Final[list[tuple[str, str, Any]]] = [
    ("GET", "/v1/config?warehouse=x", None),
    ("GET", "/v1/namespaces?parent=db", None),
    ("GET", "/v1/namespaces/db", None),
    ("HEAD", "/v1/namespaces/db%1Fraw", None),
    ("POST", "/v1/namespaces", {"namespace": ["db", "raw"]}),
    ("DELETE", "/v1/namespaces/db%1Fraw", None),
    ("POST", "/v1/namespaces/db/properties", {"removals": ["owner"], "updates": {"x": "y"}}),
    ("GET", "/v1/namespaces/db/tables?pageSize=3", None),
    ("POST", "/v1/namespaces/db/tables", {"name": "staged", "schema": _SCHEMA, "stage-create": True}),
    ("GET", "/v1/namespaces/db/tables/t?snapshots=refs", None),
    ("HEAD", "/v1/namespaces/db/tables/t", None),
    ("DELETE", "/v1/namespaces/db/tables/u?purgeRequested=true", None),
    ("POST", "/v1/namespaces/db/register", {"name": "u", "metadata-location": "file:///etc/passwd", "overwrite": True}),
    (
        "POST",
        "/v1/tables/rename",
        {"source": {"namespace": ["db"], "name": "u"}, "destination": {"namespace": ["db"], "name": "v"}},
    ),
    (
        "POST",
        "/v1/namespaces/db/tables/t",
        {
            "requirements": [
                {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None},
                {"type": "assert-current-schema-id", "current-schema-id": 0},
                {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 4},
            ],
            "updates": [
                {"action": "add-snapshot", "snapshot": _SNAPSHOT},
                {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 1},
                {"action": "set-properties", "updates": {"c": "d"}},
                {"action": "remove-properties", "removals": ["c"]},
            ],
        },
    ),
    (
        "POST",
        "/v1/namespaces/db/tables/created",
        {
            "requirements": [{"type": "assert-create"}],
            "updates": [
                {"action": "assign-uuid", "uuid": "6b2c1b57-0c7a-4f83-a5d5-94f2a5b8a1c0"},
                {"action": "upgrade-format-version", "format-version": 2},
                {"action": "add-schema", "schema": _SCHEMA, "last-column-id": 4},
                {"action": "set-current-schema", "schema-id": -1},
                {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
                {"action": "set-default-spec", "spec-id": -1},
                {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
                {"action": "set-default-sort-order", "sort-order-id": -1},
                {"action": "set-location", "location": "s3://bucket/created"},
            ],
        },
    ),
    (
        "POST",
        "/v1/transactions/commit",
        {
            "table-changes": [
                {
                    "identifier": {"namespace": ["db"], "name": "t"},
                    "requirements": [],
                    "updates": [
                        {
                            "action": "set-statistics",
                            "snapshot-id": 1,
                            "statistics": {
                                "snapshot-id": 1,
                                "statistics-path": "x",
                                "file-size-in-bytes": 1,
                                "file-footer-size-in-bytes": 1,
                                "blob-metadata": [],
                            },
                        },
                        {"action": "remove-snapshots", "snapshot-ids": [1]},
                        {"action": "remove-snapshot-ref", "ref-name": "main"},
                    ],
                }
            ]
        },
    ),
    ("POST", "/v1/namespaces/db/tables/t/metrics", {"report-type": "scan-report"}),
    ("GET", "/v1/namespaces/db/views", None),
    ("POST", "/v1/namespaces/db/views", {"name": "v"}),
    ("HEAD", "/v1/namespaces/db/views/v", None),
    ("GET", f"/headwater/v1/loads/{_LOAD}", None),
    ("GET", "/headwater/v1/loads?table=db.t&source=topic:x&limit=3", None),
    (
        "POST",
        f"/headwater/v1/loads/{_LOAD}/finish",
        {"rows": 1, "rescued": 0, "corrupt": 0, "seconds": 0.5},
    ),
    ("POST", f"/headwater/v1/loads/{_LOAD}/fail", {"reason": "killed"}),
    ("POST", f"/headwater/v1/loads/{_LOAD}/files", _files()),
    ("GET", f"/headwater/v1/loads/{_LOAD}/files", None),
    ("GET", "/headwater/v1/sources?table=db.t", None),
    ("GET", "/headwater/v1/known-files?table=db.t&source=files:x", None),
    ("GET", "/headwater/v1/file?table=db.t&path=a", None),
    ("GET", "/headwater/v1/table?table=db.t", None),
    ("GET", "/headwater/v1/position?table=db.t&source=topic:x", None),
    ("GET", "/headwater/v1/schema-history?table=db.t", None),
    (
        "POST",
        "/headwater/v1/evolve",
        {
            "table": "db.grown",
            "arrow_schema": schema_to_text(pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])),
            "partition_spec": [["day", "at"]],
            "sort_order": [["id", "asc"]],
            "properties": {"format-version": "2"},
            "changes": [{"kind": "add", "path": "id", "new_type": "long"}],
            "source": "topic:x",
            "position": {"x": 1},
            "load_id": _LOAD,
        },
    ),
    ("POST", "/headwater/v1/evolve", {"table": "db.t", "schema": _SCHEMA}),
    ("POST", "/headwater/v1/rewind", {"table": "db.t", "source": "topic:x", "position": {"x": 0}, "load_id": "b" * 32}),
]
_HOSTILE: Final[list[tuple[str, str, Any]]] = [
    ("POST", "/v1/namespaces/db/tables", {"name": "../../../outside/x", "schema": _SCHEMA}),
    ("POST", "/v1/namespaces/db/tables", {"name": "x", "schema": _SCHEMA, "location": "file:///tmp/../etc/x"}),
    (
        "POST",
        "/v1/namespaces/db/tables",
        {"name": "x", "schema": _SCHEMA, "properties": {"write.data.path": "/etc"}},
    ),
    (
        "POST",
        "/v1/namespaces/db/tables/t",
        {"updates": [{"action": "set-properties", "updates": {"write.py-location-provider.impl": "os.abort"}}]},
    ),
    (
        "POST",
        "/v1/namespaces/db/tables/t",
        {"updates": [{"action": "set-location", "location": "hdfs://127.0.0.1:9/"}]},
    ),
    ("GET", "/v1/namespaces/..%2F..%2Fetc/tables/passwd", None),
]
