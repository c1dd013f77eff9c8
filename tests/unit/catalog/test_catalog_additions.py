"""Schemas, specs and sort orders get their ids from the table, so no two writers make one that engines cannot read."""

import json
from typing import Any

import pyarrow as pa
import pytest

from catalog_parts import Writer, commit_of, error_of, snapshot

LONG = {"id": 1, "name": "id", "required": False, "type": "long"}


def schema(*fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"action": "add-schema", "schema": {"type": "struct", "fields": list(fields), **more}}


def column(field_id: int, name: str, type_: Any = "long", **more: Any) -> dict[str, Any]:
    return {"id": field_id, "name": name, "required": False, "type": type_, **more}


def part(name: str, transform: str = "identity", source: int = 1, /, **more: Any) -> dict[str, Any]:
    return {"name": name, "transform": transform, "source-id": source, **more}


def spec(*fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"action": "add-spec", "spec": {"fields": list(fields), **more}}


def order(direction: str, **more: Any) -> dict[str, Any]:
    by = {"transform": "identity", "source-id": 1, "direction": direction, "null-order": "nulls-first"}
    return {"action": "add-sort-order", "sort-order": {"fields": [by], **more}}


CURRENT = {"action": "set-current-schema", "schema-id": -1}
DEFAULT_SPEC = {"action": "set-default-spec", "spec-id": -1}
DEFAULT_ORDER = {"action": "set-default-sort-order", "sort-order-id": -1}


def done(writer: Writer, *updates: dict[str, Any]) -> dict[str, Any]:
    answer = writer.send({"requirements": [], "updates": list(updates)})
    assert answer.status_code == 200, answer.text
    metadata: dict[str, Any] = answer.json()["metadata"]
    for kind, key in (("schemas", "schema-id"), ("partition-specs", "spec-id"), ("sort-orders", "order-id")):
        ids = [each[key] for each in metadata[kind]]
        assert len(ids) == len(set(ids)), kind
    return metadata


def refused(writer: Writer, *updates: dict[str, Any]) -> str:
    status, kind, words = error_of(writer.send({"requirements": [], "updates": list(updates)}))
    assert (status, kind) == (400, "BadRequestException"), words
    return words


def test_two_overlapping_replacements_leave_two_schemas_of_their_own(writer: Writer) -> None:
    """Each writer proposes the id after the last that it saw."""
    for name in ("ours", "theirs"):
        metadata = done(
            writer,
            schema(LONG, column(3, name), **{"schema-id": 1}),
            CURRENT,
            spec(part("id", **{"field-id": 1000}), **{"spec-id": 1}),
            DEFAULT_SPEC,
            order("asc" if name == "ours" else "desc", **{"order-id": 1}),
            DEFAULT_ORDER,
        )
    assert [(each["schema-id"], each["fields"][-1]["name"]) for each in metadata["schemas"]] == [
        (0, "name"),
        (1, "ours"),
        (2, "theirs"),
    ]
    assert (metadata["current-schema-id"], metadata["default-spec-id"], metadata["default-sort-order-id"]) == (2, 1, 2)
    assert [each["spec-id"] for each in metadata["partition-specs"]] == [0, 1]
    assert [each["order-id"] for each in metadata["sort-orders"]] == [0, 1, 2]


def test_what_the_table_has_keeps_its_id(writer: Writer) -> None:
    before = done(writer, schema(LONG, column(3, "a")), spec(part("p", "bucket[4]")), order("asc"))
    same = done(
        writer,
        schema(LONG, column(3, "a"), **{"schema-id": 77}),
        spec(part("p", "bucket[4]"), **{"spec-id": 78}),
        order("asc", **{"order-id": 79}),
    )
    assert same == before
    metadata = done(writer, schema(LONG, column(3, "a")), CURRENT, order("asc"), DEFAULT_ORDER)
    assert (metadata["current-schema-id"], metadata["default-sort-order-id"]) == (1, 1)
    back = done(writer, {"action": "set-current-schema", "schema-id": 0}, spec(), DEFAULT_SPEC)
    assert (back["current-schema-id"], back["default-spec-id"]) == (0, 0)
    assert back["last-column-id"] == 3


