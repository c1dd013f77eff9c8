"""A body with anything in the place of anything else is the client's mistake: a 4xx in words, never a 500."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog_parts import SOURCE, TABLE, Writer, commit_of, error_of, moving, snapshot
from headwater.catalog.additions import check_readable
from headwater.catalog.pyiceberg_gaps import parse_metadata
from headwater.catalog.server import EmbeddedCatalog

STRANGE: tuple[Any, ...] = (None, 2**63 - 1, True, "abc", [None], {"a": 1})

SCHEMA = {
    "type": "struct",
    "schema-id": 1,
    "identifier-field-ids": [1],
    "fields": [
        {"id": 1, "name": "id", "required": True, "type": "long", "initial-default": 7},
        {"id": 2, "name": "s", "required": False, "type": {"type": "list", "element-id": 3, "element": "int"}},
        {
            "id": 4,
            "name": "m",
            "required": False,
            "type": {"type": "map", "key-id": 5, "key": "string", "value-id": 6, "value": "decimal(5, 2)"},
        },
    ],
}
SPEC = {"spec-id": 1, "fields": [{"name": "p", "transform": "bucket[4]", "source-id": 1, "field-id": 1000}]}
ORDER = {
    "order-id": 1,
    "fields": [{"transform": "identity", "source-id": 1, "direction": "asc", "null-order": "nulls-first"}],
}
STATISTICS = {
    "snapshot-id": 5,
    "statistics-path": "file:///s",
    "file-size-in-bytes": 1,
    "file-footer-size-in-bytes": 1,
    "blob-metadata": [],
}
FIXED = {"id": 1, "name": "id", "required": False, "type": "fixed[4]"}
UPDATES = (
    {"action": "assign-uuid", "uuid": "11111111-1111-1111-1111-111111111111"},
    {"action": "upgrade-format-version", "format-version": 2},
    {"action": "add-schema", "schema": SCHEMA, "last-column-id": 6},
    {"action": "set-current-schema", "schema-id": -1},
    {"action": "add-spec", "spec": SPEC},
    {"action": "set-default-spec", "spec-id": -1},
    {"action": "add-sort-order", "sort-order": ORDER},
    {"action": "set-default-sort-order", "sort-order-id": -1},
    {"action": "add-snapshot", "snapshot": snapshot(5, None)},
    {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 5, "min-snapshots-to-keep": 1},
    {"action": "remove-snapshots", "snapshot-ids": [1]},
    {"action": "remove-snapshot-ref", "ref-name": "old"},
    {"action": "set-properties", "updates": {"owner": "ann"}},
    {"action": "remove-properties", "removals": ["owner"]},
    {"action": "set-statistics", "snapshot-id": 5, "statistics": STATISTICS},
    {"action": "remove-statistics", "snapshot-id": 5},
    {"action": "remove-schemas", "schema-ids": [9]},
    {"action": "remove-partition-specs", "spec-ids": [9]},
)
REQUIREMENTS = (
    {"type": "assert-table-uuid", "uuid": "11111111-1111-1111-1111-111111111111"},
    {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 5},
    {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 1},
    {"type": "assert-current-schema-id", "current-schema-id": 0},
    {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 999},
    {"type": "assert-default-spec-id", "default-spec-id": 0},
    {"type": "assert-default-sort-order-id", "default-sort-order-id": 0},
)
NAME = {"namespace": ["db"], "name": "events"}
CREATION = {
    "name": "new",
    "schema": SCHEMA,
    "partition-spec": SPEC,
    "write-order": ORDER,
    "properties": {"format-version": "3", "owner": "ann"},
    "stage-create": True,
}


def bodies() -> Iterator[tuple[str, Any]]:
    yield "/namespaces", {"namespace": ["db"], "properties": {"owner": "ann"}}
    yield "/namespaces/db/properties", {"removals": ["absent"], "updates": {"owner": "ann"}}
    yield "/namespaces/db/tables", CREATION
    yield "/namespaces/nowhere/register", {"name": "t", "metadata-location": "file:///nowhere", "overwrite": False}
    yield (
        "/tables/rename",
        {"source": {**NAME, "name": "absent"}, "destination": {"namespace": ["nowhere"], "name": "t"}},
    )
    guard = {"type": "assert-current-schema-id", "current-schema-id": 99}
    for requirement in REQUIREMENTS:
        yield "/namespaces/db/tables/events", {"requirements": [requirement, guard], "updates": []}
    for update in UPDATES:
        unknown = {"action": "set-current-schema", "schema-id": 99}
        yield "/namespaces/db/tables/events", {"requirements": [], "updates": [update, unknown]}
    yield "/transactions/commit", {"table-changes": [{"identifier": NAME, "requirements": [guard], "updates": []}]}


def spoilt(value: Any) -> Iterator[Any]:
    """The value with each of its parts replaced by anything, and with each left out."""
    for path in paths(value):
        for strange in STRANGE:
            yield changed(value, path, strange)
        if path:
            yield changed(value, path, paths)


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield from paths(part, (*path, key))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copied = copy.deepcopy(value)
    inside = copied
    for key in path[:-1]:
        inside = inside[key]
    if new is paths:
        del inside[path[-1]]
    else:
        inside[path[-1]] = new
    return copied


@pytest.mark.filterwarnings("ignore:.*snapshot summary")
def test_no_body_is_taken_for_a_mistake_of_ours(shared_writer: Writer) -> None:
    for path, body in bodies():
        for each in spoilt(body):
            answer = shared_writer.http.post(path, content=json.dumps(each).encode())
            assert answer.status_code < 500, (path, each, answer.text)
            if answer.status_code >= 400:
                status, _, words = error_of(answer)
                assert words, (path, each)
                assert "Traceback" not in words
                assert status in (400, 403, 404, 406, 409, 422), (path, each)
    # A commit that lost its guard may have gone through; then it left a table that engines can read.
    check_readable(parse_metadata(json.dumps(shared_writer.metadata()).encode()))


def test_numbers_and_nesting_that_java_cannot_read_are_refused(shared_writer: Writer) -> None:
    for body, words in (
        (b'{"namespace": ["a"], "properties": {"a": 1' + b"0" * 5000 + b"}}", "64 bits"),
        (b'{"namespace": ["a"], "properties": {"a": NaN}}', "NaN"),
        (b'{"namespace": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "nested too deeply"),
        (b'{"namespace": ["a"]', "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"7", "not a JSON object"),
        # In other encodings, the brackets and escapes that are looked for have other bytes.
        (
            (f'{{"x": "\u2200", "namespace": {"[" * 50_000}{"]" * 50_000}, "y": "\u2200"}}').encode("utf-16-le"),
            "not JSON",
        ),
        ('{"namespace": ["a"], "properties": {"a": "\\u0000"}}'.encode("utf-16-le"), "not JSON"),
        (b'{"namespace": ["a"], "properties": {"a": "\xed\xa0\x80"}}', "not JSON"),
    ):
        status, kind, told = error_of(shared_writer.http.post("/namespaces", content=body))
        assert (status, kind) == (400, "BadRequestException")
        assert words in told


def test_a_schema_that_is_nested_too_deeply_is_refused(shared_writer: Writer) -> None:
    schema = b'"long"'
    for number in range(600):
        field = b'{"id": %d, "name": "a", "required": false, "type": %s}' % (number, schema)
        schema = b'{"type": "struct", "fields": [%s]}' % field
    body = b'{"name": "deep", "schema": %s}' % schema
    answer = shared_writer.http.post("/namespaces/db/tables", content=body)
    assert error_of(answer)[:2] == (400, "BadRequestException")


@pytest.mark.parametrize(
    "position",
    [
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": "\\ud800"}',
        f'{{"a": {"9" * 30}}}',
        f'{{"a": {"[" * 50_000}{"]" * 50_000}}}',
    ],
    ids=["nan", "infinite", "half", "huge", "deep"],
)
def test_a_position_within_a_snapshot_is_read_as_strictly(writer: Writer, position: str) -> None:
    """It is JSON in a text in JSON, so the reader of the body does not see it."""
    load_id = writer.ledger.begin_load(table=TABLE, source=SOURCE)
    summary = moving(None, None, load_id) | {"headwater.offsets": f'{{"{SOURCE}": {position}}}'}
    status, kind, told = error_of(writer.send(commit_of(snapshot(1, None, summary))))
    assert (status, kind) == (400, "BadRequestException"), told
    assert told.startswith("headwater.offsets: ")
    assert writer.current() is None


@pytest.mark.parametrize(
    "update",
    [
        *(
            {"action": "add-snapshot", "snapshot": {**snapshot(1, None), field: "9" * 30}}
            for field in ("snapshot-id", "timestamp-ms", "sequence-number", "parent-snapshot-id")
        ),
        {"action": "set-statistics", "snapshot-id": 1, "statistics": {**STATISTICS, "file-size-in-bytes": "9" * 30}},
        {"action": "set-snapshot-ref", "ref-name": "b", "type": "branch", "snapshot-id": 1, "max-ref-age-ms": "9" * 30},
        {"action": "add-schema", "schema": {"type": "struct", "fields": [{**FIXED, "type": "fixed[99999999999]"}]}},
    ],
)
def test_numbers_in_texts_are_as_small(writer: Writer, update: dict[str, Any]) -> None:
    """pyiceberg makes numbers of texts, and no engine reads a table's metadata that has one beyond 64 bits."""
    first = {"action": "add-snapshot", "snapshot": snapshot(1, None)}
    before = writer.metadata()
    updates = [update] if update["action"] == "add-snapshot" else [first, update]
    assert error_of(writer.send({"requirements": [], "updates": updates}))[:2] == (400, "BadRequestException")
    assert writer.metadata() == before


