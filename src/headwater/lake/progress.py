"""How far Spark has come with a pass over what is new: asked of Spark itself, by the tasks that are done."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Watch: TypeAlias = Callable[[int, int], None]
"""Called with how many tasks are done, and how many there are."""

_INTERVAL_S: Final = 0.25


@contextmanager
def watched(spark: "SparkSession", watch: Watch | None) -> Iterator[None]:
    """Calls `watch` now and then with the progress of whatever Spark is at, until the context ends."""
    if watch is None:
        yield
        return
    ended = threading.Event()
    watcher = threading.Thread(target=_look, args=(spark, watch, ended), name="headwater-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _look(spark: "SparkSession", watch: Watch, ended: threading.Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    while not ended.wait(_INTERVAL_S):
        try:
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        except Exception:
            # Spark is gone; whoever works with it will say so.
            return
        if found := [stage for stage in stages if stage is not None]:
            watch(sum(stage.numCompletedTasks for stage in found), sum(stage.numTasks for stage in found))
