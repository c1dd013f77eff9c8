"""A process that loads what is new, over and over, until it is told to stop and there is nothing new: to be killed.

`python lake_worker.py '{"catalog": …, "bootstrap": …, "folder": …, "jdbc": …, "stop": …}'`
"""

import itertools
import json
import sys
import time
from pathlib import Path
from typing import Any

from headwater.catalog.client import CatalogError
from headwater.lake import Lake, LakeError, SparkSettings
from headwater.lake.operations.maintenance import Care

TABLES = ("chaos.topic", "chaos.files", "chaos.jdbc")
_PAUSE_S = 0.2
_ROUNDS_UNTIL_MAINTENANCE = 2
_SPARK = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "600m",
}


def main() -> None:
    """Says `ready` when Spark is up, and a line for each load that was carried out."""
    given: dict[str, Any] = json.loads(sys.argv[1])
    stop = Path(given["stop"])
    with Lake(
        given["warehouse"], catalog=given["catalog"], spark=SparkSettings(master="local[1]", conf=_SPARK)
    ) as lake:
        _wait_for_spark(lake)
        print("ready", flush=True)
        for number in itertools.count(1):
            asked = stop.exists()
            if not _round(lake, given) and asked:
                return
            if number % _ROUNDS_UNTIL_MAINTENANCE == 0:
                _maintain(lake)
            time.sleep(_PAUSE_S)


def _wait_for_spark(lake: Lake) -> None:
    """Spark is told by the catalog where the tables lie, and that may be dead just now."""
    while True:
        try:
            _ = lake.spark
        except CatalogError:
            time.sleep(_PAUSE_S)
        else:
            return


def _maintain(lake: Lake) -> None:
    """Compacts the topic's table while the other job loads into it, and lets go of all snapshots but one."""
    try:
        lake.maintain([TABLES[0]], Care(older_than_s=0, keep=1))
        print("maintained", flush=True)
    except (LakeError, CatalogError) as error:
        print(f"failed to maintain: {error}", flush=True)


def _round(lake: Lake, given: dict[str, Any]) -> bool:
    """Whether anything was loaded, or went wrong and has to be looked at again."""
    busy = False
    sources = (f"topic:{given['topic']}", f"files:{given['folder']}", given["jdbc"])
    for table, source in zip(TABLES, sources, strict=True):
        try:
            report = lake.load(source, into=table, bootstrap=given["bootstrap"])
        except (LakeError, CatalogError) as error:
            print(f"failed {table}: {error}", flush=True)
            busy = True
            # Without its JVM this process is of no more use.
            _ = lake.spark.sparkContext.defaultParallelism
        else:
            if report.load_id is not None:
                busy = True
                print(f"loaded {table} {report.counts.rows}", flush=True)
    return busy


if __name__ == "__main__":
    main()
