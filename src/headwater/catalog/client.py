"""The client of a catalog's ledger: loads, positions, known files, schemas. Iceberg itself is any engine's business.

All calls may be repeated without harm, so a lost connection is tried again for a while before the caller hears of it.
"""

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import httpx

from headwater.catalog.entries import FileEntry, Load, SchemaChange, TableState
from headwater.catalog.ledger_json import (
    change_from_json,
    change_to_json,
    file_from_json,
    load_from_json,
    schema_to_text,
    state_from_json,
)
from headwater.catalog.positions import Position

if TYPE_CHECKING:
    import pyarrow as pa

_ROOT: Final = "/headwater/v1"
_TIMEOUT_S: Final = 120.0
_PAUSES_S: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0)


class CatalogError(Exception):
    """The catalog said no, or could not be reached."""

    def __init__(self, message: str, *, status: int | None = None, kind: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status of the answer; None when there was none."""
        self.kind = kind
        """Iceberg's name of the error, for example `CommitFailedException`."""


class CatalogClient:
    """Talks to one catalog. It may be shared by threads.

    client = CatalogClient("http://127.0.0.1:8181")
    read = client.position("db.orders", "topic:orders")
    load_id = client.begin_load(table="db.orders", source="topic:orders", before=read)
    """

    def __init__(self, uri: str, token: str | None = None) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(
            base_url=uri.rstrip("/") + _ROOT, headers=headers, timeout=_TIMEOUT_S, trust_env=False
        )
        self.uri = uri

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes its connections."""
        self._http.close()

    def begin_load(
        self,
        *,
        table: str,
        source: str,
        mode: str = "append",
        before: Position | None = None,
        after: Position | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> str:
        """Writes a pending load into the ledger and returns its id.

        `after` may be left out where it is known later: the commit says what the position became.
        """
        load_id = uuid.uuid4().hex
        request = {
            "load_id": load_id,
            "table": table,
            "source": source,
            "mode": mode,
            "before": before,
            "after": after,
            "details": dict(details or {}),
        }
        self._post("/loads", request)
        return load_id

    def add_files(self, load_id: str, files: "pa.Table") -> None:
        """Adds files (path, modified_ns, size) to a pending load. They count when the load is committed."""
        import pyarrow as pa

        from headwater.catalog.arrow_input import FILES

        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, FILES) as writer:
            writer.write_table(files.select(FILES.names).cast(FILES))
        kind = {"Content-Type": "application/vnd.apache.arrow.stream"}
        self._send("POST", f"/loads/{load_id}/files", content=sink.getvalue().to_pybytes(), headers=kind)

    def finish_load(
        self,
        load_id: str,
        *,
        rows: int | None = None,
        rescued: int | None = None,
        corrupt: int | None = None,
        bytes_read: int | None = None,
        seconds: float | None = None,
    ) -> Load:
        """Writes what a committed load counted."""
        counts = {"rows": rows, "rescued": rescued, "corrupt": corrupt, "bytes_read": bytes_read, "seconds": seconds}
        return load_from_json(self._post(f"/loads/{load_id}/finish", counts))

    def fail_load(self, load_id: str, reason: str) -> Load:
        """Makes a pending load failed: a commit of it that is still on its way will be refused.

        The answer says what the load is now; it is `committed` when the commit was quicker.
        """
        return load_from_json(self._post(f"/loads/{load_id}/fail", {"reason": reason}))

    def position(self, table: str, source: str) -> Position | None:
        """How far a source has been loaded into a table; None when there is no table or nothing was loaded."""
        found: Position | None = self._get("/position", {"table": table, "source": source})["position"]
        return found

    def known_files(self, table: str, source: str) -> "pa.Table":
        """The files of a source that a table has: path, modified_ns, size, load_id; the newest entry of each path."""
        return _arrow(self._send("GET", "/known-files", params={"table": table, "source": source}))

    def loads(self, table: str | None = None, source: str | None = None, limit: int = 100) -> list[Load]:
        """The newest loads, newest first."""
        found = self._get("/loads", {"table": table, "source": source, "limit": limit})["loads"]
        return [load_from_json(value) for value in found]

    def sources(self, table: str | None = None) -> list[tuple[str, str]]:
        """The tables that were loaded into, or tried to be, and the sources of each, in order."""
        found = self._get("/sources", {"table": table})["sources"]
        return [(value["table"], value["source"]) for value in found]

    def load(self, load_id: str) -> Load:
        """One load."""
        return load_from_json(self._get(f"/loads/{load_id}"))

    def files_of(self, load_id: str) -> "pa.Table":
        """The files of one load, whatever became of it."""
        return _arrow(self._send("GET", f"/loads/{load_id}/files"))

    def find_file(self, table: str, path: str) -> list[FileEntry]:
        """All loads into a table that named a file, newest first."""
        return [file_from_json(value) for value in self._get("/file", {"table": table, "path": path})["entries"]]

    def evolve(
        self,
        table: str,
        schema: "pa.Schema | Mapping[str, Any]",
        *,
        partition_spec: Sequence[tuple[str, str]] | None = None,
        sort_order: Sequence[str | tuple[str, str]] | None = None,
        properties: Mapping[str, str] | None = None,
        changes: Iterable[SchemaChange] = (),
        source: str | None = None,
        position: Position | None = None,
        load_id: str | None = None,
    ) -> TableState:
        """Creates a table (and its namespace), or adds, widens and relaxes its columns, in one commit.

        `schema` is an Arrow schema or Iceberg's own JSON; columns that the table has and `schema` lacks stay. A
        partition field is a transform and a column, a sort field a column or a column and `asc` or `desc`.
        """
        wanted = {"schema": dict(schema)} if isinstance(schema, Mapping) else {"arrow_schema": schema_to_text(schema)}
        order = [(part, "asc") if isinstance(part, str) else part for part in sort_order or ()]
        request = {
            **wanted,
            "table": table,
            "partition_spec": list(partition_spec) if partition_spec is not None else None,
            "sort_order": order if sort_order is not None else None,
            "properties": dict(properties or {}),
            "changes": [change_to_json(change) for change in changes],
            "source": source,
            "position": position,
            "load_id": load_id,
        }
        return state_from_json(self._post("/evolve", request)["table"])

    def table_state(self, table: str) -> TableState | None:
        """A table as it is now; None when there is none."""
        value = self._get("/table", {"table": table})["table"]
        return state_from_json(value) if value is not None else None

    def schema_history(self, table: str) -> list[SchemaChange]:
        """All changes of a table's schema, oldest first."""
        return [change_from_json(value) for value in self._get("/schema-history", {"table": table})["changes"]]

    def rewind(self, table: str, source: str, position: Position | None) -> Load:
        """Sets a source's position, None for its beginning: the next load reads from there. No row is removed."""
        request = {"table": table, "source": source, "position": position, "load_id": uuid.uuid4().hex}
        return load_from_json(self._post("/rewind", request))

    def settings(self) -> dict[str, str]:
        """What the catalog tells every client of Iceberg: where the tables lie, and how their files are reached."""
        found: dict[str, str] = self._get(f"{self.uri.rstrip('/')}/v1/config")["defaults"]
        return found

    def _get(self, path: str, parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
        given = {name: value for name, value in (parameters or {}).items() if value is not None}
        answer: dict[str, Any] = self._send("GET", path, params=given).json()
        return answer

    def _post(self, path: str, request: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self._send("POST", path, json=request).json()
        return answer

    def _send(self, method: str, path: str, **request: Any) -> httpx.Response:
        for pause_s in (*_PAUSES_S, None):
            try:
                answer = self._http.request(method, path, **request)
            except httpx.TransportError as error:
                if pause_s is None:
                    raise CatalogError(
                        f"the catalog at {self.uri} cannot be reached: {error}; is it running?"
                    ) from error
            else:
                if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE or pause_s is None:
                    return _checked(answer)
            time.sleep(pause_s)
        raise AssertionError("unreachable")


def _checked(answer: httpx.Response) -> httpx.Response:
    if answer.is_success:
        return answer
    try:
        error = answer.json()["error"]
        raise CatalogError(error["message"], status=answer.status_code, kind=error["type"])
    except (ValueError, KeyError, TypeError):
        raise CatalogError(f"the catalog answered {answer.status_code}", status=answer.status_code) from None


def _arrow(answer: httpx.Response) -> "pa.Table":
    from headwater.catalog.arrow_input import KNOWN_FILES, MalformedArrowError, read_table

    try:
        return read_table(answer.content, KNOWN_FILES)
    except MalformedArrowError as error:
        raise CatalogError(f"the catalog's answer is not the list of files that it should be: {error}") from None
