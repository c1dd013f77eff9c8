"""Tables and namespaces of any name are made, listed, loaded, renamed and dropped, however clients write them."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import quote, quote_plus

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchTableError

from catalog_parts import Writer, error_of
from headwater.catalog.client import CatalogClient
from headwater.catalog.names import BadNameError, levels_of, name_of, sql_text, text_of
from headwater.catalog.places import folder_of
from headwater.catalog.server import EmbeddedCatalog

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
ODD = (
    "my table",
    "a/b",
    "v1.2",
    "...",
    "..a",
    "100%",
    "a%2Fb",
    "a+b",
    "größe 表",
    "what?#",
    "`q`",
    "a\\b",
    "-~",
    "a*[b]",
)
"""Names as people choose them, and as they do to look what happens."""

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0\x1f"), min_size=1, max_size=6)
LEVELS = st.lists(NAMES.filter(lambda text: text.strip() not in ("", ".", "..")))


def test_a_table_and_a_namespace_of_any_name(rest: RestCatalog, tmp_path: Path) -> None:
    for odd in (*ODD, "x" * 255):
        _lives_and_dies(rest, odd, tmp_path / "warehouse")


def _lives_and_dies(rest: RestCatalog, odd: str, warehouse: Path) -> None:
    space = (odd[:200],)
    name = (*space, odd)
    rest.create_namespace(space, {"owner": "ann"})
    assert rest.list_namespaces() == [space]
    assert rest.load_namespace_properties(space) == {"owner": "ann"}
    rest.create_table(name, ROWS.schema).append(ROWS)
    assert rest.list_tables(space) == [name]
    assert rest.load_table(name).scan().to_arrow().num_rows == 3
    # Whatever it is called, its files lie in a folder of its own in the warehouse.
    place = Path(rest.load_table(name).location().removeprefix("file://"))
    assert place.resolve() == place
    assert place.parent.parent == warehouse
    rest.rename_table(name, (*space, "plain"))
    rest.rename_table((*space, "plain"), name)
    assert rest.table_exists(name)
    rest.purge_table(name)
    rest.drop_namespace(space)
    assert rest.list_namespaces() == []


def test_levels_with_dots_are_not_levels(rest: RestCatalog) -> None:
    for space in (("a", "b"), ("a.b",), ("a", "b", "c d"), ("a.b", "c")):
        rest.create_namespace(space)
        rest.create_table((*space, "t"), ROWS.schema)
    assert rest.list_namespaces() == [("a",), ("a.b",)]
    assert rest.list_namespaces(("a", "b")) == [("a", "b", "c d")]
    assert rest.list_namespaces(("a.b",)) == [("a.b", "c")]
    assert rest.list_tables(("a", "b")) == [("a", "b", "t")]
    assert len({rest.load_table((*space, "t")).location() for space in (("a", "b"), ("a.b",))}) == 2
    rest.drop_table(("a.b", "t"))
    assert rest.table_exists(("a", "b", "t"))


def test_namespaces_below_one_with_a_space_are_listed(rest: RestCatalog) -> None:
    """pyiceberg encodes the name of the upper one twice."""
    rest.create_namespace(("my db", "one"))
    assert rest.list_namespaces(("my db",)) == [("my db", "one")]


def test_names_differ_by_their_case(rest: RestCatalog) -> None:
    rest.create_namespace(("db", "below"))
    assert not rest.namespace_exists("DB")
    assert rest.namespace_exists("db")


@pytest.mark.parametrize("encoded", [quote_plus, partial(quote, safe="")])
def test_java_writes_a_space_as_a_plus(writer: Writer, encoded: Callable[[str], str]) -> None:
    writer.http.post("/namespaces", json={"namespace": ["my db", "a+b/c"]})
    path = f"/namespaces/{encoded('my db')}%1F{encoded('a+b/c')}"
    schema = {"type": "struct", "fields": []}
    assert writer.http.post(f"{path}/tables", json={"name": "my/table +", "schema": schema}).status_code == 200
    assert writer.http.get(f"{path}/tables/{encoded('my/table +')}").status_code == 200
    assert writer.http.head(f"{path}/tables/{encoded('my/table +')}").status_code == 204
    assert writer.http.get(f"{path}/tables").json()["identifiers"] == [
        {"namespace": ["my db", "a+b/c"], "name": "my/table +"}
    ]
    assert writer.http.get("/namespaces", params={"parent": "my db"}).json() == {"namespaces": [["my db", "a+b/c"]]}
    commit = {"updates": [{"action": "set-properties", "updates": {"owner": "ann"}}]}
    assert writer.http.post(f"{path}/tables/{encoded('my/table +')}", json=commit).status_code == 200
    assert writer.http.delete(f"{path}/tables/{encoded('my/table +')}").status_code == 204


def test_what_is_no_name_is_refused(writer: Writer) -> None:
    for name in ("", " ", "..", "a\0b", "a\x1fb", "\ud800", 5, None, ["a"], "x" * 256):
        _is_refused(writer, name)


def _is_refused(writer: Writer, name: object) -> None:
    schema = {"type": "struct", "fields": []}
    source = {"namespace": ["db"], "name": "events"}
    for path, body in (
        ("/namespaces", {"namespace": [name]}),
        ("/namespaces", {"namespace": ["db", name]}),
        ("/namespaces/db/tables", {"name": name, "schema": schema}),
        ("/namespaces/db/tables", {"name": name, "schema": schema, "stage-create": True}),
        ("/namespaces/db/register", {"name": name, "metadata-location": "file:///nowhere"}),
        ("/tables/rename", {"source": source, "destination": {"namespace": ["db"], "name": name}}),
        ("/tables/rename", {"source": source, "destination": {"namespace": [name], "name": "t"}}),
    ):
        # httpx does not send lone surrogates; others do.
        status, kind, words = error_of(writer.http.post(path, content=_json(body)))
        assert (status, kind) == (400, "BadRequestException"), (path, words)
        assert "name" in words


def test_a_namespace_is_a_list_of_names(writer: Writer) -> None:
    refused: tuple[object, ...] = ("abc", [], 5, None, {}, [["a"]], ["x" * 200, "y" * 200])
    for namespace in refused:
        status, kind, words = error_of(writer.http.post("/namespaces", json={"namespace": namespace}))
        assert (status, kind) == (400, "BadRequestException")
        assert "name" in words
    assert writer.http.get("/namespaces").json() == {"namespaces": [["db"]]}


def test_a_path_that_names_nothing_is_refused(writer: Writer) -> None:
    for path in ("%zz", "%ff", "%00", "a%1F", "+", "%ED%A0%80"):
        assert error_of(writer.http.get(f"/namespaces/{path}"))[:2] == (400, "BadRequestException"), path


def test_paths_are_taken_as_they_are(writer: Writer) -> None:
    for path in ("/namespaces/", "/namespaces/db/tables/", "/namespaces//tables", "/namespaces/db/../db"):
        assert writer.http.get(path, follow_redirects=False).status_code in (200, 404), path
    assert error_of(writer.http.get("/namespaces/db%2Ftables"))[2] == "Namespace does not exist: db/tables"


def test_the_ledger_knows_tables_of_any_name(rest: RestCatalog, ledger: CatalogClient) -> None:
    for table in ("my db.my table", "`v1.2`.`a.b`", "db.a/b"):
        state = ledger.evolve(table, ROWS.schema)
        assert state.table == table
        load_id = ledger.begin_load(table=table, source="topic:a b")
        assert [load.load_id for load in ledger.loads(table=table)] == [load_id]
        assert [change.kind for change in ledger.schema_history(table)] == ["create"]
        assert ledger.rewind(table, "topic:a b", {"topics": {"a b": {"0": 1}}}).table == table
        assert ledger.position(table, "topic:a b") == {"topics": {"a b": {"0": 1}}}
    assert rest.load_table(("v1.2", "a.b")).location().endswith("/v1%2E2/a.b")
    rest.rename_table(("v1.2", "a.b"), ("db", "c"))
    assert [load.table for load in ledger.loads(table="db.c")] == ["db.c"] * 2


def test_a_missing_metadata_file_is_not_found(tmp_path: Path) -> None:
    paths = str(tmp_path / "c.db"), str(tmp_path / "w")
    with EmbeddedCatalog(*paths) as embedded:
        rest = RestCatalog("lake", uri=embedded.uri)
        rest.create_namespace("db")
        table = rest.create_table("db.t", ROWS.schema)
        Path(table.metadata_location.removeprefix("file://")).unlink()
        _is_not_found(embedded.uri, table.metadata_location)
        rest.close()
    with EmbeddedCatalog(*paths) as embedded:
        _is_not_found(embedded.uri, table.metadata_location)
        rest = RestCatalog("lake", uri=embedded.uri)
        # It can still be dropped, with nothing to purge, as the reference server does.
        rest.purge_table("db.t")
        with pytest.raises(NoSuchTableError):
            rest.load_table("db.t")
        rest.close()


@given(LEVELS)
def test_the_text_of_a_name_leads_back_to_it(levels: list[str]) -> None:
    if levels:
        assert levels_of(text_of(tuple(levels))) == tuple(levels)
        assert levels_of(sql_text(text_of(tuple(levels)))) == tuple(levels)


@pytest.mark.parametrize("text", ["", "t", ".t", "db.", "db..t", "db.`t", "db.`a`b", "d`b.t", "db.``", "`db`"])
def test_what_is_no_name_of_a_table(text: str) -> None:
    with pytest.raises(BadNameError):
        name_of(text)


@given(st.lists(st.text(min_size=1, max_size=90), min_size=1, max_size=3), st.text(min_size=1, max_size=90))
def test_a_folder_is_plain(levels: list[str], table: str) -> None:
    for folder in folder_of(levels, table):
        assert folder not in ("", ".", "..")
        assert not folder.startswith(".")
        assert set(folder) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.%")
        assert len(folder) <= 200


def _json(body: object) -> bytes:
    return json.dumps(body).encode()


def _is_not_found(uri: str, location: str) -> None:
    writer = Writer(uri)
    found = error_of(writer.http.get("/namespaces/db/tables/t"))
    assert found == (404, "NotFoundException", f"Failed to open input stream for file: {location}")
    writer.close()
