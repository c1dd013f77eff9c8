"""What pyiceberg lacks as a catalog's engine is got round, and what cannot be kept is refused in words."""

import json
import time
from typing import Any

import pytest
from pyiceberg.table.update import update_table_metadata

from catalog_parts import Writer, commit_of, error_of, snapshot
from headwater.catalog.any_metadata import AnyMetadata
from headwater.catalog.pyiceberg_gaps import (
    apply_updates,
    metadata_json,
    parse_commit_request,
    parse_metadata,
)

SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}]}


def updated(writer: Writer, *updates: dict[str, Any], table: str = "events") -> dict[str, Any]:
    answer = writer.send({"requirements": [], "updates": list(updates)}, table=table)
    assert answer.status_code == 200, answer.text
    metadata: dict[str, Any] = answer.json()["metadata"]
    return metadata


def create(writer: Writer, name: str, **request: Any) -> dict[str, Any]:
    answer = writer.http.post("/namespaces/db/tables", json={"name": name, "schema": SCHEMA, **request})
    assert answer.status_code == 200, answer.text
    metadata: dict[str, Any] = answer.json()["metadata"]
    return metadata


def rows(snapshot_id: int, parent: int | None, first_row_id: int, added_rows: int) -> dict[str, Any]:
    return {**snapshot(snapshot_id, parent), "first-row-id": first_row_id, "added-rows": added_rows}


def test_a_table_is_created_from_the_least_that_iceberg_asks_for(writer: Writer) -> None:
    metadata = create(writer, "bare")
    assert metadata["partition-specs"] == [{"spec-id": 0, "fields": []}]
    assert metadata["sort-orders"] == [{"order-id": 0, "fields": []}]
    assert metadata["location"].endswith("/db/bare")


def test_version_3_tables_count_their_rows(writer: Writer) -> None:
    metadata = create(writer, "three", properties={"format-version": "3"})
    assert (metadata["format-version"], metadata["next-row-id"]) == (3, 0)
    assert writer.send(commit_of(rows(1, None, 0, 5)), table="three").status_code == 200
    assert writer.send(commit_of(rows(2, 1, 5, 2), parent=1), table="three").status_code == 200
    assert writer.metadata("three")["next-row-id"] == 7


def test_a_table_is_upgraded_to_version_3(writer: Writer) -> None:
    assert writer.send(commit_of(snapshot(1, None))).status_code == 200
    metadata = updated(writer, {"action": "upgrade-format-version", "format-version": 3})
    assert (metadata["format-version"], metadata["next-row-id"]) == (3, 0)
    assert writer.send(commit_of(rows(2, 1, 0, 4), parent=1)).status_code == 200
    assert writer.metadata()["next-row-id"] == 4


def test_a_version_1_table_is_written_and_upgraded(writer: Writer) -> None:
    assert create(writer, "one", properties={"format-version": "1"})["format-version"] == 1
    assert writer.send(commit_of(snapshot(1, None)), table="one").status_code == 200
    assert "sequence-number" not in writer.metadata("one")["snapshots"][0]
    assert (
        updated(writer, {"action": "upgrade-format-version", "format-version": 2}, table="one")["format-version"] == 2
    )
    assert writer.send(commit_of(snapshot(2, 1), parent=1), table="one").status_code == 200


def test_the_removal_of_what_is_not_there_is_no_error(writer: Writer) -> None:
    writer.insert()
    before = writer.metadata()
    after = updated(
        writer,
        {"action": "remove-properties", "removals": ["absent"]},
        {"action": "remove-statistics", "snapshot-id": 99},
        {"action": "remove-partition-statistics", "snapshot-id": 99},
        {"action": "remove-snapshots", "snapshot-ids": [99]},
        {"action": "remove-snapshot-ref", "ref-name": "absent"},
    )
    assert after == before, "and no commit either"


def test_statistics_go_with_their_snapshot(writer: Writer) -> None:
    """Java asks for the removal of statistics, and of their snapshot before that, in one request."""
    old, new = writer.insert(), writer.insert()
    file = {"statistics-path": "file:///s.puffin", "file-size-in-bytes": 1, "file-footer-size-in-bytes": 1}
    for each in (old, new):
        statistics = {"snapshot-id": each, **file, "blob-metadata": []}
        partitions = {"snapshot-id": each, "statistics-path": "file:///p", "file-size-in-bytes": 1}
        updated(writer, {"action": "set-statistics", "statistics": statistics})
        updated(writer, {"action": "set-partition-statistics", "partition-statistics": partitions})
    metadata = updated(
        writer,
        {"action": "remove-snapshots", "snapshot-ids": [old]},
        {"action": "remove-statistics", "snapshot-id": old},
        {"action": "remove-partition-statistics", "snapshot-id": old},
    )
    assert [each["snapshot-id"] for each in metadata["statistics"]] == [new]
    assert [each["snapshot-id"] for each in metadata["partition-statistics"]] == [new]


