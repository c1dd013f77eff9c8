"""Why an offset, a file or a row is in a table, or is not: told from the ledger, the brokers and the folder."""

import os
from pathlib import Path

import pytest

from headwater import Admin, LocalBroker, Producer
from headwater.lake import Lake, LakeUsageError
from headwater.lake.operations.explanations import Explanation, Verdict
from headwater.types import TopicPartition
from loads_without_spark import load_files, load_offsets


def produce(broker: LocalBroker, topic: str, count: int) -> None:
    with Producer(broker.bootstrap) as producer:
        for _ in range(count):
            producer.send(topic, b"{}", partition=0)


def told(found: Explanation) -> str:
    return "\n".join(found.reasons)


def test_a_loaded_offset_names_its_load_its_snapshot_and_its_row(lake: Lake, broker: LocalBroker) -> None:
    load_offsets(lake, "e.loaded", "loaded", {0: 5}, bootstrap=broker.bootstrap)
    second = load_offsets(lake, "e.loaded", "loaded", {0: 9}, bootstrap=broker.bootstrap)
    found = lake.explain_offset("e.loaded", "loaded:0:7")
    assert found.verdict is Verdict.LOADED
    assert [load.load_id for load in found.loads] == [second]
    assert f"load {second}, committed" in told(found)
    assert f"snapshot {lake.catalog.load(second).snapshot_id}" in told(found)
    assert "its row is in the table" in told(found)


def test_a_loaded_offset_whose_row_is_gone_says_so(lake: Lake, broker: LocalBroker) -> None:
    load_offsets(lake, "e.replaced", "replaced", {0: 3}, rows=False, mode="upsert", bootstrap=broker.bootstrap)
    found = lake.explain_offset("e.replaced", "replaced:0:1")
    assert found.verdict is Verdict.LOADED
    assert "no row of it: a newer row with its key has replaced it" in told(found)


def test_an_offset_behind_the_position_is_not_yet_loaded(lake: Lake, broker: LocalBroker) -> None:
    produce(broker, "unread", 10)
    load_offsets(lake, "e.unread", "unread", {0: 4}, bootstrap=broker.bootstrap)
    found = lake.explain_offset("e.unread", "unread:0:6")
    assert found.verdict is Verdict.NOT_YET
    assert told(found) == "the position is offset 4 and the log has it: the next load brings it"


def test_a_failed_load_of_an_offset_is_told_with_its_reason(lake: Lake, broker: LocalBroker) -> None:
    produce(broker, "failed", 10)
    load_offsets(lake, "e.failed", "failed", {0: 4}, bootstrap=broker.bootstrap)
    before = lake.catalog.position("e.failed", "topic:failed")
    after = {"topics": {"failed": {"0": 10}}}
    load_id = lake.catalog.begin_load(
        table="e.failed",
        source="topic:failed",
        before=before,
        after=after,
        details={"bootstrap": broker.bootstrap, "from": before["topics"] if before else {}},
    )
    lake.catalog.fail_load(load_id, "the disk is full")
    found = lake.explain_offset("e.failed", "failed:0:6")
    assert found.verdict is Verdict.NOT_YET
    assert f"it was part of load {load_id}, which failed" in told(found)
    assert "the disk is full" in told(found)


def test_an_offset_that_is_not_written_yet_is_not_there(lake: Lake, broker: LocalBroker) -> None:
    produce(broker, "short", 5)
    load_offsets(lake, "e.short", "short", {0: 5}, bootstrap=broker.bootstrap)
    found = lake.explain_offset("e.short", "short:0:5")
    assert found.verdict is Verdict.ABSENT
    assert "the log ends before offset 5" in told(found)


def test_an_offset_before_the_first_loads_beginning_was_skipped(lake: Lake, broker: LocalBroker) -> None:
    load_offsets(lake, "e.late", "late", {0: 9}, starts={0: 6}, options={"starting": "latest"})
    found = lake.explain_offset("e.late", "late:0:2")
    assert found.verdict is Verdict.SKIPPED
    assert "began: starting = latest" in told(found)


