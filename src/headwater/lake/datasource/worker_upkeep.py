"""Keeps Spark's Python workers quick between tasks. Each of them serves many, and is tidied up before and after each.

Before a task Spark has Python forget what it knows of folders, for which Python reads the directories of Spark's own
zip files anew, once for each package in them: a tenth of a second, in which 100 MiB can be read. After a task Spark
looks for garbage among all objects, most of which are modules.
"""

import functools
import gc
import os
import zipimport
from typing import Final

_seen: Final[dict[tuple[str, str], tuple[int, int]]] = {}
"""By zip file and package in it, when the file was changed last and how large it was."""
_invalidate: Final = zipimport.zipimporter.invalidate_caches


@functools.cache
def keep_quick() -> None:
    """To be called in a worker, once it has imported what it needs; only the first call does something.

    Processes that are not Spark's, or serve one task only, are left alone.
    """
    if not os.environ.get("SPARK_REUSE_WORKER"):
        return
    zipimport.zipimporter.invalidate_caches = _invalidate_if_changed  # type: ignore[method-assign, assignment]
    gc.freeze()


def _invalidate_if_changed(importer: zipimport.zipimporter) -> None:
    """A zip file that is as it was has the directory that it had."""
    place = (importer.archive, importer.prefix)
    try:
        found = os.stat(importer.archive)
    except OSError:
        _seen.pop(place, None)
    else:
        stamp = (found.st_mtime_ns, found.st_size)
        if _seen.get(place) == stamp:
            return
        _seen[place] = stamp
    _invalidate(importer)
