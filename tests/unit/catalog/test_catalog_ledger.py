"""The ledger: what was loaded, by which load, from which files, and what it did to the schema."""

import time

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from catalog_parts import SOURCE, TABLE, Writer, commit_of, moving, offset, snapshot
from headwater.catalog.client import CatalogClient, CatalogError
from headwater.catalog.entries import COMMITTED, FAILED, PENDING, SchemaChange
from headwater.catalog.server import EmbeddedCatalog
from headwater.catalog.snapshot_properties import state_replaced

FOLDER = "files:file:///in"


def files(*entries: tuple[str, int, int]) -> pa.Table:
    paths, modified_ns, sizes = zip(*entries, strict=True) if entries else ((), (), ())
    return pa.table(
        {
            "path": pa.array(paths, pa.string()),
            "modified_ns": pa.array(modified_ns, pa.int64()),
            "size": pa.array(sizes, pa.int64()),
        }
    )


def load_files(writer: Writer, table: pa.Table) -> str:
    """A committed load of files, and its id."""
    before = writer.ledger.position(TABLE, FOLDER)
    load_id = writer.ledger.begin_load(table=TABLE, source=FOLDER, before=before)
    writer.ledger.add_files(load_id, table)
    parent = writer.current()
    new = snapshot(time.time_ns(), parent, moving(before, {"load": load_id}, load_id, FOLDER))
    answer = writer.send(commit_of(new, parent=parent))
    assert answer.status_code == 200, answer.text
    return load_id


def known(writer: Writer) -> dict[str, tuple[int, int, str]]:
    rows = writer.ledger.known_files(TABLE, FOLDER).to_pylist()
    return {row["path"]: (row["modified_ns"], row["size"], row["load_id"]) for row in rows}


def test_a_load_from_its_beginning_to_its_end(writer: Writer) -> None:
    load_id = writer.ledger.begin_load(
        table=TABLE, source=SOURCE, before=None, after=offset(10), details={"bootstrap": "localhost:9092"}
    )
    begun = writer.ledger.load(load_id)
    assert (begun.state, begun.mode, begun.after) == (PENDING, "append", offset(10))
    assert begun.details == {"bootstrap": "localhost:9092"}
    assert writer.send(commit_of(snapshot(1, None, moving(None, offset(10), load_id)))).status_code == 200
    done = writer.ledger.finish_load(load_id, rows=10, rescued=2, corrupt=1, bytes_read=999, seconds=1.5)
    assert (done.state, done.snapshot_id) == (COMMITTED, 1)
    assert (done.rows, done.rescued, done.corrupt, done.bytes_read, done.seconds) == (10, 2, 1, 999, 1.5)
    assert begun.begun_ms <= (done.committed_ms or 0) <= (done.finished_ms or 0)


def test_a_load_whose_job_died_after_the_commit_shows_its_rows(writer: Writer) -> None:
    load_id = writer.ledger.begin_load(table=TABLE, source=SOURCE)
    summary = {**moving(None, offset(10), load_id), "added-records": "7"}
    assert writer.send(commit_of(snapshot(1, None, summary))).status_code == 200
    assert writer.ledger.load(load_id).rows == 7
    assert writer.ledger.finish_load(load_id, seconds=1.0).rows == 7
    assert writer.ledger.finish_load(load_id, rows=10).rows == 10


def test_a_rewrite_ends_the_loads_under_way_and_is_in_the_history(writer: Writer) -> None:
    writer.load(None, offset(10))
    ledger, change = writer.ledger, {"kind": "rewrite", "path": "id", "old_type": "long", "new_type": "string"}
    under_way = ledger.begin_load(table=TABLE, source="topic:other")
    elsewhere = ledger.begin_load(table="db.elsewhere", source=SOURCE)
    rewrite = ledger.begin_load(table=TABLE, source=SOURCE, mode="rewrite", details={"changes": [change]})
    parent = writer.current()
    late, current = (
        {"headwater.load": rewrite, "headwater.replaces": state_replaced(schema_id=0, snapshot_id=replaced)}
        for replaced in (None, parent)
    )
    assert writer.send(commit_of(snapshot(1, None, late), parent=parent)).status_code == 400
    assert [ledger.load(load_id).state for load_id in (under_way, rewrite)] == [PENDING, PENDING]
    assert [each.kind for each in ledger.schema_history(TABLE)] == ["create"]

    assert writer.send(commit_of(snapshot(1, None, current), parent=parent)).status_code == 200
    states = [ledger.load(load_id).state for load_id in (under_way, rewrite, elsewhere)]
    assert states == [FAILED, COMMITTED, PENDING]
    assert "rewrote" in (ledger.load(under_way).reason or "")
    last = ledger.schema_history(TABLE)[-1]
    assert (last.kind, last.path, last.new_type, last.load_id) == ("rewrite", "id", "string", rewrite)


def test_a_failed_load_says_why(writer: Writer) -> None:
    load_id = writer.ledger.begin_load(table=TABLE, source=SOURCE)
    failed = writer.ledger.fail_load(load_id, "the disk is full")
    assert (failed.state, failed.reason) == (FAILED, "the disk is full")


