"""A table is read, written and deleted in its own folder below the warehouse, whatever names and files say."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from catalog_parts import Writer, commit_of, error_of, snapshot
from headwater.catalog import occupied_places
from headwater.catalog.locations import ForbiddenLocationError, Roots, place_of
from headwater.catalog.server import EmbeddedCatalog

SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
CHANGES_LATER = "write.metadata.delete-after-commit.enabled"


@pytest.fixture
def http(embedded: EmbeddedCatalog) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{embedded.uri}/v1", trust_env=False) as client:
        client.post("/namespaces", json={"namespace": ["db"]}).raise_for_status()
        yield client


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder that is nobody's business."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "precious").write_text("root:x:0:0:secret")
    return folder


def files_below(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def create(http: httpx.Client, name: str = "t", **more: Any) -> httpx.Response:
    return http.post("/namespaces/db/tables", json={"name": name, "schema": SCHEMA, **more})


def change(http: httpx.Client, *updates: dict[str, Any], name: str = "t") -> httpx.Response:
    return http.post(f"/namespaces/db/tables/{name}", json={"requirements": [], "updates": list(updates)})


def outside_spellings(outside: Path, warehouse: Path) -> list[str]:
    path = f"{outside}/t"
    name = outside.name
    return [
        path,
        f"file:{path}",
        f"file:/{path}",
        f"file://{path}",
        f"file:///{path}",
        f"file://localhost{path}",
        f"FILE://{path}",
        f"File:{path}",
        f"file://{warehouse}/../{name}/t",
        f"file://{warehouse}/db/../../{name}/t",
        f"file:{warehouse}/./../{name}/t",
        f"file://{warehouse}/%2e%2e/{name}/t",
        f"file://{warehouse}/%252e%252e/{name}/t",
        f"file://{warehouse}/..%2F{name}/t",
        f"file://{warehouse}x/t",
        f"file://{warehouse}",
        f"file://{warehouse}/link/t",
        f"file://{warehouse}/a\\..\\..\\t",
        f"file://{warehouse}/t?x",
        f"file://{warehouse}/t#x",
        f"file://{warehouse}//t",
        f"{warehouse.name}/t",
        "file:t",
        "t",
        "",
        "file:",
        "file:///",
        "s3://bucket/t",
        "s3a://user:key@bucket/t",
        "hdfs://127.0.0.1:9/t",
        "http://127.0.0.1:9/t",
        "gs://bucket/t",
        f"file://{warehouse}/t\x00x",
        f"file://{warehouse}/t\nx",
        f"file://{warehouse}/{'x' * 5000}",
        f"file://{warehouse}/{'x' * 300}",
        # A path with a second scheme in it was looked at as a path, and opened as what stands behind that scheme.
        f"{warehouse}/x://bucket/t",
        f"{warehouse}/s3://127.0.0.1:9/t",
        f"file:{warehouse}/x://bucket/t",
        f"file://{warehouse}/s3:/bucket/t",
    ]


def test_no_spelling_of_a_location_leads_out_of_the_warehouse(
    http: httpx.Client, outside: Path, tmp_path: Path
) -> None:
    warehouse = tmp_path / "warehouse"
    create(http, "t").raise_for_status()
    (warehouse / "link").symlink_to(outside)
    before = files_below(tmp_path)
    for location in outside_spellings(outside, warehouse):
        for answer in (
            *([create(http, "u", location=location)] if location else []),
            *([create(http, "u", location=location, **{"stage-create": True})] if location else []),
            change(http, {"action": "set-location", "location": location}),
            *(
                [
                    create(http, "u", properties={name: location})
                    for name in ("write.metadata.path", "write.data.path", "write.object-storage.path")
                ]
                if location
                else []
            ),
            change(http, {"action": "set-properties", "updates": {"write.folder-storage.path": location or "x"}}),
            http.post("/namespaces", json={"namespace": ["evil"], "properties": {"location": location or "x"}}),
            http.post("/namespaces/db/properties", json={"updates": {"location": location or "x"}}),
        ):
            assert answer.status_code in (400, 403), (location, answer.request.content, answer.text)
        named = {"name": "u", "metadata-location": f"{location}/metadata/00000-x.metadata.json"}
        # A folder in the warehouse has no such file.
        assert http.post("/namespaces/db/register", json=named).status_code in (400, 403, 404)
    grown = {path for path in files_below(tmp_path) - before if ".db" not in path.name}
    assert grown == set()
    assert list(outside.iterdir()) == [outside / "precious"]
    assert http.get("/namespaces/db/tables").json()["identifiers"] == [{"namespace": ["db"], "name": "t"}]


@pytest.mark.parametrize("name", ["../../../x", "..", ".", "/etc/x", "a/../../../../x", "%2e%2e", "..\\..\\x", "a/b"])
def test_no_name_leads_out_of_the_warehouse(http: httpx.Client, tmp_path: Path, name: str) -> None:
    warehouse = tmp_path / "warehouse"
    before = files_below(tmp_path)
    http.post("/namespaces", json={"namespace": [name]})
    for path in ("/namespaces/db/tables", f"/namespaces/{quote(name, safe='')}/tables"):
        for more in ({}, {"stage-create": True}):
            http.post(path, json={"name": name, "schema": SCHEMA, **more})
    for file in files_below(tmp_path) - before:
        assert (warehouse in file.parents and len(file.relative_to(warehouse).parts) == 4) or ".db" in file.name, file


def test_tables_may_lie_anywhere_in_the_warehouse(http: httpx.Client, tmp_path: Path) -> None:
    for number, spelling in enumerate(("file://{}", "file:{}", "{}")):
        location = spelling.format(f"{tmp_path}/warehouse/elsewhere/{number}")
        answer = create(http, f"t{number}", location=location)
        assert (answer.status_code, answer.json()["metadata"]["location"]) == (200, location)
    moved = change(http, {"action": "set-location", "location": f"file://{tmp_path}/warehouse/moved"}, name="t0")
    assert moved.status_code == 200
    assert change(http, {"action": "set-properties", "updates": {"a": "b"}}, name="t0").status_code == 200
    assert list((tmp_path / "warehouse/moved/metadata").iterdir())


def test_a_file_in_the_way_is_the_callers_mistake(http: httpx.Client, tmp_path: Path) -> None:
    (tmp_path / "warehouse").mkdir(exist_ok=True)
    (tmp_path / "warehouse/file").write_text("something")
    for place in ("file", "file/x"):
        location = f"{tmp_path}/warehouse/{place}"
        for more in ({"location": location}, {"properties": {"write.metadata.path": location}}):
            assert error_of(create(http, "u", **more))[:2] == (403, "ForbiddenException")
    for name in ("file/00000-x.metadata.json", f"{'x' * 250}.metadata.json"):
        named = {"name": "u", "metadata-location": f"{tmp_path}/warehouse/{name}"}
        assert error_of(http.post("/namespaces/db/register", json=named))[:2] in (
            (404, "NotFoundException"),
            (403, "ForbiddenException"),
        )
    assert (tmp_path / "warehouse/file").read_text() == "something"


def test_the_operator_may_allow_other_folders(tmp_path: Path) -> None:
    other = tmp_path / "other"
    with (
        EmbeddedCatalog(str(tmp_path / "c.db"), str(tmp_path / "w"), allow_locations=[str(other)]) as catalog,
        httpx.Client(base_url=f"{catalog.uri}/v1", trust_env=False) as http,
    ):
        http.post("/namespaces", json={"namespace": ["db"]}).raise_for_status()
        assert create(http, "t", location=f"file://{other}/t").status_code == 200
        assert create(http, "u", location=f"file://{other}s/t").status_code == 403
        assert http.delete("/namespaces/db/tables/t", params={"purgeRequested": "true"}).status_code == 204
        assert files_below(other) == set()


def test_a_warehouse_may_be_named_with_dots_and_links(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with (
        EmbeddedCatalog(str(tmp_path / "c.db"), f"{tmp_path}/link/../link/lake") as catalog,
        httpx.Client(base_url=f"{catalog.uri}/v1", trust_env=False) as http,
    ):
        http.post("/namespaces", json={"namespace": ["db"]}).raise_for_status()
        assert create(http, "t").status_code == 200
        assert change(http, {"action": "set-properties", "updates": {"a": "b"}}).status_code == 200


def test_no_two_tables_share_a_folder(http: httpx.Client, tmp_path: Path) -> None:
    """The removal of orphans deletes whatever a table does not know in its folder: another table's files, say."""
    warehouse = f"file://{tmp_path}/warehouse"
    create(http, "t").raise_for_status()
    create(http, "u").raise_for_status()
    for location in (
        f"{warehouse}/db/t",
        f"{warehouse}/db",
        f"{warehouse}/db/t/data",
        f"file:{tmp_path}/warehouse/db/t",
    ):
        for answer in (
            create(http, "v", location=location),
            create(http, "v", location=location, **{"stage-create": True}),
            change(http, {"action": "set-location", "location": location}, name="u"),
        ):
            assert error_of(answer)[:2] == (403, "ForbiddenException"), answer.text
            assert "db.t" in answer.text or "db.u" in answer.text
    table = http.get("/namespaces/db/tables/t").json()
    again = {"name": "v", "metadata-location": table["metadata-location"]}
    assert error_of(http.post("/namespaces/db/register", json=again))[0] == 403
    assert create(http, "tt").status_code == 200
    rename = {"source": {"namespace": ["db"], "name": "t"}, "destination": {"namespace": ["db"], "name": "renamed"}}
    assert http.post("/tables/rename", json=rename).status_code == 204
    assert error_of(create(http, "v", location=f"{warehouse}/db/t"))[0] == 403
    assert http.delete("/namespaces/db/tables/renamed").status_code == 204
    assert create(http, "v", location=f"{warehouse}/db/t").status_code == 200