def test_an_id_that_a_commit_proposed_means_what_it_added(writer: Writer) -> None:
    done(writer, schema(LONG, column(3, "theirs")), spec(part("p", "bucket[4]")), order("desc"))
    metadata = done(
        writer,
        schema(LONG, column(3, "ours"), **{"schema-id": 1}),
        {"action": "set-current-schema", "schema-id": 1},
        spec(part("q", "bucket[8]"), **{"spec-id": 1}),
        {"action": "set-default-spec", "spec-id": 1},
        order("asc", **{"order-id": 1}),
        {"action": "set-default-sort-order", "sort-order-id": 1},
    )
    assert (metadata["current-schema-id"], metadata["default-spec-id"], metadata["default-sort-order-id"]) == (2, 2, 2)


def test_partition_fields_without_ids_get_those_of_equal_ones(writer: Writer) -> None:
    done(writer, spec(part("four", "bucket[4]")), DEFAULT_SPEC)
    metadata = done(writer, spec(part("eight", "bucket[8]"), part("renamed", "bucket[4]")), DEFAULT_SPEC)
    assert [(each["name"], each["field-id"]) for each in metadata["partition-specs"][-1]["fields"]] == [
        ("eight", 1001),
        ("renamed", 1000),
    ]
    assert metadata["last-partition-id"] == 1001


@pytest.mark.parametrize(
    ("updates", "words"),
    [
        ([schema(LONG, column(1, "b"))], "multiple fields for id 1"),
        ([schema(LONG, column(3, "s", {"type": "struct", "fields": [column(1, "id")]}))], "multiple fields for id 1"),
        ([schema(LONG, column(3, "id"))], "multiple fields for name"),
        ([schema(column(-1, "a"))], "the id of 'a' is not between"),
        ([schema(column(2**31 - 1, "a"))], "the id of 'a' is not between"),
        ([schema(LONG, **{"identifier-field-ids": [1]})], "not a required field"),
        ([schema(LONG, **{"identifier-field-ids": [9]})], "Could not find field with id: 9"),
        ([schema(column(3, "a", "timestamp_ns"))], "is not supported until v3"),
        ([CURRENT], "no schema has been added"),
        ([DEFAULT_SPEC], "no spec has been added"),
        ([DEFAULT_ORDER], "no sort order has been added"),
        ([{"action": "set-current-schema", "schema-id": 9}], "unknown schema: 9"),
        ([{"action": "set-default-spec", "spec-id": 9}], "unknown spec: 9"),
        ([{"action": "set-default-sort-order", "sort-order-id": 9}], "unknown sort order: 9"),
        ([spec(part("p", "bucket[4]", 9))], "Cannot find source column"),
        ([spec(part("name", "bucket[4]", 1))], "identity partition sourced from different field in schema"),
        ([spec(part("p", "bucket[4]"), part("p", "bucket[8]"))], "more than once"),
        ([spec(part("", "bucket[4]"))], "empty partition name"),
        (
            [spec(part("p", "bucket[4]", **{"field-id": 1000})), spec(part("q", "bucket[8]", **{"field-id": 1000}))],
            "Conflicting",
        ),
        (
            [spec(part("p", "bucket[4]", **{"field-id": 1000}), part("q", "bucket[8]", **{"field-id": 1000}))],
            "field id 1000",
        ),
        ([spec(part("p", "bucket[4]", **{"field-id": 2**31}))], "field id 2147483648"),
        ([{"action": "assign-uuid", "uuid": "11111111-1111-1111-1111-111111111111"}], "Cannot assign UUID"),
        ([{"action": "upgrade-format-version", "format-version": 1}], "Cannot downgrade"),
        ([{"action": "set-properties", "updates": {"a": "b"}}, schema(column(10**19, "a"))], "64 bits"),
    ],
)
def test_what_no_engine_could_read_is_refused(shared_writer: Writer, updates: list[dict[str, Any]], words: str) -> None:
    before = shared_writer.metadata()
    assert words in refused(shared_writer, *updates)
    assert shared_writer.metadata() == before


