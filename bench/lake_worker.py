"""One side of the lake's benchmark: a process with a Spark of its own, which does one job after the other.

Tasks come as lines of JSON on its input, answers go as lines of JSON to its output. It ends with its input.
"""

import gc
import json
import os
import sys
import time
import warnings
from typing import Any, TextIO

from headwater.lake import Lake
from headwater.lake.spark import SparkSettings
from lake_data import Totals
from lake_jobs import CONNECTOR, CORES, Side, sides


def spark_settings(folder: str) -> SparkSettings:
    """Both sides have the same, down to the jars."""
    return SparkSettings(
        master=f"local[{CORES}]",
        conf={
            "spark.driver.memory": "2g",
            "spark.sql.shuffle.partitions": str(CORES),
            "spark.default.parallelism": str(CORES),
            "spark.local.dir": folder,
        },
        more_jars=CONNECTOR,
    )


def done(known: dict[str, Side], lake: Lake, task: dict[str, Any]) -> dict[str, Any]:
    """What comes of a task."""
    side, job, table = known[task["side"]], task["job"], task["table"]
    if task["do"] == "tidy":
        # What the last job left is nobody's: heaps begin as small as they can be.
        gc.collect()
        jvm: Any = lake.spark._jvm
        jvm.System.gc()
        return {}
    if task["do"] == "check":
        totals: Totals = side.totals(job, table)
        lake.spark.sql(f"drop table {table} purge")
        return {"totals": totals}
    begin = time.perf_counter()
    found = getattr(side, job)(task["topic"], table)
    return {"seconds": time.perf_counter() - begin, "totals": found}


def main() -> None:
    """Serves tasks until there are no more."""
    warnings.simplefilter("ignore")
    asked = json.loads(sys.argv[1])
    answers = answers_only()
    with Lake(catalog=asked["catalog"], spark=spark_settings(asked["folder"])) as lake:
        known = sides(lake, asked["bootstrap"])
        print(json.dumps({"spark": lake.spark.version}), file=answers, flush=True)
        for line in sys.stdin:
            print(json.dumps(done(known, lake, json.loads(line))), file=answers, flush=True)


def answers_only() -> TextIO:
    """The output, which is kept clean of what Spark says there."""
    kept = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return kept


if __name__ == "__main__":
    main()