def test_a_purge_deletes_the_tables_files(rest: RestCatalog, tmp_path: Path) -> None:
    rest.create_namespace("db")
    for folder in ("t", "u"):
        table = rest.create_table(f"db.{folder}", ROWS.schema)
        table.append(ROWS)
        table.append(ROWS)
    theirs = files_below(tmp_path / "warehouse/db/u")
    rest.purge_table("db.t")
    assert files_below(tmp_path / "warehouse/db/t") == set()
    assert files_below(tmp_path / "warehouse/db/u") == theirs
    assert rest.load_table("db.u").scan().to_arrow().num_rows == 6


def test_a_purge_in_a_folder_with_an_unusual_name(tmp_path: Path) -> None:
    warehouse = tmp_path / "my lake #1 100%?"
    with EmbeddedCatalog(str(tmp_path / "c.db"), str(warehouse)) as catalog:
        writer = Writer(catalog.uri)
        writer.ledger.evolve("db.events", pa.schema([("id", pa.int64())]))
        writer.close()
        with httpx.Client(base_url=f"{catalog.uri}/v1", trust_env=False) as http:
            (warehouse / "db/events/metadata/1.avro").write_bytes(b"")
            listed = {**snapshot(1, None), "manifest-list": f"file://{warehouse}/db/events/metadata/1.avro"}
            http.post("/namespaces/db/tables/events", json=commit_of(listed)).raise_for_status()
            purged = http.delete("/namespaces/db/tables/events", params={"purgeRequested": "true"})
            assert purged.status_code == 204
    assert files_below(warehouse) == set()


