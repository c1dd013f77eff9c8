"""Files and folders that only their owner may read, whatever the umask of the process is.

The modes are given with the call that makes something: a umask belongs to a whole process, and so to programs that
have a broker or a lake inside. What is there already keeps the mode that it has.
"""

import contextlib
import os
from typing import Final

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700


def make_private_dirs(path: str | os.PathLike[str]) -> None:
    """Makes a folder and those above it that are missing; one that is there already is fine."""
    path = os.fspath(path)
    try:
        os.mkdir(path, FOLDER_MODE)
    except FileNotFoundError:
        above = os.path.dirname(path.rstrip("/"))
        if not above or os.path.isdir(above):
            # A place such as /proc, where the system has nothing else to say.
            raise
        make_private_dirs(above)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, FOLDER_MODE)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


def make_private_file(path: str | os.PathLike[str]) -> None:
    """Makes an empty file where there is none, for a library that would make it readable for everybody."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))


def opener(path: str, flags: int) -> int:
    """For `open(path, "w", opener=opener)`."""
    return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)


def others_may_look_into(path: str | os.PathLike[str]) -> bool:
    """Whether users beside owner and group may list, enter or change a folder."""
    return bool(os.stat(path).st_mode & 0o007)
