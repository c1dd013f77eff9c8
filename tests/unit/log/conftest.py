"""What the tests of logs share."""

import contextlib
import gc
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.log.log_dir import LOCK_FILE
from open_descriptors import descriptors_below

FOLDERS = (Path(tempfile.gettempdir()), Path("/dev/shm"))


@pytest.fixture(autouse=True, scope="module")
def nothing_stays_open() -> Iterator[None]:
    """Who died in play has let go of nothing: with a thousand files left open, Spark in this process fails."""
    before = locks()
    yield
    # Files of segments have owners that close them; a lock is nobody's.
    gc.collect()
    for descriptor, path in locks().items():
        if before.get(descriptor) != path:
            with contextlib.suppress(OSError):
                os.close(descriptor)


def locks() -> dict[int, str]:
    found = {number: path for folder in FOLDERS for number, path in descriptors_below(folder)}
    return {number: path for number, path in found.items() if Path(path.removesuffix(" (deleted)")).name == LOCK_FILE}