def test_a_purge_deletes_no_file_outside_the_tables_folder(
    rest: RestCatalog, http: httpx.Client, outside: Path, tmp_path: Path
) -> None:
    """A registered file names somebody else's files as its metadata, manifests, statistics and data."""
    warehouse = tmp_path / "warehouse"
    victim = rest.create_table("db.victim", ROWS.schema)
    victim.append(ROWS)
    victim.append(ROWS)
    theirs = files_below(warehouse / "db/victim")
    precious = f"file://{outside}/precious"
    evil = warehouse / "evil"
    (evil / "metadata").mkdir(parents=True)
    (evil / "link").symlink_to(outside)
    metadata = json.loads(victim.metadata.model_dump_json())
    stolen = [each["manifest-list"] for each in metadata["snapshots"]]
    paths = [precious, f"file://{evil}/link/precious", f"file://{evil}/../../outside/precious", "hdfs://127.0.0.1:9/x"]
    metadata |= {
        "location": f"file://{evil}",
        "metadata-log": [
            {"metadata-file": path, "timestamp-ms": 1} for path in (*paths, victim.metadata_location, *stolen)
        ],
        "statistics": [
            {
                "snapshot-id": victim.metadata.current_snapshot_id,
                "statistics-path": path,
                "file-size-in-bytes": 1,
                "file-footer-size-in-bytes": 1,
                "blob-metadata": [],
            }
            for path in paths
        ],
    }
    (evil / "metadata/v1.metadata.json").write_text(json.dumps(metadata))
    location = f"file://{evil}/metadata/v1.metadata.json"
    registered = http.post("/namespaces/db/register", json={"name": "evil", "metadata-location": location})
    assert registered.status_code == 200, registered.text
    # A commit lets old metadata files go, if the table asks for it: not those of others.
    keys = {CHANGES_LATER: "true", "write.metadata.previous-versions-max": "1"}
    assert change(http, {"action": "set-properties", "updates": keys}, name="evil").status_code == 200
    assert change(http, {"action": "set-properties", "updates": {"a": "b"}}, name="evil").status_code == 200
    assert files_below(warehouse / "db/victim") == theirs
    assert http.delete("/namespaces/db/tables/evil", params={"purgeRequested": "true"}).status_code == 204
    assert files_below(warehouse / "db/victim") == theirs
    assert (outside / "precious").exists()
    assert not [path for path in files_below(evil) if path.suffix == ".json"]
    assert rest.load_table("db.victim").scan().to_arrow().num_rows == 6


