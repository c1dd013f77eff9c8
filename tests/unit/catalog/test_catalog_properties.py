"""No property of a table or a namespace runs code, or sends anybody's requests to a host of the sender's choice."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import TableProperties

from catalog_parts import Writer, error_of
from headwater.catalog.server import EmbeddedCatalog
from headwater.catalog.table_properties import is_refused

SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
LOADER = "write.py-location-provider.impl"
NAMES = [
    LOADER,
    "py-io-impl",
    "py-catalog-impl",
    "PY-IO-IMPL",
    " py-io-impl",
    "py-io-impl\t",
    "py- io-impl",
    "write.Py-Location-Provider.Impl",
    "write.py-anything-new.impl",
    "x.py-io-impl",
    "io-impl",
    "catalog-impl",
    "write.location-provider.impl",
    "metrics-reporter-impl",
    "s3.retry-strategy-impl",
    "s3.endpoint",
    "s3.proxy-uri",
    "S3.Signer.uri",
    "client.access-key-id",
    "gcs.service.host",
    "adls.account-host",
    "hdfs.host",
    "hf.endpoint",
    "header.Authorization",
    "token",
    "credential",
    "DEFAULT_NETLOC",
]


@pytest.fixture
def http(embedded: EmbeddedCatalog) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{embedded.uri}/v1", trust_env=False) as client:
        client.post("/namespaces", json={"namespace": ["db"]}).raise_for_status()
        client.post("/namespaces/db/tables", json={"name": "t", "schema": SCHEMA}).raise_for_status()
        yield client


def set_properties(properties: dict[str, str]) -> dict[str, Any]:
    return {"requirements": [], "updates": [{"action": "set-properties", "updates": properties}]}


def location_of(http: httpx.Client) -> str:
    found: str = http.get("/namespaces/db/tables/t").json()["metadata-location"]
    return found


def test_a_property_that_names_code_is_never_run(http: httpx.Client, tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    code = f"open({str(proof)!r}, 'w') #"
    for properties in ({LOADER: "builtins.exec"}, {LOADER: "os.system"}, {LOADER: "no.such.Class"}):
        for stage in (False, True):
            request = {"name": "u", "schema": SCHEMA, "location": code, "properties": properties, "stage-create": stage}
            assert error_of(http.post("/namespaces/db/tables", json=request))[0] in (400, 403)
        change = set_properties(properties)
        change["updates"].append({"action": "set-location", "location": code})
        assert error_of(http.post("/namespaces/db/tables/t", json=change))[0] in (400, 403)
        creating = {**change, "requirements": [{"type": "assert-create"}]}
        assert error_of(http.post("/namespaces/db/tables/u", json=creating))[0] in (400, 403)
        transaction = {"table-changes": [{**change, "identifier": {"namespace": ["db"], "name": "t"}}]}
        assert error_of(http.post("/transactions/commit", json=transaction))[0] in (400, 403)
    assert not proof.exists()


def test_such_a_property_is_refused_wherever_it_is_given(http: httpx.Client, embedded: EmbeddedCatalog) -> None:
    ledger = f"{embedded.uri}/headwater/v1"
    for name in NAMES:
        given = {name: "os.system"}
        evolved = {"table": "db.t", "schema": SCHEMA, "properties": given}
        for path, request in (
            ("/namespaces/db/tables", {"name": "u", "schema": SCHEMA, "properties": given}),
            ("/namespaces/db/tables/t", set_properties(given)),
            ("/namespaces", {"namespace": ["evil"], "properties": given}),
            ("/namespaces/db/properties", {"updates": given}),
            (f"{ledger}/evolve", evolved),
            (f"{ledger}/evolve", {**evolved, "table": "db.new"}),
        ):
            answer = http.post(path, json=request)
            assert error_of(answer)[:2] == (400, "BadRequestException"), (name, path)
            assert "is refused" in answer.text, (name, path)
        assert name not in http.get("/namespaces/db/tables/t").text
    assert http.get("/namespaces").json() == {"namespaces": [["db"]]}


def test_a_metadata_file_with_such_a_property_is_not_registered(http: httpx.Client, tmp_path: Path) -> None:
    path = Path(location_of(http).removeprefix("file://"))
    http.delete("/namespaces/db/tables/t").raise_for_status()
    honest = path.read_text()
    path.write_text(json.dumps({**json.loads(honest), "properties": {"py-io-impl": "os.system"}}))
    register = {"name": "u", "metadata-location": f"file://{path}"}
    assert "no table may have" in error_of(http.post("/namespaces/db/register", json=register))[2]
    path.write_text(honest)
    assert http.post("/namespaces/db/register", json=register).status_code == 200


def test_what_an_older_version_let_in_is_taken_out_when_it_is_read(
    http: httpx.Client, rest: RestCatalog, embedded: EmbeddedCatalog
) -> None:
    """Also out of what clients are told: pyiceberg's import by name, and send requests where a table says."""
    location = location_of(http)
    path = Path(location.removeprefix("file://"))
    properties = {LOADER: "builtins.exec", "s3.endpoint": "http://127.0.0.1:9", "owner": "ann"}
    path.write_text(json.dumps({**json.loads(path.read_text()), "properties": properties}))
    embedded._catalog.files.forget(location)
    text = http.get("/namespaces/db/tables/t").text
    assert ("impl" in text, "s3.endpoint" in text, '"owner":"ann"' in text) == (False, False, True)
    assert rest.load_table("db.t").properties == {"owner": "ann"}
    assert http.post("/namespaces/db/tables/t", json=set_properties({"a": "b"})).status_code == 200
    assert "impl" not in Path(location_of(http).removeprefix("file://")).read_text()


def test_a_rewind_asks_for_no_class_by_name(writer: Writer, embedded: EmbeddedCatalog, tmp_path: Path) -> None:
    """It is carried out by pyiceberg's own table, on one that an older version let have such a property."""
    proof = tmp_path / "proof"
    located = writer.http.get("/namespaces/db/tables/events").json()["metadata-location"]
    path = Path(located.removeprefix("file://"))
    code = f"open({str(proof)!r}, 'w') #"
    metadata = json.loads(path.read_text())
    metadata["properties"] = {LOADER: "builtins.exec", "x": code}
    path.write_text(json.dumps(metadata))
    embedded._catalog.files.forget(located)
    table = embedded._catalog.load_table("db.events")
    assert LOADER not in table.properties
    assert table.location_provider().new_metadata_location("x") == f"{table.location()}/metadata/x"
    writer.ledger.rewind("db.events", "topic:events", None)
    assert not proof.exists()


def test_properties_of_pyiceberg_that_name_code_are_all_known() -> None:
    """An upgrade that brings another one is noticed here."""
    names = {value for name, value in vars(TableProperties).items() if name.isupper() and isinstance(value, str)}
    assert {name for name in names if re.search(r"impl|class", name)} == {LOADER}
    assert {name for name in names if is_refused(name)} == {LOADER}


def test_the_properties_of_honest_tables_are_kept(rest: RestCatalog) -> None:
    rest.create_namespace("db", {"owner": "ann", "comment": "simple", "type": "raw"})
    properties = {"write.format.default": "parquet", "write.implicit": "x", "client-note": "y", "py": "z", "simpl": "q"}
    rest.create_table("db.t", pa.schema([("id", pa.int64())]), properties=properties)
    assert rest.load_table("db.t").properties == properties
