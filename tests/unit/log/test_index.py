"""Index files: Apache's bytes, found by binary search, written in bulk and cut cleanly."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.log.filesystem import FileSystem
from headwater.log.index import (
    CorruptIndexError,
    OffsetIndex,
    TimeIndex,
    read_last_offset_entry,
    read_last_time_entry,
)

# The first two entries of index files that Apache Kafka 4.1 wrote.
APACHE_INDEX = bytes.fromhex("0000001f0000144f 000000370000289e")
APACHE_TIME_INDEX = bytes.fromhex("000001a1e24ea16100000007 000001a1e24ea2090000003c")


def test_apaches_offset_index_reads_and_is_written_back_to_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "apache").write_bytes(APACHE_INDEX)
    index = OffsetIndex.load(FileSystem(), str(tmp_path / "apache"), 20_000, 4096)
    assert list(zip(index.offsets, index.positions, strict=True)) == [(31, 5199), (55, 10398)]
    assert read_last_offset_entry(FileSystem(), index.path) == (55, 10398)
    ours = OffsetIndex(FileSystem(), str(tmp_path / "ours"))
    ours.append(31, 5199)
    ours.write_pending()
    ours.append(55, 10398)
    ours.write_pending()
    assert (tmp_path / "ours").read_bytes() == APACHE_INDEX


def test_apaches_time_index_reads_and_is_written_back_to_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "apache").write_bytes(APACHE_TIME_INDEX)
    index = TimeIndex.load(FileSystem(), str(tmp_path / "apache"), 20_000)
    entries = list(zip(index.timestamps, index.offsets, strict=True))
    assert entries == [(1794798166369, 7), (1794798166537, 60)]
    assert read_last_time_entry(FileSystem(), index.path) == entries[-1]
    ours = TimeIndex(FileSystem(), str(tmp_path / "ours"))
    for timestamp_ms, offset in entries:
        ours.append_if_later(timestamp_ms, offset)
        ours.append_if_later(timestamp_ms - 1, offset + 1)
    ours.write_pending()
    assert (tmp_path / "ours").read_bytes() == APACHE_TIME_INDEX


@given(
    steps=st.lists(st.tuples(st.integers(1, 50), st.integers(61, 5000)), max_size=60),
    targets=st.lists(st.integers(0, 2500)),
)
def test_the_entry_before_an_offset_is_found(steps: list[tuple[int, int]], targets: list[int]) -> None:
    index = OffsetIndex(FileSystem(), "unused")
    offset = position = 0
    entries = []
    for more_offsets, more_bytes in steps:
        offset, position = offset + more_offsets, position + more_bytes
        index.append(offset, position)
        entries.append((offset, position))
    for target in targets:
        assert index.lookup(target) == max([p for o, p in entries if o <= target], default=0)
        beyond = [o for o, p in entries if p >= target]
        assert index.first_offset_beyond(target) == (beyond[0] if beyond else None)
    if targets:
        index.truncate_to(targets[0])
        assert list(zip(index.offsets, index.positions, strict=True)) == [e for e in entries if e[0] < targets[0]]


def test_a_cut_index_leaves_no_old_entries_in_its_file(tmp_path: Path) -> None:
    index = OffsetIndex(FileSystem(), str(tmp_path / "index"))
    for slot in range(10):
        index.append(10 * slot + 9, 1000 * slot)
    index.write_pending()
    index.truncate_to(55)
    index.append(60, 5000)
    index.write_pending()
    again = OffsetIndex.load(FileSystem(), index.path, 10_000, 4096)
    assert list(again.offsets) == [9, 19, 29, 39, 49, 60]


@pytest.mark.parametrize("content", [b"abc", bytes(16), bytes.fromhex("0000001f7fffffff"), b""])
def test_an_index_that_does_not_fit_its_segment_is_noticed(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "index").write_bytes(content)
    with pytest.raises(CorruptIndexError):
        OffsetIndex.load(FileSystem(), str(tmp_path / "index"), 20_000, 4096)
