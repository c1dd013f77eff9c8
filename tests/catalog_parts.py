"""What tests of the catalog are made of: a table to commit to, and commits as Iceberg's clients send them."""

import itertools
import time
from collections.abc import Mapping
from typing import Any

import httpx

from headwater.catalog.client import CatalogClient
from headwater.catalog.positions import Position, canonical

TABLE = "db.events"
SOURCE = "topic:events"
NOTHING: Mapping[str, str] = {}
_IDS = itertools.count(1_000)


def offset(number: int) -> Position:
    """A position of `SOURCE`."""
    return {"topics": {"events": {"0": number}}}


def snapshot(
    snapshot_id: int, parent: int | None, summary: Mapping[str, str] = NOTHING, *, operation: str = "append"
) -> dict[str, Any]:
    """A snapshot as a writer describes it."""
    return {
        "snapshot-id": snapshot_id,
        **({"parent-snapshot-id": parent} if parent is not None else {}),
        "sequence-number": next(_IDS),
        "timestamp-ms": time.time_ns() // 1_000_000,
        "manifest-list": f"file:///nowhere/{snapshot_id}.avro",
        "schema-id": 0,
        "summary": {"operation": operation, **summary},
    }


def commit_of(*snapshots: dict[str, Any], branch: str = "main", parent: int | None = None) -> dict[str, Any]:
    """The request that adds snapshots to a branch, which ends with `parent` as far as the writer knows."""
    last = snapshots[-1]["snapshot-id"]
    return {
        "requirements": [{"type": "assert-ref-snapshot-id", "ref": branch, "snapshot-id": parent}],
        "updates": [
            *({"action": "add-snapshot", "snapshot": each} for each in snapshots),
            {"action": "set-snapshot-ref", "ref-name": branch, "type": "branch", "snapshot-id": last},
        ],
    }


def moving(expect: Position | None, offsets: Position | None, load_id: str, source: str = SOURCE) -> dict[str, str]:
    """The summary of a snapshot that moves the position of a source."""
    return {
        "headwater.expect": canonical({source: expect}),
        "headwater.offsets": canonical({source: offsets}),
        "headwater.load": load_id,
    }


class Writer:
    """Commits to `TABLE` over the wire."""

    def __init__(self, uri: str) -> None:
        # Bodies that are no honest JSON are sent as such, too.
        headers = {"Content-Type": "application/json"}
        self.http = httpx.Client(base_url=f"{uri}/v1", trust_env=False, timeout=60, headers=headers)
        self.ledger = CatalogClient(uri)

    def close(self) -> None:
        """Closes the connections."""
        self.http.close()
        self.ledger.close()

    def send(self, request: dict[str, Any], *, key: str | None = None, table: str = "events") -> httpx.Response:
        """One commit, and its answer whatever it is."""
        headers = {"Idempotency-Key": key} if key else {}
        return self.http.post(f"/namespaces/db/tables/{table}", json=request, headers=headers)

    def metadata(self, table: str = "events") -> dict[str, Any]:
        """The table's metadata as it is now."""
        answer = self.http.get(f"/namespaces/db/tables/{table}")
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()["metadata"]
        return found

    def current(self) -> int | None:
        """The id of the current snapshot."""
        found: int | None = self.metadata().get("current-snapshot-id")
        return found

    def summary(self, snapshot_id: int) -> dict[str, str]:
        """The summary of a snapshot of the table."""
        snapshots = self.metadata()["snapshots"]
        found: dict[str, str] = next(each["summary"] for each in snapshots if each["snapshot-id"] == snapshot_id)
        return found

    def load(self, before: Position | None, after: Position | None, *, source: str = SOURCE) -> int:
        """A load that is committed, and the id of its snapshot."""
        load_id = self.ledger.begin_load(table=TABLE, source=source, before=before, after=after)
        parent = self.current()
        new = next(_IDS)
        answer = self.send(commit_of(snapshot(new, parent, moving(before, after, load_id, source)), parent=parent))
        assert answer.status_code == 200, answer.text
        return new

    def insert(self) -> int:
        """A commit of somebody who knows nothing of positions, and the id of its snapshot."""
        parent = self.current()
        new = next(_IDS)
        answer = self.send(commit_of(snapshot(new, parent), parent=parent))
        assert answer.status_code == 200, answer.text
        return new


def error_of(answer: httpx.Response) -> tuple[int, str, str]:
    """Status, type and words of an error."""
    error = answer.json()["error"]
    assert error["code"] == answer.status_code
    return answer.status_code, error["type"], error["message"]
