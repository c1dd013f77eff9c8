"""Requests with an idempotency key may be repeated when their answer was lost, and happen once."""

import uuid
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from catalog_parts import Writer, error_of

SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}]}


def test_clients_are_told_how_long_keys_are_remembered(writer: Writer) -> None:
    assert writer.http.get("/config").json()["idempotency-key-lifetime"] == "PT30M"


def _create_table(http: httpx.Client, headers: dict[str, str]) -> httpx.Response:
    return http.post("/namespaces/db/tables", json={"name": "new", "schema": SCHEMA}, headers=headers)


def _create_namespace(http: httpx.Client, headers: dict[str, str]) -> httpx.Response:
    return http.post("/namespaces", json={"namespace": ["fresh"]}, headers=headers)


def _rename(http: httpx.Client, headers: dict[str, str]) -> httpx.Response:
    names = {"source": {"namespace": ["db"], "name": "events"}, "destination": {"namespace": ["db"], "name": "moved"}}
    return http.post("/tables/rename", json=names, headers=headers)


def _drop(http: httpx.Client, headers: dict[str, str]) -> httpx.Response:
    return http.delete("/namespaces/db/tables/events", headers=headers)


def _purge(http: httpx.Client, headers: dict[str, str]) -> httpx.Response:
    return http.delete("/namespaces/db/tables/events", params={"purgeRequested": "true"}, headers=headers)


@pytest.mark.parametrize("request_once", [_create_table, _create_namespace, _rename, _drop, _purge])
def test_a_request_with_a_key_is_answered_alike_when_it_comes_again(
    writer: Writer, request_once: Callable[[httpx.Client, dict[str, str]], httpx.Response]
) -> None:
    headers = {"Idempotency-Key": str(uuid.uuid4())}
    first = request_once(writer.http, headers)
    again = request_once(writer.http, headers)
    assert first.is_success, first.text
    assert (again.status_code, again.content) == (first.status_code, first.content)
    other = request_once(writer.http, {"Idempotency-Key": str(uuid.uuid4())})
    assert other.status_code in (404, 409), "another request is not taken for the first"


def test_an_alter_with_a_key_is_not_repeated(writer: Writer) -> None:
    """Without the key its requirement, the old schema, would no longer hold: a conflict with oneself."""
    wider = {**SCHEMA, "schema-id": 1, "fields": [*_fields(writer), _field(3, "added")]}
    request: dict[str, Any] = {
        "requirements": [{"type": "assert-current-schema-id", "current-schema-id": 0}],
        "updates": [{"action": "add-schema", "schema": wider}, {"action": "set-current-schema", "schema-id": -1}],
    }
    key = str(uuid.uuid4())
    first = writer.send(request, key=key)
    again = writer.send(request, key=key)
    assert first.status_code == again.status_code == 200
    assert again.json() == first.json()
    assert error_of(writer.send(request, key=str(uuid.uuid4())))[0] == 409


def test_two_requests_with_one_key_are_both_carried_out(writer: Writer) -> None:
    """The client's mistake must not become a commit that is answered and lost."""
    key = str(uuid.uuid4())
    for owner in ("ann", "bob"):
        update = {"action": "set-properties", "updates": {"owner": owner}}
        assert writer.send({"requirements": [], "updates": [update]}, key=key).status_code == 200
    assert writer.metadata()["properties"]["owner"] == "bob"


def test_a_creation_in_a_transaction_is_recognised_by_the_tables_uuid(writer: Writer) -> None:
    """Spark's CREATE TABLE AS SELECT stages a table, and creates it by its first commit."""
    staged = writer.http.post("/namespaces/db/tables", json={"name": "new", "schema": SCHEMA, "stage-create": True})
    assert "metadata-location" not in staged.json()
    metadata = staged.json()["metadata"]
    request = {
        "requirements": [{"type": "assert-create"}],
        "updates": [
            {"action": "assign-uuid", "uuid": metadata["table-uuid"]},
            {"action": "upgrade-format-version", "format-version": 2},
            {"action": "add-schema", "schema": metadata["schemas"][0]},
            {"action": "set-current-schema", "schema-id": -1},
            {"action": "add-spec", "spec": metadata["partition-specs"][0]},
            {"action": "set-default-spec", "spec-id": -1},
            {"action": "add-sort-order", "sort-order": metadata["sort-orders"][0]},
            {"action": "set-default-sort-order", "sort-order-id": -1},
            {"action": "set-location", "location": metadata["location"]},
        ],
    }
    first = writer.send(request, table="new")
    assert first.status_code == 200, first.text
    assert writer.send(request, table="new").json() == first.json()
    request["updates"][0] = {"action": "assign-uuid", "uuid": str(uuid.uuid4())}
    assert error_of(writer.send(request, table="new"))[:2] == (409, "AlreadyExistsException")


def _fields(writer: Writer) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = writer.metadata()["schemas"][0]["fields"]
    return fields


def _field(number: int, name: str) -> dict[str, Any]:
    return {"id": number, "name": name, "required": False, "type": "string"}