def test_loads_are_listed_newest_first_by_table_and_source(ledger: CatalogClient) -> None:
    one = ledger.begin_load(table="db.a", source="topic:a")
    two = ledger.begin_load(table="db.a", source="topic:b")
    three = ledger.begin_load(table="db.b", source="topic:a")
    assert [load.load_id for load in ledger.loads()] == [three, two, one]
    assert [load.load_id for load in ledger.loads(table="db.a")] == [two, one]
    assert [load.load_id for load in ledger.loads(source="topic:a")] == [three, one]
    assert [load.load_id for load in ledger.loads(limit=1)] == [three]


def test_an_unknown_load_is_an_error_that_names_it(ledger: CatalogClient) -> None:
    for ask in (
        lambda: ledger.load("nothing"),
        lambda: ledger.finish_load("nothing", rows=1),
        lambda: ledger.fail_load("nothing", "why"),
        lambda: ledger.files_of("nothing"),
        lambda: ledger.add_files("nothing", files(("a", 1, 1))),
    ):
        with pytest.raises(CatalogError, match="nothing") as caught:
            ask()
        assert caught.value.status == 404


def test_files_count_from_the_commit_of_their_load(writer: Writer) -> None:
    load_id = writer.ledger.begin_load(table=TABLE, source=FOLDER)
    writer.ledger.add_files(load_id, files(("a.json", 1, 10), ("b.json", 2, 20)))
    writer.ledger.add_files(load_id, files(("c.json", 3, 30)))
    assert known(writer) == {}
    assert writer.ledger.files_of(load_id).num_rows == 3
    new = snapshot(1, None, moving(None, {"load": load_id}, load_id, FOLDER))
    assert writer.send(commit_of(new)).status_code == 200
    assert known(writer) == {"a.json": (1, 10, load_id), "b.json": (2, 20, load_id), "c.json": (3, 30, load_id)}


def test_files_of_a_failed_load_never_count(writer: Writer) -> None:
    load_id = writer.ledger.begin_load(table=TABLE, source=FOLDER)
    writer.ledger.add_files(load_id, files(("a.json", 1, 10)))
    writer.ledger.fail_load(load_id, "stopped")
    second = load_files(writer, files(("b.json", 2, 20)))
    assert known(writer) == {"b.json": (2, 20, second)}
    with pytest.raises(CatalogError, match="failed"):
        writer.ledger.add_files(load_id, files(("c.json", 1, 1)))


def test_the_newest_entry_of_a_file_counts(writer: Writer) -> None:
    first = load_files(writer, files(("a.json", 1, 10), ("b.json", 1, 10)))
    second = load_files(writer, files(("a.json", 5, 15)))
    assert known(writer) == {"a.json": (5, 15, second), "b.json": (1, 10, first)}
    entries = writer.ledger.find_file(TABLE, "a.json")
    assert [(entry.load.load_id, entry.modified_ns, entry.size) for entry in entries] == [
        (second, 5, 15),
        (first, 1, 10),
    ]


def test_a_call_may_be_repeated(writer: Writer) -> None:
    load_id = writer.ledger.begin_load(table=TABLE, source=FOLDER)
    for size in (10, 11):
        writer.ledger.add_files(load_id, files(("a.json", 1, size)))
    assert writer.ledger.files_of(load_id).column("size").to_pylist() == [11]


def test_a_rolled_back_load_takes_its_files_with_it(writer: Writer) -> None:
    first = load_files(writer, files(("a.json", 1, 10)))
    kept = writer.current()
    load_files(writer, files(("b.json", 2, 20)))
    back = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": kept}
    assert writer.send({"requirements": [], "updates": [back]}).status_code == 200
    assert known(writer) == {"a.json": (1, 10, first)}
    third = load_files(writer, files(("c.json", 3, 30)))
    assert known(writer) == {"a.json": (1, 10, first), "c.json": (3, 30, third)}


def test_a_table_made_again_under_its_name_has_no_files(writer: Writer) -> None:
    load_files(writer, files(("a.json", 1, 10)))
    assert writer.http.delete("/namespaces/db/tables/events").status_code == 204
    assert known(writer) == {}
    writer.ledger.evolve(TABLE, pa.schema([("id", pa.int64())]))
    assert known(writer) == {}
    assert writer.ledger.position(TABLE, FOLDER) is None


def test_a_renamed_table_keeps_position_files_and_history(writer: Writer) -> None:
    load_id = load_files(writer, files(("a.json", 1, 10)))
    names = {"source": {"namespace": ["db"], "name": "events"}, "destination": {"namespace": ["db"], "name": "moved"}}
    assert writer.http.post("/tables/rename", json=names).status_code == 204
    assert writer.ledger.position("db.moved", FOLDER) == {"load": load_id}
    assert writer.ledger.known_files("db.moved", FOLDER).num_rows == 1
    assert [load.load_id for load in writer.ledger.loads(table="db.moved")] == [load_id]
    assert [change.kind for change in writer.ledger.schema_history("db.moved")] == ["create"]
    assert writer.ledger.loads(table=TABLE) == []


