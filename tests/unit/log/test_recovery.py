"""After a stop of any kind the log opens with every whole batch and nothing torn."""

import shutil
from pathlib import Path

import pytest

from headwater.log.log import Log
from headwater.protocol.records import encode_batch, patch_offsets, scan_headers

from .building import NOW_MS, all_records, append, batch, marker, open_log, topic_config

SMALL = topic_config(segment_bytes=1500, index_interval_bytes=200)


def filled(path: Path, count: int = 30) -> Log:
    log = open_log(path, SMALL)
    for index in range(count):
        append(
            log,
            batch([b"%04d" % index, bytes(50)], timestamp_ms=NOW_MS + 10 * index, producer=(7, 0, 2 * index)),
        )
    return log


def folder_files(path: Path, *suffixes: str) -> dict[str, bytes]:
    return {
        file.name: file.read_bytes()
        for file in sorted((path / "events-0").iterdir())
        if file.suffix in suffixes and file.stem.isdigit()
    }


def crash(log: Log) -> None:
    log.abandon()


def last_data_file(path: Path) -> Path:
    return max((path / "events-0").glob("*.log"))


def test_a_clean_stop_keeps_everything(tmp_path: Path) -> None:
    log = filled(tmp_path)
    before = all_records(log), log.active_producers(), log.leader_epochs.entries
    log.close()
    again = open_log(tmp_path, SMALL)
    assert (all_records(again), again.active_producers(), again.leader_epochs.entries) == before
    assert again.recovery_point == again.log_end_offset == 60


