"""pyiceberg's own REST client does everything with this catalog that it can do with any."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType

from catalog_parts import Writer, error_of

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["ann", "bob", "eve"]})


def test_namespaces_come_and_go(rest: RestCatalog) -> None:
    rest.create_namespace("shop", {"owner": "ann"})
    rest.create_namespace(("shop", "raw"))
    assert rest.list_namespaces() == [("shop",)]
    assert rest.list_namespaces("shop") == [("shop", "raw")]
    assert rest.load_namespace_properties("shop") == {"owner": "ann"}
    assert rest.namespace_exists("shop")
    assert not rest.namespace_exists("ship")
    with pytest.raises(NamespaceAlreadyExistsError):
        rest.create_namespace("shop")
    with pytest.raises(NamespaceNotEmptyError):
        rest.drop_namespace("shop")
    rest.drop_namespace(("shop", "raw"))
    rest.drop_namespace("shop")
    assert rest.list_namespaces() == []
    with pytest.raises(NoSuchNamespaceError):
        rest.drop_namespace("shop")


def test_a_namespace_survives_the_loss_of_its_last_property(rest: RestCatalog) -> None:
    rest.create_namespace("shop", {"owner": "ann"})
    summary = rest.update_namespace_properties("shop", {"owner", "absent"}, {})
    assert (summary.removed, summary.missing) == (["owner"], ["absent"])
    assert rest.namespace_exists("shop")
    assert rest.load_namespace_properties("shop") == {}


def test_a_table_is_written_and_read(rest: RestCatalog) -> None:
    rest.create_namespace("db")
    table = rest.create_table("db.people", ROWS.schema)
    table.append(ROWS)
    table.append(ROWS.slice(0, 1))
    table.delete("id = 2")
    table.overwrite(ROWS.slice(2, 1), "id = 3")
    assert sorted(rest.load_table("db.people").scan().to_arrow().column("id").to_pylist()) == [1, 1, 3]


def test_a_table_keeps_its_spec_order_and_properties(rest: RestCatalog) -> None:
    rest.create_namespace("db")
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "at", TimestamptzType()),
        identifier_field_ids=[1],
    )
    spec = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=DayTransform(), name="at_day"))
    order = SortOrder(SortField(source_id=1, transform=IdentityTransform()))
    rest.create_table("db.t", schema, partition_spec=spec, sort_order=order, properties={"owner": "ann"})
    table = rest.load_table("db.t")
    assert table.schema().identifier_field_ids == [1]
    assert [(field.name, str(field.transform)) for field in table.spec().fields] == [("at_day", "day")]
    assert [field.source_id for field in table.sort_order().fields] == [1]
    assert table.properties == {"owner": "ann"}


def test_a_table_evolves(rest: RestCatalog) -> None:
    rest.create_namespace("db")
    table = rest.create_table("db.t", ROWS.schema)
    table.append(ROWS)
    with table.update_schema() as change:
        change.add_column("city", StringType())
        change.rename_column("name", "called")
    with table.update_spec() as spec:
        spec.add_identity("city")
    with table.transaction() as transaction:
        transaction.set_properties(owner="ann")
        transaction.remove_properties("owner")
    assert rest.load_table("db.t").scan().to_arrow().column_names == ["id", "called", "city"]
    table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "first").commit()
    assert "first" in rest.load_table("db.t").metadata.refs


def test_tables_are_listed_renamed_and_dropped(rest: RestCatalog) -> None:
    rest.create_namespace("db")
    rest.create_namespace("other")
    rest.create_table("db.b", ROWS.schema)
    rest.create_table("db.a", ROWS.schema)
    assert rest.list_tables("db") == [("db", "a"), ("db", "b")]
    with pytest.raises(TableAlreadyExistsError):
        rest.create_table("db.a", ROWS.schema)
    with pytest.raises(TableAlreadyExistsError):
        rest.rename_table("db.a", "db.b")
    with pytest.raises(NoSuchNamespaceError):
        rest.rename_table("db.a", "nowhere.a")
    rest.rename_table("db.a", "other.c")
    assert rest.table_exists("other.c")
    assert not rest.table_exists("db.a")
    rest.drop_table("other.c")
    with pytest.raises(NoSuchTableError):
        rest.load_table("other.c")
    with pytest.raises(NoSuchTableError):
        rest.drop_table("other.c")
    with pytest.raises(NoSuchNamespaceError):
        rest.create_table("nowhere.t", ROWS.schema)
    with pytest.raises(NoSuchNamespaceError):
        rest.list_tables("nowhere")


def test_a_new_table_takes_no_other_tables_folder(rest: RestCatalog) -> None:
    """Else the clean-up of orphan files in one would delete the data of the other."""
    rest.create_namespace("db")
    renamed = rest.create_table("db.t", ROWS.schema)
    rest.rename_table("db.t", "db.old")
    assert rest.create_table("db.t", ROWS.schema).location() != renamed.location()
    assert rest.create_table("db.t_2", ROWS.schema).location().endswith("/db/t_2")


def test_a_purge_deletes_the_files_and_a_drop_leaves_them(rest: RestCatalog, tmp_path: Path) -> None:
    rest.create_namespace("db")
    rest.create_table("db.dropped", ROWS.schema).append(ROWS)
    rest.create_table("db.purged", ROWS.schema).append(ROWS)
    rest.drop_table("db.dropped")
    rest.purge_table("db.purged")
    folder = tmp_path / "warehouse" / "db"
    assert [path for path in (folder / "purged").rglob("*") if path.is_file()] == []
    assert [path.suffix for path in (folder / "dropped" / "data").rglob("*") if path.is_file()] == [".parquet"]


def test_a_table_that_shares_its_files_is_not_purged(rest: RestCatalog) -> None:
    rest.create_namespace("db")
    rest.create_table("db.t", ROWS.schema, properties={"gc.enabled": "false"}).append(ROWS)
    with pytest.raises(BadRequestError, match=r"gc\.enabled"):
        rest.purge_table("db.t")
    assert rest.load_table("db.t").scan().to_arrow().num_rows == 3


def test_a_dropped_table_is_registered_again(rest: RestCatalog) -> None:
    rest.create_namespace("db")
    table = rest.create_table("db.t", ROWS.schema)
    table.append(ROWS)
    rest.drop_table("db.t")
    rest.register_table("db.back", table.metadata_location)
    assert rest.load_table("db.back").scan().to_arrow().num_rows == 3
    with pytest.raises(TableAlreadyExistsError):
        rest.register_table("db.back", table.metadata_location)
    table = rest.load_table("db.back")
    table.append(ROWS)
    rest.register_table("db.back", table.metadata.metadata_log[-1].metadata_file, overwrite=True)
    assert rest.load_table("db.back").scan().to_arrow().num_rows == 3


def test_a_table_is_created_by_the_first_commit_of_a_transaction(rest: RestCatalog) -> None:
    rest.create_namespace("db")
    with rest.create_table_transaction("db.t", ROWS.schema) as transaction:
        transaction.append(ROWS)
        assert not rest.table_exists("db.t")
    assert rest.load_table("db.t").scan().to_arrow().num_rows == 3


def test_old_metadata_files_are_deleted_for_tables_that_ask_for_it(rest: RestCatalog, tmp_path: Path) -> None:
    rest.create_namespace("db")
    few = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "2"}
    for name, properties in (("few", few), ("all", {})):
        table = rest.create_table(f"db.{name}", ROWS.schema, properties=properties)
        for number in range(5):
            with table.transaction() as transaction:
                transaction.set_properties(number=str(number))
        files = list((tmp_path / "warehouse" / "db" / name / "metadata").glob("*.metadata.json"))
        assert len(files) == (3 if properties else 6)
        assert rest.load_table(f"db.{name}").properties["number"] == "4"


def test_the_second_of_two_writers_is_told_to_look_again(rest: RestCatalog) -> None:
    rest.create_namespace("db")
    one = rest.create_table("db.t", ROWS.schema)
    two = rest.load_table("db.t")
    with one.update_schema() as change:
        change.add_column("a", StringType())
    with pytest.raises(CommitFailedException), two.update_schema() as change:
        change.add_column("b", StringType())


@pytest.mark.parametrize("path", ["/namespaces/db/views/v", "/namespaces/nowhere", "/namespaces/db/tables/nothing"])
def test_what_is_not_there_is_not_found(writer: Writer, path: str) -> None:
    assert error_of(writer.http.get(path))[0] == 404
    assert writer.http.head(path).status_code == 404


def test_views_are_refused_in_words(writer: Writer) -> None:
    assert writer.http.get("/namespaces/db/views").json() == {"identifiers": []}
    status, kind, words = error_of(writer.http.post("/namespaces/db/views", json={"name": "v"}))
    assert (status, kind) == (406, "UnsupportedOperationException")
    assert "views" in words


def test_an_endpoint_that_is_not_served_says_so(writer: Writer) -> None:
    status, kind, words = error_of(writer.http.post("/namespaces/db/tables/events/plan", json={}))
    assert (status, kind) == (404, "UnsupportedOperationException")
    assert "/namespaces/db/tables/events/plan" in words


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"updates": [{"action": "dance"}]}', b'{"updates": 7}'])
def test_a_malformed_commit_is_the_clients_mistake(writer: Writer, body: bytes) -> None:
    assert error_of(writer.http.post("/namespaces/db/tables/events", content=body))[0] == 400


def test_metrics_are_taken(writer: Writer) -> None:
    assert writer.http.post("/namespaces/db/tables/events/metrics", json={"report-type": "scan"}).status_code == 204


def test_all_that_is_advertised_is_served(writer: Writer) -> None:
    for endpoint in writer.http.get("/config").json()["endpoints"]:
        method, path = endpoint.split(" ")
        served = path.removeprefix("/v1/{prefix}").format(namespace="absent", table="absent")
        answer = writer.http.request(method, served, content=b"{}" if method == "POST" else None)
        kind = answer.json()["error"]["type"] if answer.content and "error" in answer.json() else ""
        assert (answer.status_code, kind) not in ((404, "UnsupportedOperationException"), (405, kind)), endpoint
        assert answer.status_code < 500, (endpoint, answer.text)