def test_a_topic_is_rewound(ledger: CatalogClient, rest: RestCatalog, embedded: EmbeddedCatalog) -> None:
    rows = pa.table({"id": pa.array([1, 2], pa.int64())})
    ledger.evolve(TABLE, rows.schema)
    load_id = ledger.begin_load(table=TABLE, source=SOURCE)
    rest.load_table(TABLE).append(rows, snapshot_properties=moving(None, offset(10), load_id))
    rewound = ledger.rewind(TABLE, SOURCE, offset(4))
    assert (rewound.mode, rewound.state, rewound.before, rewound.after) == ("rewind", COMMITTED, offset(10), offset(4))
    assert ledger.position(TABLE, SOURCE) == offset(4)
    assert rest.load_table(TABLE).scan().to_arrow() == rows, "a rewind removes no row"
    ledger.rewind(TABLE, SOURCE, None)
    assert ledger.position(TABLE, SOURCE) is None


def test_a_table_without_data_can_begin_anywhere(ledger: CatalogClient, rest: RestCatalog) -> None:
    ledger.evolve(TABLE, pa.schema([("id", pa.int64())]))
    ledger.rewind(TABLE, SOURCE, offset(1_000))
    assert ledger.position(TABLE, SOURCE) == offset(1_000)
    assert rest.load_table(TABLE).scan().to_arrow().num_rows == 0


def test_a_rewind_of_no_table_is_not_found(ledger: CatalogClient) -> None:
    with pytest.raises(CatalogError, match="does not exist") as caught:
        ledger.rewind(TABLE, SOURCE, offset(1))
    assert caught.value.status == 404


def test_files_newer_than_a_rewind_are_new_again(ledger: CatalogClient, rest: RestCatalog) -> None:
    rows = pa.table({"id": pa.array([1, 2], pa.int64())})
    ledger.evolve(TABLE, rows.schema)
    loads = []
    for number in range(3):
        before = ledger.position(TABLE, FOLDER)
        load_id = ledger.begin_load(table=TABLE, source=FOLDER, before=before)
        ledger.add_files(load_id, files((f"{number}.json", 1, 1)))
        summary = moving(before, {"load": load_id}, load_id, FOLDER)
        rest.load_table(TABLE).append(rows, snapshot_properties=summary)
        loads.append(load_id)
    assert ledger.known_files(TABLE, FOLDER).column("path").to_pylist() == ["0.json", "1.json", "2.json"]
    with pytest.raises(CatalogError, match="no committed load"):
        ledger.rewind(TABLE, FOLDER, {"load": "nothing"})
    ledger.rewind(TABLE, FOLDER, {"load": loads[0]})
    assert ledger.known_files(TABLE, FOLDER).column("path").to_pylist() == ["0.json"]
    ledger.rewind(TABLE, FOLDER, None)
    assert ledger.known_files(TABLE, FOLDER).num_rows == 0


def test_the_history_of_a_schema_names_the_load_that_made_it(ledger: CatalogClient) -> None:
    first = ledger.begin_load(table=TABLE, source=SOURCE)
    ledger.evolve(TABLE, pa.schema([("id", pa.int32())]), source=SOURCE, position=offset(1), load_id=first)
    second = ledger.begin_load(table=TABLE, source=SOURCE)
    widened = SchemaChange(kind="widen", path="id", old_type="int", new_type="long")
    conflict = SchemaChange(kind="conflict", path="name", old_type="string", new_type="long")
    for _ in range(2):  # the answer was lost, the call comes again
        ledger.evolve(
            TABLE,
            pa.schema([("id", pa.int64())]),
            changes=[widened, conflict],
            source=SOURCE,
            position=offset(5),
            load_id=second,
        )
    history = ledger.schema_history(TABLE)
    assert [(change.kind, change.path, change.load_id) for change in history] == [
        ("create", "", first),
        ("widen", "id", second),
        ("conflict", "name", second),
    ]
    assert history[1].position == offset(5)
    assert (history[1].old_type, history[1].new_type, history[1].source) == ("int", "long", SOURCE)


def test_a_hundred_thousand_known_files_are_told_at_once(writer: Writer) -> None:
    """What it costs is measured in processor time, and against as many rows of Arrow that nobody stored."""
    count = 100_000
    many = files(*((f"file:///in/day={number % 365}/part-{number:08d}.json", number, 7) for number in range(count)))
    load_files(writer, many)
    load_files(writer, files(("another.json", 1, 1)))
    began = time.process_time()
    found = writer.ledger.known_files(TABLE, FOLDER)
    spent_s = time.process_time() - began
    assert found.num_rows == count + 1
    assert spent_s < 3, "measured at 0.4 s"


def test_an_absent_catalog_is_named(embedded: EmbeddedCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.catalog.client._PAUSES_S", (0.01,))
    with CatalogClient("http://127.0.0.1:1") as client, pytest.raises(CatalogError, match=r"127\.0\.0\.1:1.*running"):
        client.loads()
