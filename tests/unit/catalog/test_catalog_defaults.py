"""Default values of columns are kept on every way into the catalog, or refused; none is lost on the way."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from catalog_parts import Writer, error_of

V3 = {"format-version": "3"}


def column(field_id: int, name: str, type_: Any, default: Any = None, **more: Any) -> dict[str, Any]:
    defaults = {"initial-default": default, "write-default": default} if default is not None else {}
    return {"id": field_id, "name": name, "required": False, "type": type_, **defaults, **more}


def struct(*fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields), **more}


KINDS: dict[str, Any] = {
    "boolean": True,
    "int": 7,
    "long": 2**62,
    "float": 1.5,
    "double": 1e300,
    "decimal(5, 2)": "14.20",
    "date": "1969-12-31",
    "time": "10:11:12.000001",
    "timestamp": "2017-11-16T22:31:08.000001",
    "timestamptz": "2017-11-16T22:31:08.000001+00:00",
    "string": 'ünïcode "quoted"',
    "uuid": "f79c3e09-677c-4bbd-a479-3f349cb785e7",
    "fixed[2]": "abcd",
    "binary": "00ff",
}
"""A default of each type, as Iceberg writes it in JSON."""

ALL = struct(
    *(column(number, f"c{number}", kind, value) for number, (kind, value) in enumerate(KINDS.items(), 1)),
    column(50, "outer", struct(column(51, "inner", "long", 7), column(52, "plain", "long"))),
    column(
        60,
        "list",
        {
            "type": "list",
            "element-id": 61,
            "element-required": False,
            "element": struct(column(62, "in_list", "int", 8)),
        },
    ),
    column(
        70,
        "map",
        {
            "type": "map",
            "key-id": 71,
            "key": "string",
            "value-id": 72,
            "value-required": False,
            "value": struct(column(73, "in_map", "int", 9)),
        },
    ),
    column(80, "written", "long", **{"write-default": 5}),
    column(81, "documented", "long", 6, doc="with words"),
)


def defaults(schema: Any) -> dict[str, tuple[Any, Any]]:
    """The defaults of all fields that have one, by name."""
    found: dict[str, tuple[Any, Any]] = {}
    if isinstance(schema, dict):
        if "initial-default" in schema or "write-default" in schema:
            found[schema["name"]] = (schema.get("initial-default"), schema.get("write-default"))
        for inner in schema.values():
            found |= defaults(inner)
    elif isinstance(schema, list):
        for inner in schema:
            found |= defaults(inner)
    return found


EXPECTED = defaults(ALL)


def sent(writer: Writer, path: str, request: dict[str, Any]) -> dict[str, Any]:
    answer = writer.http.post(path, json=request)
    assert answer.status_code == 200, answer.text
    metadata: dict[str, Any] = answer.json()["metadata"]
    return metadata


def test_a_new_table_keeps_them(writer: Writer) -> None:
    request = {"name": "t", "schema": ALL, "properties": V3}
    metadata = sent(writer, "/namespaces/db/tables", request)
    assert defaults(metadata["schemas"]) == EXPECTED
    assert defaults(writer.metadata("t")["schemas"]) == EXPECTED
    # A commit writes the whole metadata again.
    commit = {"updates": [{"action": "set-properties", "updates": {"a": "b"}}]}
    assert defaults(sent(writer, "/namespaces/db/tables/t", commit)["schemas"]) == EXPECTED
    location = writer.http.get("/namespaces/db/tables/t").json()["metadata-location"]
    assert writer.http.delete("/namespaces/db/tables/t").status_code == 204
    again = sent(writer, "/namespaces/db/register", {"name": "again", "metadata-location": location})
    assert defaults(again["schemas"]) == EXPECTED


def test_ids_are_given_as_ever(writer: Writer) -> None:
    """As pyiceberg and Iceberg's Java library give them: all fields of a level, then those within each."""
    (schema,) = sent(writer, "/namespaces/db/tables", {"name": "t", "schema": ALL, "properties": V3})["schemas"]
    ids = {field["name"]: field["id"] for field in schema["fields"]}
    assert list(ids.values()) == list(range(1, len(ids) + 1))
    outer, in_list, in_map = (schema["fields"][ids[name] - 1]["type"] for name in ("outer", "list", "map"))
    first = len(ids) + 1
    assert [field["id"] for field in outer["fields"]] == [first, first + 1]
    assert (in_list["element-id"], in_list["element"]["fields"][0]["id"]) == (first + 2, first + 3)
    assert (in_map["key-id"], in_map["value-id"]) == (first + 4, first + 5)
    assert in_map["value"]["fields"][0]["id"] == first + 6