def test_a_table_that_shares_its_folder_since_an_older_version_is_not_purged(
    http: httpx.Client, embedded: EmbeddedCatalog, tmp_path: Path
) -> None:
    create(http, "t").raise_for_status()
    create(http, "u").raise_for_status()
    # As an older version left it: two tables in one folder, and nothing written about where they lie.
    pointers = {name: http.get(f"/namespaces/db/tables/{name}").json()["metadata-location"] for name in ("t", "u")}
    path = Path(pointers["u"].removeprefix("file://"))
    path.write_text(path.read_text().replace("warehouse/db/u", "warehouse/db/t"))
    catalog = embedded._catalog
    catalog.files.forget(pointers["u"])
    with catalog.writing() as connection:
        connection.exec_driver_sql("delete from headwater_table_places")
    answer = http.delete("/namespaces/db/tables/u", params={"purgeRequested": "true"})
    assert error_of(answer)[0] == 403
    assert "db.t" in answer.text
    assert http.delete("/namespaces/db/tables/u").status_code == 204
    assert http.delete("/namespaces/db/tables/t", params={"purgeRequested": "true"}).status_code == 204


def test_registering_a_file_tells_nothing_of_what_is_in_it(http: httpx.Client, outside: Path, tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    create(http).raise_for_status()
    shutil.copy(outside / "precious", warehouse / "precious")
    shutil.copy(outside / "precious", warehouse / "x.metadata.json")
    shutil.copy(outside / "precious", warehouse / "z.metadata.json.gz")
    (warehouse / "n.metadata.json").write_text('{"format-version": 2, "location": "secret", "x": "root:x:0:0:secret"}')
    (warehouse / "link.metadata.json").symlink_to(outside / "precious")
    (warehouse / "d.metadata.json").mkdir()
    os.mkfifo(warehouse / "p.metadata.json")
    inside = ("precious", "z.metadata.json.gz", *(f"{name}.metadata.json" for name in ("x", "p", "d", "n", "link")))
    locations = ["/etc/passwd", "file:///etc/passwd", f"file://{outside}/precious"]
    for location in (*locations, *(f"file://{warehouse}/{name}" for name in inside)):
        answer = http.post("/namespaces/db/register", json={"name": "u", "metadata-location": location})
        assert answer.status_code in (400, 403), location
        assert "secret" not in answer.text, location
        assert "root:" not in answer.text, location


def test_registering_unpacks_no_bomb(http: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gzip

    from headwater.catalog import metadata_files

    monkeypatch.setattr(metadata_files, "_LARGEST", 1 << 20)
    create(http).raise_for_status()
    (tmp_path / "warehouse/z.gz.metadata.json").write_bytes(gzip.compress(b" " * (4 << 20)))
    location = f"file://{tmp_path}/warehouse/z.gz.metadata.json"
    answer = http.post("/namespaces/db/register", json={"name": "u", "metadata-location": location})
    assert "more than 1 MiB" in error_of(answer)[2]


def test_a_rewind_reads_no_manifest_outside(writer: Writer, outside: Path) -> None:
    named = {**snapshot(1, None), "manifest-list": f"file://{outside}/precious"}
    assert writer.send(commit_of(named)).status_code == 200
    answer = writer.ledger._http.post(
        "/rewind", json={"table": "db.events", "source": "topic:x", "position": None, "load_id": "a" * 32}
    )
    assert error_of(answer)[:2] == (403, "ForbiddenException")


def test_places_are_compared_by_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert place_of(f"file:{tmp_path}/link/t") == place_of(f"file://{tmp_path}/real/t/")
    assert Roots(f"file://{tmp_path}/link").holds(f"file://{tmp_path}/real/t")
    assert place_of("s3n://b/k") == place_of("s3://b/k")
    assert not Roots("s3://b/lake").holds("s3://b/lakes/t")
    for unclear in ("s3://b/lake/../x", "s3:///x", "s3:b/x", "s3://b:80/x"):
        with pytest.raises(ForbiddenLocationError):
            place_of(unclear)


def test_a_purge_spares_a_table_that_was_renamed_meanwhile(
    http: httpx.Client, embedded: EmbeddedCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another table had its name then: that one was dropped, and the files of the renamed one deleted."""
    create(http).raise_for_status()
    check = occupied_places.check_unoccupied

    def meanwhile(*given: Any) -> None:
        check(*given)
        monkeypatch.setattr(occupied_places, "check_unoccupied", check)
        names = [{"namespace": ["db"], "name": name} for name in ("t", "u")]
        with httpx.Client(base_url=f"{embedded.uri}/v1", trust_env=False) as other:
            renaming = {"source": names[0], "destination": names[1]}
            other.post("/tables/rename", json=renaming).raise_for_status()
            create(other).raise_for_status()

    monkeypatch.setattr(occupied_places, "check_unoccupied", meanwhile)
    answer = http.delete("/namespaces/db/tables/t", params={"purgeRequested": "true"})
    assert error_of(answer)[:2] == (409, "CommitFailedException")
    for name in ("t", "u"):
        location = http.get(f"/namespaces/db/tables/{name}").json()["metadata-location"]
        assert Path(location.removeprefix("file://")).exists()
