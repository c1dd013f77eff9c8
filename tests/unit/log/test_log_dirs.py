"""Log dirs: owned by one broker at a time, opened whole, and left so that the next start knows where it
was.
"""

import errno
import json
import subprocess
import sys
import time
from pathlib import Path
from uuid import UUID

import pytest

from headwater.log.checkpoints import (
    CheckpointError,
    read_offsets,
    uuid_from_text,
    uuid_to_text,
    write_offsets,
)
from headwater.log.filesystem import FileSystem
from headwater.log.folder_names import doomed_folder, is_doomed_folder, partition_of_folder
from headwater.log.log_dirs import LogDirError, LogDirLockedError, LogDirs
from headwater.log.recovery import TopicIdMismatchError
from headwater.types import TopicPartition

from .building import NOW_MS, all_records, append, batch, topic_config

CONFIG = topic_config(segment_bytes=2000)
TOPIC_ID = UUID("5d26eb71-0d47-4bd0-92f0-24d5e1103c1d")


def open_dirs(*paths: Path, load: bool = True, **options: object) -> LogDirs:
    dirs = LogDirs.open(FileSystem(), [str(path) for path in paths], node_id=1, **options)  # type: ignore[arg-type]
    if load:
        dirs.load(lambda topic: CONFIG, now_ms=NOW_MS)
    return dirs


def create(dirs: LogDirs, topic: str, partition: int = 0, records: int = 0) -> None:
    log = dirs.create(TopicPartition(topic, partition), topic_id=TOPIC_ID, config=CONFIG, now_ms=NOW_MS)
    for index in range(records):
        append(log, batch([b"%d" % index]))


def test_partitions_come_back_with_their_records_and_ids(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path / "a", tmp_path / "b")
    create(dirs, "orders", 0, records=50)
    create(dirs, "with-dashes.and_more", 12, records=3)
    dirs.close({TopicPartition("orders", 0): 40})
    again = open_dirs(tmp_path / "a", tmp_path / "b")
    assert set(again.logs) == {TopicPartition("orders", 0), TopicPartition("with-dashes.and_more", 12)}
    assert len(all_records(again.logs[TopicPartition("orders", 0)])) == 50
    assert again.logs[TopicPartition("orders", 0)].topic_id == TOPIC_ID
    assert again.high_watermarks() == {TopicPartition("orders", 0): 40}
    assert again.cluster_id == dirs.cluster_id
    again.abandon()


def test_new_partitions_go_to_the_dir_with_the_fewest(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path / "a", tmp_path / "b", tmp_path / "c")
    for partition in range(7):
        create(dirs, "orders", partition)
    assert [log_dir.partitions for log_dir in dirs.dirs] == [3, 2, 2]
    dirs.delete(TopicPartition("orders", 0))
    dirs.delete(TopicPartition("orders", 3))
    create(dirs, "more")
    assert dirs.dir_of(TopicPartition("more", 0)) is dirs.dirs[0]
    dirs.abandon()


def test_the_files_of_a_log_dir_are_apaches(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path / "a", cluster_id="4L6g3nShT-eMCtK--X86sw")
    create(dirs, "orders", 0, records=30)
    dirs.logs[TopicPartition("orders", 0)].delete_records_before(7)
    dirs.close({TopicPartition("orders", 0): 30})
    folder = tmp_path / "a"
    properties = dict(line.split("=") for line in (folder / "meta.properties").read_text().splitlines() if "=" in line)
    assert properties["version"] == "1"
    assert properties["node.id"] == "1"
    assert properties["cluster.id"] == "4L6g3nShT-eMCtK--X86sw"
    assert len(properties["directory.id"]) == 22
    assert (folder / "recovery-point-offset-checkpoint").read_text() == "0\n1\norders 0 30\n"
    assert (folder / "log-start-offset-checkpoint").read_text() == "0\n1\norders 0 7\n"
    assert (folder / "replication-offset-checkpoint").read_text() == "0\n1\norders 0 30\n"
    assert json.loads((folder / ".kafka_cleanshutdown").read_text()) == {"version": 0, "brokerEpoch": -1}
    assert (folder / "orders-0/partition.metadata").read_text() == "version: 0\ntopic_id: XSbrcQ1HS9CS8CTV4RA8HQ"
    assert (folder / "orders-0/leader-epoch-checkpoint").read_text() == "0\n1\n0 7\n"