def test_a_staged_table_keeps_them(writer: Writer) -> None:
    request = {"name": "t", "schema": ALL, "properties": V3, "stage-create": True}
    staged = sent(writer, "/namespaces/db/tables", request)
    assert defaults(staged["schemas"]) == EXPECTED
    created = sent(
        writer,
        "/namespaces/db/tables/t",
        {
            "requirements": [{"type": "assert-create"}],
            "updates": [
                {"action": "assign-uuid", "uuid": staged["table-uuid"]},
                {"action": "upgrade-format-version", "format-version": 3},
                {"action": "add-schema", "schema": staged["schemas"][0]},
                {"action": "set-current-schema", "schema-id": -1},
                {"action": "add-spec", "spec": staged["partition-specs"][0]},
                {"action": "set-default-spec", "spec-id": -1},
                {"action": "add-sort-order", "sort-order": staged["sort-orders"][0]},
                {"action": "set-default-sort-order", "sort-order-id": -1},
                {"action": "set-location", "location": staged["location"]},
            ],
        },
    )
    assert defaults(created["schemas"]) == EXPECTED


def test_a_table_that_grows_keeps_them(writer: Writer) -> None:
    before = struct(column(1, "id", "long", 7), column(2, "s", struct(column(3, "x", "int", 8))))
    writer.ledger.evolve("db.t", before, properties=V3)
    after = struct(column(1, "id", "long"), column(2, "s", struct(column(9, "y", "int", 9))), column(4, "n", "int", 10))
    writer.ledger.evolve("db.t", after)
    schema = writer.metadata("t")["schemas"][-1]
    assert defaults(schema) == {"id": (7, 7), "x": (8, 8), "y": (9, 9), "n": (10, 10)}


def test_rows_that_were_written_before_have_the_default(writer: Writer, rest: RestCatalog) -> None:
    sent(writer, "/namespaces/db/tables", {"name": "t", "schema": struct(column(1, "id", "long"))})
    rest.load_table("db.t").append(pa.table({"id": pa.array([1, 2], pa.int64())}))
    schema = struct(column(1, "id", "long"), column(2, "more", "long", 7))
    updates = [
        {"action": "upgrade-format-version", "format-version": 3},
        {"action": "add-schema", "schema": schema},
        {"action": "set-current-schema", "schema-id": -1},
    ]
    sent(writer, "/namespaces/db/tables/t", {"updates": updates})
    assert rest.load_table("db.t").scan().to_arrow().column("more").to_pylist() == [7, 7]


@pytest.mark.parametrize(
    ("type_", "default"),
    [
        ("long", "7"),
        ("long", 7.5),
        ("long", True),
        ("int", 2**31),
        ("double", 7),
        ("double", "x"),
        ("boolean", 1),
        ("string", 7),
        ("string", ["a"]),
        ("decimal(5, 2)", "1.5"),
        ("decimal(5, 2)", "1234.56"),
        ("decimal(5, 2)", "NaN"),
        ("decimal(5, 2)", "x"),
        ("decimal(5, 2)", {}),
        ("date", "yesterday"),
        ("date", [1]),
        ("timestamp_ns", "2017-11-16T22:31:08.000000001"),
        ("uuid", "x"),
        ("binary", "zz"),
        ("fixed[2]", "ab"),
        (struct(column(5, "x", "long")), {"5": 7}),
        ({"type": "list", "element-id": 5, "element-required": False, "element": "long"}, [7]),
    ],
)
def test_a_default_of_another_type_is_refused(shared_writer: Writer, type_: Any, default: Any) -> None:
    request = {"name": "t", "schema": struct(column(1, "a", type_, default)), "properties": V3}
    update = {"action": "add-schema", "schema": struct(column(1, "a", type_, default))}
    for path, body in (("/namespaces/db/tables", request), ("/namespaces/db/tables/events", {"updates": [update]})):
        assert error_of(shared_writer.http.post(path, json=body))[:2] == (400, "BadRequestException")


@pytest.mark.parametrize("version", ["1", "2", None])
def test_before_version_3_they_are_refused(shared_writer: Writer, version: str | None) -> None:
    """In the reference server's words."""
    schema = struct(column(1, "id", "long"), column(2, "s", struct(column(3, "x", "long", 7))))
    properties = {"format-version": version} if version else {}
    words = "Invalid initial default for s.x: non-null default (7) is not supported until v3"
    for stage in (False, True):
        request = {"name": "t", "schema": schema, "properties": properties, "stage-create": stage}
        status, _, told = error_of(shared_writer.http.post("/namespaces/db/tables", json=request))
        assert (status, told) == (400, f"Invalid schema for v{version or 2}:\n- {words}")
    update = {"action": "add-schema", "schema": schema}
    assert words in error_of(shared_writer.send({"updates": [update]}))[2]
    assert not (Path(shared_writer.metadata()["location"].removeprefix("file://")).parent / "t").exists()
