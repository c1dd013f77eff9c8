"""What killed jobs left in the temporary folder goes with a later one; what anybody may still want stays."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from headwater.lake import leftovers
from headwater.lake.leftovers import new_folder, open_spark_log, remove_folder, remove_leftovers, spark_log

TWO_DAYS_S = 2 * 86_400.0
JOB = """
import os, subprocess, sys, time
from headwater.lake.leftovers import hold, new_folder, spark_log
folder, _ = new_folder()
(folder / "1.json").write_text("{}")
log = os.open(spark_log(), os.O_WRONLY | os.O_CREAT)
hold(log)
if sys.argv[1:]:
    # As the JVM does: it outlives the job, and has nothing of it but this descriptor.
    subprocess.Popen(["sleep", "60"], stderr=log, stdout=subprocess.DEVNULL)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def job(*arguments: str) -> subprocess.Popen[str]:
    started = subprocess.Popen(
        [sys.executable, "-c", JOB, *arguments], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n"
    return started


def kill(started: subprocess.Popen[str]) -> None:
    started.kill()
    started.wait()
    assert started.stdout is not None
    started.stdout.close()


def age(folder: Path, seconds: float = TWO_DAYS_S) -> list[str]:
    for path in folder.iterdir():
        os.utime(path, (time.time() - seconds,) * 2, follow_symlinks=False)
    return names(folder)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_a_killed_job_left_goes_after_a_day(folder: Path) -> None:
    started = job()
    kill(started)
    age(folder, 3600)
    remove_leftovers()
    assert len(names(folder)) == 2
    age(folder)
    remove_leftovers()
    assert names(folder) == []


def test_what_a_living_job_has_stays_however_old(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = job()
    before = age(folder)
    remove_leftovers()
    # Its number may mean nothing here: it lives in another container.
    monkeypatch.setattr(leftovers, "_lives", lambda _process: False)
    remove_leftovers()
    assert names(folder) == before
    kill(started)


def test_a_log_stays_as_long_as_java_writes_to_it(folder: Path) -> None:
    started = job("with a child")
    kill(started)
    age(folder)
    remove_leftovers()
    assert names(folder) == [f"headwater-spark-{started.pid}.log"]
    os.killpg(started.pid, 9)


def test_a_number_that_another_process_has_now_keeps_it(folder: Path) -> None:
    (folder / f"headwater-files-{os.getppid()}-abc").mkdir()
    before = age(folder)
    remove_leftovers()
    assert names(folder) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_belongs_to_others_stays(folder: Path) -> None:
    gone = 2**22 + 1
    (folder / f"headwater-spark-{gone}.log").touch()
    os.chown(folder / f"headwater-spark-{gone}.log", 12345, 12345)
    before = age(folder)
    remove_leftovers()
    assert names(folder) == before


def test_names_that_only_look_alike_and_links_stay(folder: Path) -> None:
    gone = 2**22 + 1
    (folder / "headwater-demo-abc").mkdir()
    (folder / f"headwater-spark-{gone}.log.old").touch()
    (folder / "precious").mkdir()
    (folder / f"headwater-files-{gone}-link").symlink_to(folder / "precious")
    before = age(folder)
    remove_leftovers()
    assert names(folder) == before


def test_a_folder_goes_with_its_owner(folder: Path) -> None:
    made, descriptor = new_folder()
    (made / "1.json").touch()
    assert made.parent == folder == spark_log().parent
    remove_folder(made, descriptor)
    assert names(folder) == []


def test_the_log_of_spark_is_not_written_through_what_somebody_else_put_there(folder: Path) -> None:
    victim = folder / "victim"
    for put in (Path.symlink_to, Path.hardlink_to):
        victim.write_text("mine")
        leftovers._other_log.clear()
        planted = folder / f"headwater-spark-{os.getpid()}.log"
        put(planted, victim)
        descriptor = open_spark_log()
        os.write(descriptor, b"chatter")
        os.close(descriptor)
        assert victim.read_text() == "mine"
        assert spark_log() != planted
        assert spark_log().read_text() == "chatter"
        assert spark_log().stat().st_mode & 0o777 == 0o600
        assert spark_log().match("headwater-spark-*.log")
        planted.unlink()
        spark_log().unlink()
    os.mkfifo(folder / f"headwater-spark-{os.getpid()}.log")
    leftovers._other_log.clear()
    os.close(open_spark_log())
    assert spark_log().is_file()
    leftovers._other_log.clear()


def test_the_log_of_spark_goes_on_in_its_own_file(folder: Path) -> None:
    for chatter in (b"one", b"two"):
        descriptor = open_spark_log()
        os.write(descriptor, chatter)
        os.close(descriptor)
    assert spark_log() == folder / f"headwater-spark-{os.getpid()}.log"
    assert spark_log().read_bytes() == b"onetwo"
    assert spark_log().stat().st_mode & 0o777 == 0o600
    # The name that it gets where another file has the usual one is swept as well.
    other = folder / "headwater-spark-99999999-abc.log"
    other.touch()
    age(folder)
    remove_leftovers()
    assert not other.exists()
