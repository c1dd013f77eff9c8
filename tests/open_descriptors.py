"""Which files this process has open. All of them would not do: clients of earlier tests open and close theirs."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


def open_below(folder: Path) -> int:
    """How many descriptors of this process are of files in a folder."""
    return sum(1 for _ in descriptors_below(folder))


def descriptors_below(folder: Path) -> Iterator[tuple[int, str]]:
    """The descriptors of this process that are of files in a folder, with what they are of."""
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # it was closed meanwhile
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            if Path(path).is_relative_to(folder):
                yield int(descriptor), path