def test_an_offset_that_the_log_had_lost_is_told_as_lost(lake: Lake, broker: LocalBroker) -> None:
    load_offsets(lake, "e.lost", "lost", {0: 3})
    passed = load_offsets(lake, "e.lost", "lost", {0: 9}, starts={0: 6})
    found = lake.explain_offset("e.lost", "lost:0:4")
    assert found.verdict is Verdict.LOST
    assert f"the log had lost it before load {passed}" in told(found)


def test_an_unread_offset_that_the_log_has_lost_since_is_lost(lake: Lake, broker: LocalBroker) -> None:
    produce(broker, "gone", 8)
    load_offsets(lake, "e.gone", "gone", {0: 2}, bootstrap=broker.bootstrap)
    with Admin(broker.bootstrap) as admin:
        admin.delete_records({TopicPartition("gone", 0): 6})
    found = lake.explain_offset("e.gone", "gone:0:3")
    assert found.verdict is Verdict.LOST
    assert "the log begins at offset 6" in told(found)


def test_a_rewound_offset_is_loaded_again_and_afterwards_was_loaded_twice(lake: Lake, broker: LocalBroker) -> None:
    load_offsets(lake, "e.back", "back", {0: 8}, bootstrap=broker.bootstrap)
    rewind = lake.rewind("e.back", "topic:back", '{"0": 5}')
    found = lake.explain_offset("e.back", "back:0:6")
    assert found.verdict is Verdict.AGAIN
    assert f"(rewind {rewind.load_id}); its row of then stays in the table" in told(found)
    assert "the position is offset 5" in told(found)
    assert lake.explain_offset("e.back", "back:0:3").verdict is Verdict.LOADED
    load_offsets(lake, "e.back", "back", {0: 8}, bootstrap=broker.bootstrap)
    again = lake.explain_offset("e.back", "back:0:6")
    assert again.verdict is Verdict.LOADED
    assert "loaded 2 times" in told(again)
    assert "more than one row" in told(again)


def test_brokers_that_are_away_are_told_beside_what_the_ledger_knows(lake: Lake) -> None:
    load_offsets(lake, "e.away", "away", {0: 2}, bootstrap="127.0.0.1:1")
    found = lake.explain_offset("e.away", "away:0:5")
    assert found.verdict is Verdict.NOT_YET
    assert "the position is offset 2" in told(found)
    assert "127.0.0.1:1 could not be asked" in told(found)


@pytest.mark.parametrize("text", ["orders", "orders:0", "orders:x:1", ":0:1", "orders:0:-1"])
def test_what_is_no_offset_is_told(lake: Lake, text: str) -> None:
    with pytest.raises(LakeUsageError, match="write TOPIC:PARTITION:OFFSET"):
        lake.explain_offset("e.loaded", text)


def test_a_topic_that_is_none_of_the_tables_is_told(lake: Lake, broker: LocalBroker) -> None:
    load_offsets(lake, "e.one", "one", {0: 1}, bootstrap=broker.bootstrap)
    with pytest.raises(LakeUsageError, match="its sources are topic:one"):
        lake.explain_offset("e.one", "other:0:1")


class Folder:
    """A folder that is loaded into a table of its own."""

    def __init__(self, lake: Lake, path: Path) -> None:
        self.lake = lake
        self.path = path
        self.table = f"f.{path.name.replace('-', '_')}"

    def write(self, name: str, text: str = "{}\n") -> Path:
        path = self.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    def load(self, *paths: Path, **options: object) -> str:
        files = {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in paths}
        return load_files(self.lake, self.table, str(self.path), files, options=options)

    def explain(self, path: Path) -> Explanation:
        return self.lake.explain_file(self.table, path)


@pytest.fixture
def folder(lake: Lake, tmp_path: Path) -> Folder:
    return Folder(lake, tmp_path)


