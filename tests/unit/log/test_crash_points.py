"""A process that dies at any point leaves a log that opens, with all that was acknowledged."""

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headwater.log.filesystem import CREATE, FileSystem
from headwater.log.log import Log

from .building import NOW_MS, all_records, append, batch, marker, open_log, topic_config

CONFIG = topic_config(segment_bytes=400, index_interval_bytes=100)


class Died(Exception):
    """The process is gone."""


class DyingFileSystem(FileSystem):
    """Lets so many changes through and then dies before the next, as kill -9 would."""

    def __init__(self, changes: int) -> None:
        self.changes_left = changes

    def _change(self, call: Callable[..., Any], *arguments: Any) -> Any:
        if self.changes_left <= 0:
            raise Died
        self.changes_left -= 1
        return call(*arguments)

    def open(self, path: str, flags: int = CREATE) -> int:
        if flags & os.O_CREAT and not os.path.exists(path):
            return int(self._change(super().open, path, flags))
        return super().open(path, flags)

    def pwrite(self, descriptor: int, content: Any, position: int) -> int:
        return int(self._change(os.pwrite, descriptor, content, position))

    def truncate(self, descriptor: int, size: int) -> None:
        self._change(os.ftruncate, descriptor, size)

    def rename(self, source: str, target: str) -> None:  # type: ignore[override]
        self._change(os.replace, source, target)

    def remove(self, path: str) -> None:
        self._change(super().remove, path)

    def make_dirs(self, path: str) -> None:
        self._change(super().make_dirs, path)


class Witness:
    """What must be there and what may be there, should the process die now."""

    def __init__(self) -> None:
        self.must: dict[int, bytes] = {}
        self.may: dict[int, bytes] = {}
        self.recovery_point = 0


def life(fs: FileSystem, path: str, witness: Witness) -> None:
    """Appends of several producers, rolls, a truncation, deleted records, a clean stop and a start."""
    log = Log.open(fs, path, config=CONFIG, now_ms=NOW_MS)
    for index in range(8):
        put(log, witness, index)
        if index == 3:
            log.flush()
            witness.recovery_point = log.recovery_point
    witness.must = {offset: value for offset, value in witness.must.items() if offset < 5}
    log.truncate_to(5, now_ms=NOW_MS)
    witness.may = dict(witness.must)
    for index in range(5, 9):
        put(log, witness, index)
    append(log, batch([b"txn"], producer=(50, 0, 0), transactional=True))
    append(log, marker(50, 0, commit=False))
    log.flush()
    witness.recovery_point = log.recovery_point
    witness.must = {offset: value for offset, value in witness.must.items() if offset >= 3}
    log.delete_records_before(3)
    log.remove_deleted_files()
    log.close()
    log = Log.open(fs, path, config=CONFIG, now_ms=NOW_MS, log_start_offset=3)
    put(log, witness, 9)
    log.close()


def put(log: Log, witness: Witness, index: int) -> None:
    value = b"%d-%d" % (index, log.log_end_offset) + bytes(90)
    witness.may[log.log_end_offset] = value
    info = append(log, batch([value], producer=(index, 0, 0)))
    witness.must[info.first_offset] = value


def test_death_at_every_change(tmp_path: Path) -> None:
    whole = DyingFileSystem(10**9)
    life(whole, str(tmp_path / "whole" / "events-0"), Witness())
    changes = 10**9 - whole.changes_left
    assert changes > 100
    for survived in range(changes):
        folder = tmp_path / str(survived)
        witness = Witness()
        try:
            life(DyingFileSystem(survived), str(folder / "events-0"), witness)
        except Died:
            pass
        else:
            raise AssertionError("it should have died")
        log = open_log(folder, CONFIG, clean=False, recovery_point=witness.recovery_point)
        found = dict(all_records(log))
        assert {offset: found.get(offset) for offset in witness.must} == witness.must
        assert all(witness.may.get(offset, value) == value for offset, value in found.items() if offset < 9)
        assert sorted(found) == list(range(log.log_start_offset, log.log_end_offset))
        assert append(log, batch([b"after"])).first_offset == log.log_end_offset - 1
        log.close()
        assert dict(all_records(open_log(folder, CONFIG, log_start_offset=log.log_start_offset)))


WRITER = """
import sys
from pathlib import Path
from unit.log.building import append, batch, open_log, topic_config
log = open_log(Path(sys.argv[1]), topic_config(segment_bytes=20_000), clean=False)
sequence = log.log_end_offset
while True:
    append(log, batch([b"%08d" % sequence + bytes(sequence % 300)], producer=(1, 0, sequence)))
    sequence += 1
    print(sequence, flush=True)
"""


def test_kill_9_under_load_loses_nothing_acknowledged(tmp_path: Path) -> None:
    chance = random.Random(5)
    tests = str(Path(__file__).parents[2])
    for _ in range(4):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": tests},
        )
        assert writer.stdout is not None
        acknowledged = 0
        for _ in range(chance.randint(200, 900)):
            acknowledged = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        acknowledged = max([acknowledged, *map(int, writer.stdout.read().split())])
        writer.stdout.close()
        writer.wait()
        log = open_log(tmp_path, topic_config(segment_bytes=20_000), clean=False)
        records = all_records(log)
        assert [int(value[:8]) for _, value in records if value] == list(range(len(records)))
        assert len(records) >= acknowledged
        log.abandon()


def test_flushes_in_a_thread_while_the_loop_appends_and_reads(tmp_path: Path) -> None:
    log = open_log(tmp_path, topic_config(segment_bytes=5000, index_interval_bytes=200))
    stop, errors = threading.Event(), []

    def flush_all_the_time() -> None:
        try:
            while not stop.is_set():
                log.flush()
                log.remove_deleted_files()
        except BaseException as error:
            errors.append(error)

    flusher = threading.Thread(target=flush_all_the_time)
    flusher.start()
    try:
        for index in range(5000):
            append(log, batch([b"%d" % index + bytes(50)]))
            if index % 200 == 199:
                log.delete_records_before(log.log_end_offset - 150)
            if index % 331 == 330:
                log.truncate_to(log.log_end_offset - 20, now_ms=NOW_MS)
            assert log.recovery_point <= log.log_end_offset
    finally:
        stop.set()
        flusher.join()
    assert not errors
    expected = all_records(log)
    point, start = log.recovery_point, log.log_start_offset
    log.abandon()
    assert all_records(open_log(tmp_path, clean=False, recovery_point=point, log_start_offset=start)) == expected
