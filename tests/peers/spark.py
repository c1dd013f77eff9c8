"""Spark for tests: one session a process, with a lake of its own in a temporary folder."""

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwater.lake import Lake
from headwater.lake.jars import Coordinates, jar_folder
from headwater.lake.java import find_java
from headwater.lake.spark import SparkSettings
from lake_jobs import CONNECTOR
from peers.presence import require
from peers.processes import kill

pyspark_leaves_sockets = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
"""For files with Spark in them: pyspark leaves the sockets over which answers come to the garbage collector."""

QUICK_START = {
    # Short jobs gain nothing from the optimising compiler, and two cores have enough to do.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "1g",
}


def shared_jars() -> list[Coordinates]:
    """What any test wants: all tests of a process share a JVM, and that knows only the jars it was started with."""
    return [jar for jar in CONNECTOR if (jar_folder() / jar.file_name).exists()]


def quick_spark(cores: int = 2) -> SparkSettings:
    """An embedded Spark that is up soon and stays small."""
    return SparkSettings(master=f"local[{cores}]", conf=QUICK_START, more_jars=shared_jars())


def end_java() -> None:
    """Kills the JVM of this process, if there is one: what a test asks of Java itself holds only from its start."""
    from pyspark import SparkContext

    if SparkContext._gateway is not None:
        kill(SparkContext._gateway.proc)


@contextmanager
def running_lake(
    folder: Path, settings: SparkSettings, *, catalog: str | None = None, token: str | None = None
) -> Iterator[Lake]:
    """A lake in this folder, as long as the context lasts."""
    require(None if find_java() else "no Java 17 or newer: run scripts/get_peers.py")
    with Lake(folder / "warehouse", catalog=catalog, token=token, spark=settings) as lake:
        yield lake
    with warnings.catch_warnings():
        # What pyspark has left must not be found during a test of somebody else.
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A lake with Spark behind it, for the tests of one file: use table names of your own."""
    with running_lake(tmp_path_factory.mktemp("lake"), quick_spark()) as lake:
        yield lake