def test_what_a_snapshot_says_of_its_rows_is_believed_if_it_can_be_kept(writer: Writer) -> None:
    for number, rows in enumerate(("9" * 30, "9" * 5_000, "\N{SUPERSCRIPT TWO}", "-1")):
        load_id = writer.ledger.begin_load(table=TABLE, source=SOURCE)
        summary = {"added-records": rows, "headwater.load": load_id}
        answer = writer.send(commit_of(snapshot(7 + number, None, summary), branch=f"b{number}"))
        assert answer.status_code == 200, answer.text
        assert writer.ledger.load(load_id).rows is None


def test_a_limit_that_no_database_takes_is_refused(writer: Writer) -> None:
    for limit in ("99999999999999999999", "-1"):
        answer = writer.http.get(f"{writer.ledger.uri}/headwater/v1/loads", params={"limit": limit})
        assert error_of(answer)[:2] == (400, "BadRequestException")


def test_a_commit_to_several_tables_that_is_refused_leaves_no_file(writer: Writer) -> None:
    other = {"name": "other", "schema": {"type": "struct", "fields": [FIXED]}}
    writer.http.post("/namespaces/db/tables", content=json.dumps(other).encode()).raise_for_status()
    folder = Path(writer.metadata()["location"].removeprefix("file://"), "metadata")
    before = sorted(folder.iterdir())
    good = {"identifier": NAME, "requirements": [], "updates": [{"action": "set-properties", "updates": {"a": "b"}}]}
    bad = {
        "identifier": {**NAME, "name": "other"},
        "requirements": [],
        "updates": [{"action": "set-location", "location": "/etc/x"}],
    }
    for changes, status in (([good, bad], 403), ([good, good], 400)):
        answer = writer.http.post("/transactions/commit", content=json.dumps({"table-changes": changes}).encode())
        assert error_of(answer)[0] == status, answer.text
        assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("named", ["catalog.db", "nowhere"])
def test_a_list_of_manifests_that_is_none_is_told_of(
    writer: Writer, embedded: EmbeddedCatalog, tmp_path: Path, named: str
) -> None:
    warehouse = tmp_path / "warehouse"
    (warehouse / "catalog.db").write_bytes(b"SQLite format 3\0" + bytes(range(256)) * 64)
    broken = {**snapshot(1, None), "manifest-list": f"{warehouse}/{named}"}
    writer.send(commit_of(broken)).raise_for_status()
    request = {"table": TABLE, "source": SOURCE, "position": None, "load_id": "r"}
    status, _, words = error_of(writer.http.post(f"{embedded.uri}/headwater/v1/rewind", json=request))
    assert status in (400, 404)
    assert str(warehouse / named) in words


def test_a_namespace_takes_and_loses_any_number_of_properties(writer: Writer) -> None:
    many = [f"k{number}" for number in range(300_000)]
    request = {"removals": many, "updates": dict.fromkeys(("a", "b"), "v")}
    answer = writer.http.post("/namespaces/db/properties", content=json.dumps(request).encode())
    assert (answer.status_code, answer.json()["updated"]) == (200, ["a", "b"])
