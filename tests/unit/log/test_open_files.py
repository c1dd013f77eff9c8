"""Open files are bounded, and none is closed while someone reads from it."""

import os
from pathlib import Path

from headwater.log.filesystem import FileSystem
from headwater.log.log import Log
from headwater.log.open_files import OpenFiles
from headwater.log.segment import Segment
from open_descriptors import open_below

from .building import NOW_MS, all_records, append, batch, topic_config

CONFIG = topic_config(segment_bytes=600)


def open_many(path: Path, files: OpenFiles, count: int) -> list[Log]:
    return [
        Log.open(files.fs, str(path / f"events-{index}"), config=CONFIG, now_ms=NOW_MS, files=files)
        for index in range(count)
    ]


def test_no_more_files_stay_open_than_allowed(tmp_path: Path) -> None:
    files = OpenFiles(FileSystem(), limit=5)
    logs = open_many(tmp_path, files, 30)
    for round_ in range(10):
        for log in logs:
            append(log, batch([b"%d" % round_, bytes(50)]))
            assert open_below(tmp_path) <= 5
    for log in logs:
        assert [offset for offset, _ in all_records(log)] == list(range(20))
        assert open_below(tmp_path) <= 5
    for log in logs:
        log.close()
    assert open_below(tmp_path) == 0
    assert len(files) == 0


def test_a_slice_holds_its_file_although_others_push_it_out(tmp_path: Path) -> None:
    files = OpenFiles(FileSystem(), limit=2)
    logs = open_many(tmp_path, files, 10)
    for log in logs:
        append(log, batch([log.path.encode()]))
    pieces = [log.read(0, 1000, up_to_offset=1) for log in logs]
    assert len(files) <= 2
    for log, piece in zip(logs, pieces, strict=True):
        content = os.pread(piece.file.fileno(), piece.size, piece.position)
        assert log.path.encode() in content


def test_a_file_that_is_cut_or_synced_is_not_let_go_of_meanwhile(tmp_path: Path) -> None:
    """Another thread may have the segment let go, and open a file that gets the number, right before the call."""
    bystander = tmp_path / "bystander"
    bystander.write_bytes(b"untouched")
    segments: list[Segment] = []
    worked_on: list[str] = []

    class Interrupted(FileSystem):
        def interrupt(self, descriptor: int) -> None:
            if not segments:
                return
            segments[0].release_file()
            other = os.open(bystander, os.O_RDWR)
            worked_on.append(os.path.realpath(f"/proc/self/fd/{descriptor}"))
            os.close(other)

        def sync(self, descriptor: int) -> None:
            self.interrupt(descriptor)

        def truncate(self, descriptor: int, size: int) -> None:
            self.interrupt(descriptor)
            os.ftruncate(descriptor, size)

    (log,) = open_many(tmp_path, OpenFiles(Interrupted()), 1)
    append(log, batch([b"one"]))
    append(log, batch([b"two"]))
    segments += log.segments
    segments[0].flush()
    segments[0].truncate_to(1, NOW_MS)
    segments[0].cut_to(0)
    assert worked_on == [segments[0].path] * 4
    assert bystander.read_bytes() == b"untouched"


def test_files_in_use_stay_and_idle_ones_go(tmp_path: Path) -> None:
    files = OpenFiles(FileSystem(), limit=4)
    logs = open_many(tmp_path, files, 20)
    busy = logs[0]
    append(busy, batch())
    opened = busy.segments[0].file
    for log in logs[1:]:
        append(log, batch())
        append(busy, batch([b"x"]))
        if len(busy.segments) == 1:
            assert busy.segments[0].file is opened


def test_an_idle_partition_opens_nothing(tmp_path: Path) -> None:
    files = OpenFiles(FileSystem())
    (log,) = open_many(tmp_path, files, 1)
    assert log.read(0, 100, up_to_offset=0).size == 0
    assert len(files) == 0