def test_a_loaded_file_names_its_load_and_is_passed_over_while_it_stays_the_same(folder: Folder) -> None:
    path = folder.write("a.json")
    load_id = folder.load(path)
    found = folder.explain(path)
    assert found.verdict is Verdict.LOADED
    assert f"load {load_id}, committed" in told(found)
    assert "has not changed since" in told(found)
    path.unlink()
    assert "not there any more; its rows stay" in told(folder.explain(path))


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [("append", Verdict.AGAIN), ("replace", Verdict.AGAIN), ("ignore", Verdict.LOADED), ("fail", Verdict.AGAIN)],
)
def test_a_file_that_changed_goes_by_the_policy_of_its_loads(folder: Folder, changed: str, verdict: Verdict) -> None:
    path = folder.write("a.json")
    folder.load(path, changed=changed)
    path.write_text("{}\n{}\n")
    found = folder.explain(path)
    assert found.verdict is verdict
    assert f"(changed = {changed})" in told(found)


def test_files_that_loads_pass_over_are_told_with_the_rule(folder: Folder) -> None:
    folder.load(folder.write("a.json"), settle_s=3600.0)
    fresh = folder.write("fresh.json")
    old = folder.write("old.json")
    os.utime(old, (1_000_000, 1_000_000))
    expected = {
        fresh: (Verdict.NOT_YET, "left to settle for 3600 s"),
        old: (Verdict.NOT_YET, "the next load brings it"),
        folder.write(".secret.json"): (Verdict.SKIPPED, "'.secret.json' is a hidden name"),
        folder.write("_tmp/b.json"): (Verdict.SKIPPED, "'_tmp' is a hidden name"),
        folder.write("empty.json", ""): (Verdict.NOT_YET, "it is empty"),
        folder.path / "never.json": (Verdict.ABSENT, "there is no such file"),
    }
    for path, (verdict, words) in expected.items():
        found = folder.explain(path)
        assert found.verdict is verdict, path
        assert words in told(found)


def test_a_file_whose_name_tells_no_format_is_skipped(folder: Folder) -> None:
    folder.load(folder.write("a.json"))
    found = folder.explain(folder.write("README"))
    assert found.verdict is Verdict.SKIPPED
    assert "does not tell its format" in told(found)


def test_a_file_of_a_rewound_load_will_be_loaded_again(folder: Folder) -> None:
    first, second = folder.write("a.json"), folder.write("b.json")
    folder.load(first)
    later = folder.load(second)
    folder.lake.rewind(folder.table, f"files:file://{folder.path}", f"load:{later}")
    assert folder.explain(first).verdict is Verdict.LOADED
    found = folder.explain(second)
    assert found.verdict is Verdict.AGAIN
    assert f"it was part of load {later}" in told(found)
    assert "set back behind that load" in told(found)


def test_a_file_elsewhere_is_told_with_the_folders_that_are_loaded(folder: Folder) -> None:
    folder.load(folder.write("a.json"))
    with pytest.raises(LakeUsageError, match="lies in no folder that is loaded") as raised:
        folder.explain(Path("/elsewhere/a.json"))
    assert str(folder.path) in str(raised.value)


def test_rows_are_explained_by_the_offset_or_the_file_that_they_name(lake: Lake, folder: Folder) -> None:
    load_id = load_offsets(lake, "e.rows", "rows", {0: 5})
    (found,) = lake.explain_rows("e.rows", "id = 3")
    assert (found.subject, found.verdict) == ("offset 3 of rows-0", Verdict.LOADED)
    assert [load.load_id for load in found.loads] == [load_id]
    path = folder.write("a.json")
    folder.load(path)
    (found,) = lake.explain_rows(folder.table, "id = 0")
    assert found.subject == str(path)


@pytest.mark.parametrize("condition", ["colour = 'red'", "id ===", ""])
def test_what_is_no_condition_is_told(lake: Lake, broker: LocalBroker, condition: str) -> None:
    load_offsets(lake, "e.conditions", "conditions", {0: 1}, bootstrap=broker.bootstrap)
    with pytest.raises(LakeUsageError, match="is no condition on the rows of"):
        lake.explain_rows("e.conditions", condition)