def test_rebuilt_indexes_are_the_very_bytes_of_the_written_ones(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.close()
    written = folder_files(tmp_path, ".index", ".timeindex", ".snapshot")
    assert all(content for name, content in written.items() if name.endswith(".index"))
    for name in written:
        (tmp_path / "events-0" / name).unlink()
    open_log(tmp_path, SMALL, clean=False).close()
    assert folder_files(tmp_path, ".index", ".timeindex", ".snapshot") == written


@pytest.mark.parametrize("garbage", [b"", b"\xff" * 100, bytes(4096)], ids=["nothing", "ones", "zeros"])
def test_a_batch_cut_at_any_byte_is_dropped_and_the_rest_is_kept(tmp_path: Path, garbage: bytes) -> None:
    log = filled(tmp_path / "original", count=3)
    append(log, batch([b"last", b"one"], producer=(7, 0, 6)))
    kept = all_records(log)[:-2]
    crash(log)
    name = last_data_file(tmp_path / "original").name
    content = last_data_file(tmp_path / "original").read_bytes()
    last_size = scan_headers(content, 0, len(content))[-1].size
    for cut in range(1, last_size + 1):
        torn = content[:-cut] + garbage
        if torn.startswith(content):
            continue
        shutil.copytree(tmp_path / "original", tmp_path / "crashed")
        (tmp_path / "crashed/events-0" / name).write_bytes(torn)
        again = open_log(tmp_path / "crashed", SMALL, clean=False)
        assert again.log_end_offset == 6
        assert all_records(again) == kept
        assert append(again, batch([b"new"], producer=(7, 0, 6))).first_offset == 6
        again.abandon()
        shutil.rmtree(tmp_path / "crashed")


def test_a_flipped_bit_ends_the_log_there_and_later_segments_go(tmp_path: Path) -> None:
    log = filled(tmp_path)
    victim = log.segments[1]
    expected = [record for record in all_records(log) if record[0] < victim.base_offset]
    crash(log)
    content = bytearray(Path(victim.path).read_bytes())
    content[70] ^= 1
    Path(victim.path).write_bytes(content)
    again = open_log(tmp_path, SMALL, clean=False)
    assert all_records(again) == expected
    assert again.log_end_offset == victim.base_offset
    assert len(folder_files(tmp_path, ".log")) == 2


def test_what_is_before_the_recovery_point_is_not_read_again(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.flush()
    point = log.segments[-1].base_offset
    victim = Path(log.segments[0].path)
    crash(log)
    content = bytearray(victim.read_bytes())
    content[70] ^= 1
    victim.write_bytes(content)
    again = open_log(tmp_path, SMALL, clean=False, recovery_point=point)
    assert again.log_end_offset == 60
    assert again.recovery_point == point


def test_a_torn_tail_is_cut_even_when_the_stop_seemed_clean(tmp_path: Path) -> None:
    filled(tmp_path).close()
    with last_data_file(tmp_path).open("ab") as file:
        file.write(b"half a batch")
    again = open_log(tmp_path, SMALL, clean=True)
    assert len(all_records(again)) == again.log_end_offset == 60


@pytest.mark.parametrize(
    "content",
    [None, b"", b"xyz", bytes(16), bytes(1 << 20)],
    ids=["gone", "empty", "odd", "zeros", "preallocated"],
)
def test_a_bad_index_is_rebuilt_when_it_is_needed(tmp_path: Path, content: bytes | None) -> None:
    log = filled(tmp_path)
    expected = all_records(log)
    log.close()
    good = folder_files(tmp_path, ".index", ".timeindex")
    for name in good:
        file = tmp_path / "events-0" / name
        file.unlink() if content is None else file.write_bytes(content)
    again = open_log(tmp_path, SMALL)
    assert all_records(again) == expected
    for index in range(30):
        found = again.offset_for_timestamp(NOW_MS + 10 * index, 60)
        assert found is not None
        assert found.offset == 2 * index
    again.close()
    assert folder_files(tmp_path, ".index", ".timeindex") == good


def test_a_damaged_snapshot_is_replaced_by_replay(tmp_path: Path) -> None:
    log = filled(tmp_path)
    producers = log.active_producers()
    log.close()
    for name, content in folder_files(tmp_path, ".snapshot").items():
        (tmp_path / "events-0" / name).write_bytes(content[:-1] + b"\x55")
    again = open_log(tmp_path, SMALL)
    assert again.active_producers() == producers
    assert append(again, batch([b"0029", bytes(50)], timestamp_ms=1, producer=(7, 0, 58))).duplicate


def test_a_snapshot_from_beyond_the_cut_is_not_believed(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.close()
    data = last_data_file(tmp_path)
    content = data.read_bytes()
    data.write_bytes(content[: -scan_headers(content, 0, len(content))[-1].size])
    again = open_log(tmp_path, SMALL, clean=False)
    assert [producer.last_sequence for producer in again.active_producers()] == [57]
    assert not append(again, batch([b"0029", bytes(50)], producer=(7, 0, 58))).duplicate


def test_the_last_five_batches_are_recognized_after_a_crash(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.roll(NOW_MS)
    for index in range(30, 36):
        append(log, batch([b"x", b"y"], producer=(7, 0, 2 * index)))
    crash(log)
    again = open_log(tmp_path, SMALL, clean=False)
    for index in range(31, 36):
        info = append(again, batch([b"x", b"y"], producer=(7, 0, 2 * index)))
        assert (info.duplicate, info.first_offset) == (True, 2 * index)


@pytest.mark.parametrize(
    "content", [b"", b"nonsense", b"0\n5\n1 1\n", b"\xff\xfe"], ids=["empty", "words", "short", "binary"]
)
def test_unreadable_leader_epochs_come_back_from_the_batches(tmp_path: Path, content: bytes) -> None:
    log = open_log(tmp_path)
    for epoch in (1, 1, 4):
        append(log, batch(), leader_epoch=epoch)
    log.close()
    (tmp_path / "events-0" / "leader-epoch-checkpoint").write_bytes(content)
    assert open_log(tmp_path).leader_epochs.entries == [(1, 0), (4, 2)]


def test_unreadable_leader_epochs_and_a_torn_tail_at_once(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(), leader_epoch=1)
    crash(log)
    (tmp_path / "events-0" / "leader-epoch-checkpoint").write_bytes(b"?")
    with last_data_file(tmp_path).open("ab") as file:
        file.write(bytes(30))
    assert open_log(tmp_path, clean=False).leader_epochs.entries == [(1, 0)]


def test_epochs_that_were_never_written_to_the_file_are_recovered(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(), leader_epoch=2)
    append(log, batch(), leader_epoch=3)
    crash(log)
    (tmp_path / "events-0" / "leader-epoch-checkpoint").unlink()
    assert open_log(tmp_path, clean=False).leader_epochs.entries == [(2, 0), (3, 1)]


def test_aborted_transactions_are_indexed_again(tmp_path: Path) -> None:
    log = open_log(tmp_path, SMALL)
    for index in range(10):
        append(log, batch([bytes(100)], producer=(3, 0, index), transactional=True))
        append(log, batch([bytes(100)]))
    append(log, marker(3, 0, commit=False))
    before = log.aborted_transactions(0, 100)
    assert len(log.segments) > 1
    crash(log)
    for file in (tmp_path / "events-0").glob("*.txnindex"):
        file.write_bytes(b"torn")
    again = open_log(tmp_path, SMALL, clean=False)
    assert again.aborted_transactions(0, 100) == before
    assert [txn.first_offset for txn in before] == [0]


def test_a_log_that_ends_before_its_start_begins_anew_there(tmp_path: Path) -> None:
    filled(tmp_path).close()
    again = open_log(tmp_path, SMALL, log_start_offset=100)
    assert (again.log_start_offset, again.log_end_offset) == (100, 100)
    assert append(again, batch()).first_offset == 100


def test_files_without_a_segment_go(tmp_path: Path) -> None:
    filled(tmp_path).close()
    orphan = tmp_path / "events-0" / f"{999:020d}.timeindex"
    orphan.write_bytes(bytes(12))
    open_log(tmp_path, SMALL)
    assert not orphan.exists()


def test_only_snapshots_of_segments_and_the_newest_other_are_kept(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.close()
    log = open_log(tmp_path, SMALL)
    append(log, batch([b"x"], producer=(7, 0, 60)))
    log.close()
    open_log(tmp_path, SMALL).close()
    bases = {segment.base_offset for segment in log.segments} - {0}
    assert {int(name[:20]) for name in folder_files(tmp_path, ".snapshot")} == bases | {61}


def test_swap_files_replace_the_segments_in_their_range(tmp_path: Path) -> None:
    log = filled(tmp_path)
    first, second, third = log.segments[:3]
    log.close()
    folder = tmp_path / "events-0"
    joined = Path(first.path).read_bytes() + Path(second.path).read_bytes()
    (folder / f"{0:020d}.log.swap").write_bytes(joined)
    (folder / f"{third.base_offset:020d}.log.cleaned").write_bytes(b"unfinished")
    (folder / f"{third.base_offset:020d}.log.swap").write_bytes(b"part of an unfinished split")
    (folder / f"{5:020d}.log.deleted").write_bytes(b"old")
    again = open_log(tmp_path, SMALL, clean=False)
    assert [segment.base_offset for segment in again.segments][:2] == [0, third.base_offset]
    assert len(all_records(again)) == 60
    assert not [name for name in folder.iterdir() if name.suffix in (".swap", ".cleaned", ".deleted")]


@pytest.mark.parametrize("harm", [b"", b"\0", b"\0\0\0"], ids=["no value", "one byte", "three bytes"])
def test_a_marker_that_cannot_be_read_ends_the_log_after_a_crash_and_no_transaction_else(
    tmp_path: Path, harm: bytes
) -> None:
    """Its checksum is right: so it was written, by whatever wrote it."""
    log = open_log(tmp_path)
    append(log, batch([b"undecided"], producer=(8, 0, 0), transactional=True))
    harmed = encode_batch(
        [(b"\0\0\0\1", harm, (), NOW_MS)], producer_id=8, producer_epoch=0, control=True, transactional=True
    )
    append(log, marker(8, 0, commit=True), batch([b"behind"]))
    log.close()
    sound = bytearray(marker(8, 0, commit=True))
    content = last_data_file(tmp_path).read_bytes()
    at = content.index(sound[21:])
    patch_offsets(harmed, 0, 1, 0)
    last_data_file(tmp_path).write_bytes(content[: at - 21] + harmed + content[at - 21 + len(sound) :])
    for leftover in [*(tmp_path / "events-0").glob("*.snapshot"), *(tmp_path / "events-0").glob("*index")]:
        leftover.unlink()
    after_a_stop = open_log(Path(shutil.copytree(tmp_path, tmp_path / "copy")))
    assert after_a_stop.last_stable_offset == 0
    assert after_a_stop.log_end_offset == 3
    after_a_crash = open_log(tmp_path, clean=False)
    assert after_a_crash.log_end_offset == 1
