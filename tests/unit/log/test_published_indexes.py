"""The index files of a segment that still grows tell what is in it, and nothing relies on them."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.log.filesystem import FileSystem
from headwater.log.index import OffsetIndex, TimeIndex
from headwater.log.log_dirs import LogDirs
from headwater.testing import FaultyFileSystem
from headwater.types import TopicPartition
from unit.log.building import NOW_MS, append, batch, open_log, topic_config

EVENTS = TopicPartition("events", 0)
CONFIG = topic_config(index_interval_bytes=200)


@pytest.fixture
def dirs(tmp_path: Path) -> Iterator[LogDirs]:
    found = LogDirs.open(FileSystem(), [str(tmp_path / "data")], node_id=1)
    found.load(lambda topic: CONFIG, now_ms=NOW_MS)
    yield found
    found.abandon()


def fill(dirs: LogDirs, batches: int, first: int = 0) -> None:
    log = dirs.logs.get(EVENTS) or dirs.create(EVENTS, topic_id=None, config=CONFIG, now_ms=NOW_MS)
    for number in range(first, first + batches):
        append(log, batch([b"%d" % number, bytes(100)], timestamp_ms=NOW_MS + 10 * number))


def index_files(dirs: LogDirs) -> tuple[Path, Path]:
    stem = dirs.logs[EVENTS].segments[-1].stem
    return Path(f"{stem}.index"), Path(f"{stem}.timeindex")


def test_entries_of_a_live_segment_reach_their_files(dirs: LogDirs) -> None:
    fill(dirs, 50)
    offset_file, time_file = index_files(dirs)
    assert (offset_file.stat().st_size, time_file.stat().st_size) == (0, 0)
    dirs.publish_indexes()
    first = offset_file.read_bytes(), time_file.read_bytes()
    assert min(map(len, first)) > 10 * 12
    fill(dirs, 50, first=50)
    dirs.publish_indexes()
    second = offset_file.read_bytes(), time_file.read_bytes()
    for before, after in zip(first, second, strict=True):
        assert after.startswith(before)
        assert len(after) > len(before)
    segment = dirs.logs[EVENTS].segments[-1]
    assert OffsetIndex.load(FileSystem(), str(offset_file), segment.size, 200).offsets == segment.offset_index.offsets
    assert TimeIndex.load(FileSystem(), str(time_file), segment.size).timestamps == segment.time_index.timestamps


def test_only_what_has_news_is_written(dirs: LogDirs) -> None:
    fill(dirs, 50)
    dirs.publish_indexes()
    offset_file, time_file = index_files(dirs)
    offset_file.write_bytes(b"")
    time_file.write_bytes(b"")
    dirs.publish_indexes()
    assert (offset_file.stat().st_size, time_file.stat().st_size) == (0, 0)


def test_a_deleted_partition_leaves_no_files_behind(dirs: LogDirs, tmp_path: Path) -> None:
    fill(dirs, 50)
    dirs.delete(EVENTS)
    dirs.publish_indexes()
    dirs.purge_deleted(NOW_MS)
    assert not [path for path in (tmp_path / "data").iterdir() if path.is_dir()]
    fill(dirs, 1)
    dirs.publish_indexes()
    assert index_files(dirs)[0].stat().st_size == 0


def test_a_cut_takes_published_entries_back(dirs: LogDirs) -> None:
    fill(dirs, 50)
    dirs.publish_indexes()
    offset_file, time_file = index_files(dirs)
    log = dirs.logs[EVENTS]
    log.truncate_to(30, now_ms=NOW_MS)
    dirs.publish_indexes()
    assert offset_file.stat().st_size == 8 * len(log.segments[-1].offset_index)
    fill(dirs, 40, first=100)
    dirs.publish_indexes()
    live = log.segments[-1]
    assert OffsetIndex.load(FileSystem(), str(offset_file), live.size, 200).offsets == live.offset_index.offsets
    assert TimeIndex.load(FileSystem(), str(time_file), live.size).offsets == live.time_index.offsets


@pytest.mark.parametrize("ends", ["kill", "lose_power"])
def test_whatever_was_published_an_unclean_start_rebuilds_the_indexes(ends: str) -> None:
    for seed in range(10):
        fs = FaultyFileSystem(seed=seed)
        dirs = LogDirs.open(fs, [f"{fs.folder}/data"], node_id=1)
        dirs.load(lambda topic: CONFIG, now_ms=NOW_MS)
        fill(dirs, 40)
        dirs.publish_indexes()
        dirs.logs[EVENTS].flush()
        fill(dirs, 30, first=40)
        dirs.publish_indexes()
        fill(dirs, 5, first=70)
        fs = getattr(fs, ends)()
        dirs = LogDirs.open(fs, [f"{fs.folder}/data"], node_id=1)
        dirs.load(lambda topic: CONFIG, now_ms=NOW_MS)
        log = dirs.logs[EVENTS]
        assert log.log_end_offset >= 80
        live = log.segments[-1]
        known = list(live.offset_index.offsets), list(live.time_index.timestamps)
        live.reset_indexes()
        for _, headers, position in live.chunks():
            live.index_batches(headers, position)
        live.finish_time_index()
        assert known == (list(live.offset_index.offsets), list(live.time_index.timestamps))
        dirs.abandon()


def test_publishing_while_a_log_grows_rolls_and_is_cut_harms_no_index(tmp_path: Path) -> None:
    log = open_log(tmp_path, topic_config(segment_bytes=4000, index_interval_bytes=100))
    over = threading.Event()

    def publish() -> None:
        while not over.is_set():
            for segment in list(log.segments):
                segment.publish_indexes()

    thread = threading.Thread(target=publish)
    thread.start()
    cuts = 0
    try:
        for number in range(600):
            append(log, batch([bytes(90)], timestamp_ms=NOW_MS + number))
            if number % 97 == 96:
                cuts += 1
                log.truncate_to(log.log_end_offset - 20, now_ms=NOW_MS)
    finally:
        over.set()
        thread.join()
    log.close()
    for segment in log.segments:
        batches = {each.position: each.header for each in segment.batches()}
        offsets = OffsetIndex.load(FileSystem(), f"{segment.stem}.index", segment.size, 100)
        times = TimeIndex.load(FileSystem(), f"{segment.stem}.timeindex", segment.size)
        for offset, position in zip(offsets.offsets, offsets.positions, strict=True):
            assert batches[position].last_offset == segment.base_offset + offset
        # All but the first batch has an entry, and but those where a cut began to count again.
        assert len(batches) - 1 - cuts <= len(offsets) == len(set(offsets.offsets))
        assert times.last()[0] == max(header.max_timestamp_ms for header in batches.values())
