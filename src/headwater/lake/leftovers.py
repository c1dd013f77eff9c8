"""What a job has in the temporary folder while it lives, and what killed jobs have left there.

Names have the number of the process that made them, and a lock on what they name says that it lives: numbers are given
again, and mean nothing to containers that share the folder. Only what has neither, is this user's own and was not
touched for a day is removed: what a Spark wrote before it died is what somebody may want to read.
"""

import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from headwater.private_files import FILE_MODE

_NAMES: Final = re.compile(r"headwater-(?:files-(\d+)-.+|spark-(\d+)(?:-.+)?\.log)")
_APPENDING: Final = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_KEPT_S: Final = 86_400.0


_other_log: dict[int, Path] = {}
"""By process: the name that its log got because somebody else's file has the usual one."""


def spark_log() -> Path:
    """Where this process's Spark writes what nobody asked for."""
    return _other_log.get(os.getpid()) or Path(tempfile.gettempdir()) / f"headwater-spark-{os.getpid()}.log"


def open_spark_log() -> int:
    """Opens that file to append to it, and makes it if need be.

    All users may write into the temporary folder, and the name can be foreseen: what stands there already is taken only
    when it is a plain file of this user under one name, else another name is.
    """
    path = spark_log()
    try:
        return os.open(path, _APPENDING | os.O_CREAT | os.O_EXCL, FILE_MODE)
    except FileExistsError:
        with suppress(OSError):
            descriptor = os.open(path, _APPENDING)
            about = os.fstat(descriptor)
            if stat.S_ISREG(about.st_mode) and about.st_uid == os.geteuid() and about.st_nlink == 1:
                os.fchmod(descriptor, FILE_MODE)
                return descriptor
            os.close(descriptor)
    descriptor, name = tempfile.mkstemp(prefix=f"headwater-spark-{os.getpid()}-", suffix=".log")
    _other_log[os.getpid()] = Path(name)
    return descriptor


def new_folder() -> tuple[Path, int]:
    """A folder for manifests, which only this user can read, and the descriptor that holds its lock."""
    folder = Path(tempfile.mkdtemp(prefix=f"headwater-files-{os.getpid()}-"))
    descriptor = os.open(folder, os.O_RDONLY)
    hold(descriptor)
    return folder, descriptor


def remove_folder(folder: Path, descriptor: int) -> None:
    """Ends what `new_folder` has begun."""
    shutil.rmtree(folder, ignore_errors=True)
    os.close(descriptor)


def hold(descriptor: int) -> None:
    """Locks what is open there: for as long as it is open, here or in any process that has inherited it."""
    # Where locks do not exist, on some network's file system, the process's number has to do.
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)


def remove_leftovers() -> None:
    """Removes what jobs of this user that are gone have left in the temporary folder."""
    for path in Path(tempfile.gettempdir()).glob("headwater-*"):
        # Another job may be at the same, or the owner is just done.
        with suppress(OSError), _left_behind(path) as is_left:
            if is_left and path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif is_left:
                path.unlink()


@contextmanager
def _left_behind(path: Path) -> Iterator[bool]:
    """Whether nobody has it any more; nobody takes it as long as this lasts."""
    named = _NAMES.fullmatch(path.name)
    about = path.lstat()
    is_ours = about.st_uid == os.geteuid() and (stat.S_ISDIR(about.st_mode) or stat.S_ISREG(about.st_mode))
    if named is None or not is_ours or about.st_mtime > time.time() - _KEPT_S or _lives(int(named[1] or named[2])):
        yield False
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    finally:
        os.close(descriptor)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        # It belongs to somebody else, or is no number of a process: no reason to remove anything.
        return True
    return True