def test_the_mark_of_a_clean_stop_counts_once(tmp_path: Path) -> None:
    open_dirs(tmp_path / "a").close()
    again = open_dirs(tmp_path / "a")
    assert again.dirs[0].was_clean
    again.abandon()
    third = open_dirs(tmp_path / "a")
    assert not third.dirs[0].was_clean
    third.abandon()


def test_a_dir_that_was_not_loaded_is_not_marked_clean(tmp_path: Path) -> None:
    open_dirs(tmp_path / "a", load=False).close()
    assert not (tmp_path / "a" / ".kafka_cleanshutdown").exists()


def test_all_partitions_recover_after_a_crash(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path / "a")
    for partition in range(20):
        create(dirs, "orders", partition, records=30)
    dirs.abandon()
    for data in (tmp_path / "a").glob("orders-*/*.log"):
        with data.open("ab") as file:
            file.write(b"torn")
    again = LogDirs.open(FileSystem(), [str(tmp_path / "a")], node_id=1)
    steps: list[tuple[int, int]] = []
    again.load(
        lambda topic: CONFIG,
        now_ms=NOW_MS,
        threads_per_dir=4,
        progress=lambda done, total: steps.append((done, total)),
    )
    first_segments = {log.segments[0].size for log in again.logs.values()}
    assert len(first_segments) == 1
    assert all(log.log_end_offset == log.segments[0].base_offset + len(all_records(log)) for log in again.logs.values())
    assert steps[-1] == (20, 20)
    again.close()


@pytest.mark.parametrize(
    "content", [b"", b"x", b"0\n3\norders 0 1\n", b"0\n1\norders zero 1\n", b"7\n0\n", b"\xff\xff"]
)
def test_unreadable_checkpoints_cost_no_data(tmp_path: Path, content: bytes) -> None:
    dirs = open_dirs(tmp_path / "a")
    create(dirs, "orders", 0, records=30)
    dirs.checkpoint({TopicPartition("orders", 0): 30})
    dirs.abandon()
    for name in (
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
    ):
        (tmp_path / "a" / name).write_bytes(content)
        with pytest.raises(CheckpointError):
            read_offsets(FileSystem(), str(tmp_path / "a" / name))
    again = open_dirs(tmp_path / "a")
    assert len(all_records(again.logs[TopicPartition("orders", 0)])) == 30
    assert again.high_watermarks() == {}
    again.abandon()


def test_two_brokers_cannot_have_one_dir(tmp_path: Path) -> None:
    first = open_dirs(tmp_path / "a")
    code = (
        "import sys\nfrom headwater.log.filesystem import FileSystem\nfrom headwater.log.log_dirs import *\n"
        "try:\n    LogDirs.open(FileSystem(), [sys.argv[1]], node_id=1)\n"
        "except LogDirLockedError as error:\n    sys.exit(str(error))\n"
    )
    other = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a")], capture_output=True, text=True, check=False
    )
    assert other.returncode == 1
    assert "in use by another broker" in other.stderr
    with pytest.raises(LogDirLockedError):
        open_dirs(tmp_path / "b", tmp_path / "a")
    first.abandon()
    open_dirs(tmp_path / "b", tmp_path / "a").abandon()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("version=1\ncluster.id=other\nnode.id=1\n", "of the cluster other, not mine"),
        ("version=1\ncluster.id=mine\nnode.id=2\n", "of the node 2, not 1"),
        ("version=0\ncluster.id=mine\nbroker.id=5\n", "of the node 5, not 1"),
        ("version=9\n", "version is 9"),
        ("", "not a number"),
    ],
)
def test_a_dir_of_someone_else_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "meta.properties").write_text(content)
    with pytest.raises(LogDirError, match=message):
        open_dirs(tmp_path, cluster_id="mine")
    (tmp_path / "meta.properties").unlink()
    open_dirs(tmp_path, cluster_id="mine").abandon()


def test_an_old_dir_is_taken_over_and_gets_an_id(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("#\n#Mon Nov 16\nversion=0\ncluster.id=mine\nbroker.id=1\n")
    dirs = open_dirs(tmp_path)
    assert (dirs.cluster_id, dirs.dirs[0].properties.version) == ("mine", 1)
    assert len(dirs.dirs[0].directory_id) == 22
    dirs.abandon()


def test_dirs_of_different_clusters_do_not_mix(tmp_path: Path) -> None:
    open_dirs(tmp_path / "a", cluster_id="one").abandon()
    open_dirs(tmp_path / "b", cluster_id="two").abandon()
    with pytest.raises(LogDirError, match="different clusters: one, two"):
        open_dirs(tmp_path / "a", tmp_path / "b")


def test_a_dir_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LogDirError, match=r"file/a cannot be used"):
        open_dirs(tmp_path / "file" / "a")