def test_a_table_keeps_its_uuid(writer: Writer) -> None:
    before = writer.metadata()
    assert done(writer, {"action": "assign-uuid", "uuid": before["table-uuid"]}) == before


def test_a_table_of_version_1_has_its_schema_and_spec_in_both_places(writer: Writer) -> None:
    request = {"name": "old", "schema": {"type": "struct", "fields": [LONG]}, "properties": {"format-version": "1"}}
    assert writer.http.post("/namespaces/db/tables", json=request).status_code == 200
    updates = [schema(LONG, column(2, "more")), CURRENT, spec(part("p", "bucket[4]")), DEFAULT_SPEC]
    metadata = writer.send({"requirements": [], "updates": updates}, table="old").json()["metadata"]
    assert metadata["schema"] == metadata["schemas"][1]
    assert metadata["partition-spec"] == metadata["partition-specs"][1]["fields"]
    skipping = [spec(part("q", "bucket[8]", **{"field-id": 1005}))]
    words = error_of(writer.send({"requirements": [], "updates": skipping}, table="old"))[2]
    assert "sequential IDs that are required in v1" in words


def test_a_new_table_has_its_ids_checked_too(writer: Writer) -> None:
    for fields in ([LONG, column(1, "b")], [LONG, column(2, "id")]):
        for stage in (False, True):
            request = {"name": "new", "schema": {"type": "struct", "fields": fields}, "stage-create": stage}
            status, _, words = error_of(writer.http.post("/namespaces/db/tables", json=request))
            assert status == 400
            assert "multiple fields for" in words


def test_a_file_that_java_cannot_read_is_not_registered(writer: Writer, tmp_path: Any) -> None:
    metadata = writer.metadata()
    metadata["schemas"].append({**metadata["schemas"][0], "fields": []})
    folder = tmp_path / "warehouse" / "db" / "broken"
    folder.mkdir(parents=True)
    (folder / "v1.metadata.json").write_text(json.dumps(metadata))
    request = {"name": "broken", "metadata-location": f"file://{folder}/v1.metadata.json"}
    status, _, words = error_of(writer.http.post("/namespaces/db/register", json=request))
    assert status == 400
    assert "two schemas" in words


def test_growing_beside_others_takes_the_next_id(writer: Writer) -> None:
    done(writer, schema(LONG, column(3, "theirs")))
    state = writer.ledger.evolve("db.events", pa.schema([("more", pa.int64())]))
    assert state.schema_id == 2
    assert state.schema.names == ["id", "name", "more"]


def test_a_writer_to_another_branch_who_comes_second_tries_again(writer: Writer) -> None:
    first = writer.insert()
    numbers = {number: snapshot(number, first) for number in (71, 72)}
    numbers[72]["sequence-number"] = numbers[71]["sequence-number"]
    assert writer.send(commit_of(numbers[71], parent=first)).status_code == 200
    status, kind, words = error_of(writer.send(commit_of(numbers[72], branch="audit")))
    assert (status, kind) == (409, "CommitFailedException")
    assert "please retry" in words


def test_a_commit_adds_only_so_much_as_is_quickly_compared(writer: Writer) -> None:
    """2,000 schemas in one commit of 300 kB took 40 s, and 20,000 a hundred times as long."""
    assert "at most 100 schemas" in refused(writer, *(schema(column(1, f"c{number}")) for number in range(101)))
    wide = spec(*(part(f"p{number}", f"bucket[{number + 2}]") for number in range(1001)))
    assert "at most 1000 fields" in refused(writer, wide)
    request = {"name": "wide", "schema": schema(column(1, "id"))["schema"], "partition-spec": wide["spec"]}
    answer = writer.http.post("/namespaces/db/tables", json=request)
    assert error_of(answer)[:2] == (400, "BadRequestException")