def test_minus_one_is_what_was_added_last_and_not_the_highest(writer: Writer) -> None:
    wide = {**SCHEMA, "schema-id": 9}
    narrow = {"type": "struct", "schema-id": 5, "fields": [{"id": 1, "name": "x", "required": False, "type": "long"}]}
    metadata = updated(
        writer,
        {"action": "add-schema", "schema": wide},
        {"action": "add-schema", "schema": narrow},
        {"action": "add-schema", "schema": wide},
        {"action": "set-current-schema", "schema-id": -1},
    )
    assert [each["schema-id"] for each in metadata["schemas"]] == [0, 1, 2]
    assert metadata["current-schema-id"] == 1


def test_a_spec_or_an_order_that_is_there_is_not_listed_twice(writer: Writer) -> None:
    spec = {"spec-id": 1, "fields": [{"source-id": 1, "field-id": 1000, "transform": "identity", "name": "id"}]}
    sorted_by = {"transform": "identity", "source-id": 1, "direction": "asc", "null-order": "nulls-first"}
    order = {"order-id": 1, "fields": [sorted_by]}
    for _ in range(2):
        metadata = updated(
            writer,
            {"action": "add-spec", "spec": spec},
            {"action": "set-default-spec", "spec-id": -1},
            {"action": "add-sort-order", "sort-order": order},
            {"action": "set-default-sort-order", "sort-order-id": -1},
        )
        assert [each["spec-id"] for each in metadata["partition-specs"]] == [0, 1]
        assert [each["order-id"] for each in metadata["sort-orders"]] == [0, 1]
        assert (metadata["default-spec-id"], metadata["default-sort-order-id"]) == (1, 1)


@pytest.mark.parametrize(
    "column",
    [
        {"id": 1, "name": "payload", "required": False, "type": "variant"},
        {
            "id": 1,
            "name": "payload",
            "required": False,
            "type": {"type": "list", "element-id": 2, "element": "variant", "element-required": False},
        },
    ],
)
def test_a_variant_is_refused_in_words(writer: Writer, column: dict[str, Any]) -> None:
    schema = {"type": "struct", "schema-id": 1, "fields": [column]}
    answer = writer.http.post("/namespaces/db/tables", json={"name": "t", "schema": schema})
    assert error_of(answer)[0] == 400
    assert "variant" in error_of(answer)[2]
    answer = writer.send({"requirements": [], "updates": [{"action": "add-schema", "schema": schema}]})
    assert "variant" in error_of(answer)[2]


@pytest.mark.parametrize(
    "update",
    [
        {"action": "add-encryption-key", "encryption-key": {"key-id": "k", "encrypted-key-metadata": "bWV0YQ=="}},
        {"action": "add-snapshot", "snapshot": {**snapshot(1, None), "key-id": "k"}},
    ],
)
def test_encryption_is_refused_in_words(writer: Writer, update: dict[str, Any]) -> None:
    status, _, words = error_of(writer.send({"requirements": [], "updates": [update]}))
    assert status == 400
    assert "encryption" in words


def test_a_table_that_has_encryption_keys_is_not_opened(writer: Writer) -> None:
    text = json.dumps({**writer.metadata(), "encryption-keys": [{"key-id": "k"}]}).encode()
    with pytest.raises(ValueError, match="encryption"):
        parse_metadata(text)


def table_with(snapshots: int, writer: Writer) -> AnyMetadata:
    metadata = writer.metadata()
    ids = range(1, snapshots + 1)
    metadata["snapshots"] = [snapshot(each, each - 1 or None, {"headwater.offsets": '{"topic:a":{}}'}) for each in ids]
    metadata["current-snapshot-id"] = snapshots
    metadata["last-sequence-number"] = 10**9
    return parse_metadata(json.dumps(metadata).encode())


def spent_s(times: int, call: Any) -> float:
    began = time.process_time()
    for _ in range(times):
        call()
    return time.process_time() - began


def test_a_commit_to_a_table_of_many_snapshots_is_not_copied_deeply(writer: Writer) -> None:
    """pyiceberg's own way of applying updates is the measure; ours leaves the old snapshots alone."""
    table = table_with(1_000, writer)
    update = {"action": "set-properties", "updates": {"owner": "ann"}}
    updates = parse_commit_request({"updates": [update]}).updates
    ours = spent_s(5, lambda: apply_updates(table, updates, "file:///t/metadata/0.json"))
    theirs = spent_s(5, lambda: update_table_metadata(table, updates, metadata_location="file:///t/metadata/0.json"))
    assert ours * 3 < theirs, "measured at 1 to 100 and more"
    one = apply_updates(table, updates, "file:///t/metadata/0.json")
    assert json.loads(metadata_json(one))["properties"]["owner"] == "ann"