def test_other_folders_are_left_alone_and_deleted_ones_go(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path)
    create(dirs, "orders", 0, records=3)
    dirs.close()
    for name in ("__cluster_metadata-0", "lost+found", "notes", "orders-x", "orders-1.0123abc-delete", "-3"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    again = open_dirs(tmp_path)
    assert set(again.logs) == {TopicPartition("orders", 0)}
    again.delete(TopicPartition("orders", 0), remove_from_ms=1000)
    assert again.purge_deleted(now_ms=999) == 1
    assert again.purge_deleted(now_ms=1000) == 1
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {
        "__cluster_metadata-0",
        "lost+found",
        "notes",
        "orders-x",
        "-3",
    }
    again.abandon()


def test_a_partition_in_two_dirs_is_an_error_that_names_both(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path / "a", tmp_path / "b")
    create(dirs, "orders")
    dirs.close()
    (tmp_path / "b" / "orders-0").mkdir()
    with pytest.raises(LogDirError, match=r"orders-0 is in .*/a/orders-0 and in .*/b/orders-0"):
        open_dirs(tmp_path / "a", tmp_path / "b")


def test_a_folder_of_an_earlier_topic_of_that_name_is_not_used(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path)
    create(dirs, "orders")
    dirs.logs.clear()
    with pytest.raises(TopicIdMismatchError):
        dirs.create(TopicPartition("orders", 0), topic_id=UUID(int=7), config=CONFIG, now_ms=NOW_MS)
    dirs.abandon()


def test_thousands_of_partitions_open_quickly_and_hold_no_files(tmp_path: Path) -> None:
    count = 300
    dirs = open_dirs(tmp_path)
    for partition in range(count):
        create(dirs, "orders", partition, records=1)
    dirs.close(threads_per_dir=4)
    started = time.perf_counter()
    again = open_dirs(tmp_path)
    took_s = time.perf_counter() - started
    assert len(again.logs) == count
    assert len(again.files) == 0
    assert took_s / count < 3 / 1000
    again.abandon()


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        ("orders-0", TopicPartition("orders", 0)),
        ("a-b-12", TopicPartition("a-b", 12)),
        ("orders", None),
        ("-1", None),
        ("orders-", None),
        ("orders-1.ab12-delete", None),
        ("orders-١", None),
    ],
)
def test_folder_names(name: str, partition: TopicPartition | None) -> None:
    assert partition_of_folder(name) == partition


def test_doomed_names_fit_the_file_system() -> None:
    name = doomed_folder(TopicPartition("t" * 249, 1234))
    assert len(name) == 255
    assert is_doomed_folder(name)
    assert not is_doomed_folder("orders-delete")


def test_ids_are_written_as_kafka_writes_them() -> None:
    assert uuid_to_text(TOPIC_ID) == "XSbrcQ1HS9CS8CTV4RA8HQ"
    assert uuid_from_text("XSbrcQ1HS9CS8CTV4RA8HQ") == TOPIC_ID


def test_checkpoints_survive_topics_with_odd_names(tmp_path: Path) -> None:
    offsets = {TopicPartition("a.b-c_d", 3): 2**62, TopicPartition("x", 0): 0}
    write_offsets(FileSystem(), str(tmp_path / "file"), offsets)
    assert read_offsets(FileSystem(), str(tmp_path / "file")) == offsets
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_deleted_folder_that_cannot_go_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dirs = open_dirs(tmp_path)
    for partition in range(3):
        create(dirs, "orders", partition, records=1)
        dirs.delete(TopicPartition("orders", partition))

    def refuse(path: str) -> None:
        raise OSError(errno.EMFILE, "Too many open files", path)

    with monkeypatch.context() as patched:
        patched.setattr(dirs.fs, "remove_tree", refuse)
        dirs.purge_deleted(now_ms=1)
    assert dirs.purge_deleted(now_ms=2) == 3
    assert not list(tmp_path.glob("orders-*"))
    dirs.close()
