"""Transactions and compaction: aborted data goes at once, markers stay as long as anything needs them."""

from pathlib import Path

from headwater.log.log import Log

from .building import NOW_MS, append, marker, open_log
from .cleaning import DAY_MS, clean_once, compacted, keyed, offsets, stored_batches, survivors, to_clean


def markers(log: Log) -> list[int]:
    """The offsets of the markers that are left, emptied ones not counted."""
    return [header.base_offset for header, records in stored_batches(log) if header.is_control and records]


def write(log: Log, producer_id: int, sequence: int, *keys: bytes, epoch: int = 0) -> None:
    append(
        log,
        keyed(
            *((key, b"%d by %d" % (sequence, producer_id)) for key in keys),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        ),
    )


def clean_again(log: Log, now_ms: int) -> None:
    """Another cleaning, for which there has to be something new."""
    append(log, keyed((b"new at %d" % log.log_end_offset, b"v")))
    log.roll(NOW_MS)
    clean_once(log, now_ms=now_ms)


def test_aborted_records_go_and_supersede_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path, compacted())
    append(log, keyed((b"k", b"committed before")))
    write(log, 1, 0, b"k", b"j")
    append(log, marker(1, 0, commit=False))
    write(log, 1, 2, b"j")
    append(log, marker(1, 0, commit=True))
    log.roll(NOW_MS)
    clean_once(log)
    assert survivors(log) == [(0, b"k", b"committed before"), (4, b"j", b"2 by 1")]
    assert markers(log) == [3, 5]


def test_transactions_that_mix_are_told_apart(tmp_path: Path) -> None:
    log = open_log(tmp_path, compacted(segment_bytes=200))
    write(log, 1, 0, b"a")
    write(log, 2, 0, b"b")
    write(log, 1, 1, b"c")
    append(log, marker(2, 0, commit=False))
    write(log, 2, 1, b"d")
    append(log, marker(1, 0, commit=True))
    append(log, marker(2, 0, commit=True))
    log.roll(NOW_MS)
    assert len(log.segments) > 3
    clean_once(log)
    assert [key for _, key, _ in survivors(log)] == [b"a", b"c", b"d"]
    assert markers(log) == [3, 5, 6]


def test_an_open_transaction_ends_what_can_be_cleaned(tmp_path: Path) -> None:
    log = open_log(tmp_path, compacted(segment_bytes=200))
    for _ in range(5):
        append(log, keyed((b"k", b"v")))
    write(log, 1, 0, b"k")
    for _ in range(5):
        append(log, keyed((b"k", b"v")))
    assert to_clean(log).first_uncleanable_offset <= 5
    clean_once(log)
    assert set(range(5, 11)) <= set(offsets(log))


def test_readers_know_of_an_aborted_transaction_as_long_as_its_marker_is_there(tmp_path: Path) -> None:
    log = open_log(tmp_path, compacted())
    write(log, 1, 0, b"k")
    append(log, marker(1, 0, commit=False))
    append(log, keyed((b"k", b"v")))
    log.roll(NOW_MS)
    # As long as a producer is remembered, its last batch stays, even empty.
    log.remove_expired_producers(NOW_MS + 2 * DAY_MS)
    before = log.aborted_transactions(0, 3)
    clean_once(log)
    assert log.aborted_transactions(0, 3) == before
    clean_again(log, NOW_MS)
    assert log.aborted_transactions(0, 3) == []


def test_a_marker_goes_a_while_after_the_last_record_of_its_transaction(tmp_path: Path) -> None:
    log = open_log(tmp_path, compacted(delete_retention_ms=DAY_MS))
    write(log, 1, 0, b"k")
    append(log, marker(1, 0, commit=True))
    write(log, 2, 0, b"k")
    append(log, marker(2, 0, commit=False))
    append(log, keyed((b"k", b"v")))
    log.roll(NOW_MS)
    log.remove_expired_producers(NOW_MS + 2 * DAY_MS)
    clean_once(log)
    assert (offsets(log), markers(log)) == ([4], [1, 3]), "the records were there when it began"
    assert [header.delete_horizon_ms for header, _ in stored_batches(log) if header.is_control] == [None, None]
    clean_again(log, NOW_MS + DAY_MS)
    assert markers(log) == [1, 3]
    horizons = [header.delete_horizon_ms for header, _ in stored_batches(log) if header.is_control]
    assert horizons == [NOW_MS + 2 * DAY_MS] * 2
    clean_again(log, NOW_MS + 2 * DAY_MS - 1)
    assert markers(log) == [1, 3]
    clean_again(log, NOW_MS + 2 * DAY_MS)
    assert markers(log) == []


def test_a_marker_stays_while_a_committed_record_does(tmp_path: Path) -> None:
    log = open_log(tmp_path, compacted(delete_retention_ms=0))
    write(log, 1, 0, b"stays", b"goes")
    append(log, marker(1, 0, commit=True))
    append(log, keyed((b"goes", b"v")))
    log.roll(NOW_MS)
    log.remove_expired_producers(NOW_MS + 2 * DAY_MS)
    clean_once(log)
    for days in range(3):
        clean_again(log, NOW_MS + days * DAY_MS)
    assert offsets(log)[:2] == [0, 3]
    assert markers(log) == [2]


def test_the_last_data_of_a_transactional_producer_is_known_after_a_crash(tmp_path: Path) -> None:
    log = open_log(tmp_path, compacted(delete_retention_ms=0))
    write(log, 1, 0, b"k")
    append(log, marker(1, 0, commit=False))
    append(log, keyed((b"k", b"v")))
    log.roll(NOW_MS)
    for days in range(4):
        clean_again(log, NOW_MS + days * DAY_MS)
    header, records = stored_batches(log)[0]
    assert (header.producer_id, header.last_sequence, records) == (1, 0, [])
    log.abandon()
    for snapshot in Path(log.path).glob("*.snapshot"):
        snapshot.unlink()
    again = open_log(tmp_path, compacted(), clean=False)
    assert [(each.producer_id, each.last_sequence) for each in again.active_producers()] == [(1, 0)]


def test_the_epoch_that_fences_a_producer_stays_with_its_marker(tmp_path: Path) -> None:
    log = open_log(tmp_path, compacted(delete_retention_ms=DAY_MS))
    write(log, 1, 0, b"k")
    append(log, marker(1, 1, commit=False))
    append(log, keyed((b"k", b"v")))
    log.roll(NOW_MS)
    clean_once(log)
    clean_again(log, NOW_MS)
    log.abandon()
    for snapshot in Path(log.path).glob("*.snapshot"):
        snapshot.unlink()
    again = open_log(tmp_path, compacted(), clean=False)
    assert [(each.producer_id, each.producer_epoch) for each in again.active_producers()] == [(1, 1)]
