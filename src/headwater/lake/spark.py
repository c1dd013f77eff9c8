"""Starts Spark for the lake: embedded in this process's machine, or on any master, with the lake's catalog in it.

A session takes seconds and most of a gigabyte, so there is one a process and it starts only when there is work for it.
"""

import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headwater.lake.errors import LakeError
from headwater.lake.jars import ICEBERG, ICEBERG_AWS, Coordinates, jars
from headwater.lake.java import java_home, require_java
from headwater.lake.leftovers import hold, open_spark_log, remove_leftovers, spark_log
from headwater.lake.running_java import refuse_other_keys, refuse_what_comes_too_late

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CATALOG: Final = "lake"
"""What the lake is called in Spark's SQL: `select * from lake.db.table`; it is the default, so `db.table` will do."""

_CATALOG_URI: Final = f"spark.sql.catalog.{CATALOG}.uri"

LOOPBACK: Final = "127.0.0.1"

_ARROW_UNCHECKED: Final = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""Spark asks for each value only within a batch, and only after it has asked whether it is null: Arrow need not check
both again for every value of every row. `spark.driver.extraJavaOptions` come behind these and may take them back."""

_SECRET: Final = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)

_SENT_AWAY: Final = re.compile(r"Application has been killed\. Reason: (.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """Which Spark a lake works on."""

    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    more_jars: Sequence[Coordinates] = ()

    @property
    def embedded(self) -> bool:
        """Whether Spark runs inside the job's own processes."""
        return self.master.startswith("local")


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkCatalog:
    """The catalog that a session has, and what it says beside what the catalog itself tells of its files."""

    uri: str
    token: str | None = None
    on_s3: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)


def start_spark(settings: SparkSettings, catalog: SparkCatalog) -> "SparkSession":
    """A session with the lake's catalog as its default; what Spark has to say goes into a file that errors name."""
    java = require_java()
    os.environ.setdefault("JAVA_HOME", str(java_home(java)))
    # PYSPARK_DRIVER_PYTHON is not ours to set: Spark would read with it on executors too, and ask for no other.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if settings.embedded:
        # Spark would otherwise ask the name service who it is, and listen where others can reach it.
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise LakeError('Spark is not installed: pip install "headwater[lake]"') from None
    _forget_ended_spark()
    conf = {**_defaults(settings, catalog), **settings.conf}
    # A Java that somebody else has started may do without this: it is only slower.
    needed = {name: value for name, value in conf.items() if value != _ARROW_UNCHECKED}
    if catalog.on_s3:
        refuse_other_keys()
    refuse_what_comes_too_late(needed, master=settings.master, catalog=_CATALOG_URI)
    remove_leftovers()
    builder = SparkSession.builder.master(settings.master).appName("headwater lake")
    for name, value in conf.items():
        builder = builder.config(name, value)
    log_bytes = 0
    try:
        with _stderr_into_log() as log_bytes, _interrupts_kept():
            _start_java({"spark.master": settings.master, "spark.app.name": "headwater lake", **conf})
            return builder.getOrCreate()
    except Exception as error:
        log = spark_log()
        why = why_not_started(error, log.read_bytes()[log_bytes:].decode(errors="replace"))
        raise LakeError(f"Spark did not start on {settings.master}: {why}; its own words are in {log}") from None


def _start_java(conf: Mapping[str, str]) -> None:
    """Starts the JVM with all but the secrets; the session's own settings reach it over pyspark's socket afterwards.

    pyspark puts the settings that a JVM is started for on its command line, which every user of the machine can read.
    """
    from pyspark import SparkConf, SparkContext

    if SparkContext._gateway is None:
        given = SparkConf(loadDefaults=False)
        given.setAll([(name, value) for name, value in conf.items() if not is_secret(name)])
        SparkContext._ensure_initialized(conf=given)


def is_secret(name: str) -> bool:
    """Whether a setting is one that nobody else may read, as Spark itself decides what it hides in its logs.

    >>> is_secret("spark.sql.catalog.lake.token"), is_secret("spark.jars")
    (True, False)
    """
    return _SECRET.search(name) is not None


def first_line(error: BaseException) -> str:
    """The line of an error that says what happened: Spark's go on for pages, and begin with where it was called."""
    written = [line.rstrip() for line in str(error).splitlines() if line.strip()]
    lines = [line.strip() for line in written] or [type(error).__name__]
    if lines[0].startswith("An exception was thrown from the Python worker"):
        # A traceback's own lines are indented; the error is what comes behind them.
        said = [line for line in written[2:] if not line.startswith(" ")]
        return said[0].removeprefix("headwater.lake.errors.LakeError: ") if said else lines[0]
    if lines[0].startswith("An error occurred while calling") and len(lines) > 1:
        return lines[1].removeprefix(": ")
    return lines[0]


def statement_words(error: BaseException) -> str:
    """What Spark has against a statement, and the place where it goes wrong if Spark shows that; no plan of it."""
    from pyspark.errors import ParseException

    return str(error).strip() if isinstance(error, ParseException) else first_line(error).rstrip(";")


def log_no_errors() -> None:
    """For who tells errors of statements himself: pyspark logs them too, with pages of Java."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def why_not_started(error: BaseException, log: str) -> str:
    """What a cluster gave as its reason: the error itself only says then that the session has ended."""
    told = _SENT_AWAY.search(log)
    return first_line(error) if told is None else told[1].rstrip(" .!")


def _defaults(settings: SparkSettings, catalog: SparkCatalog) -> dict[str, str]:
    prefix = f"spark.sql.catalog.{CATALOG}"
    wanted = (ICEBERG, *((ICEBERG_AWS,) if catalog.on_s3 else ()), *settings.more_jars)
    conf = {
        "spark.jars": ",".join(str(jar) for jar in jars(dict.fromkeys(wanted))),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.type": "rest",
        _CATALOG_URI: catalog.uri,
        **{f"{prefix}.{name}": value for name, value in catalog.properties.items()},
        # A cached table would hide what another writer has committed, and with it the position.
        f"{prefix}.cache-enabled": "false",
        "spark.sql.defaultCatalog": CATALOG,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.python.filterPushdown.enabled": "true",
        # Between the JVM and Python's workers: large pieces, and no TCP.
        "spark.buffer.size": str(1 << 20),
        # Spark hands that on to Hadoop, where each column of a file that is read would take a buffer of that size.
        f"{prefix}.hadoop.io.file.buffer.size": str(1 << 16),
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.driver.defaultJavaOptions": _ARROW_UNCHECKED,
        "spark.executor.defaultJavaOptions": _ARROW_UNCHECKED,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "true",
    }
    if catalog.token is not None:
        conf |= {
            f"{prefix}.token": catalog.token,
            # Iceberg would try after an hour to exchange the token for another one, which this catalog does not do.
            f"{prefix}.token-refresh-enabled": "false",
        }
    if settings.embedded:
        cores = str(os.cpu_count() or 1)
        conf |= {
            # What runs here alone writes for this user alone, as the catalog does.
            "spark.hadoop.fs.permissions.umask-mode": "077",
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.sql.shuffle.partitions": cores,
            "spark.default.parallelism": cores,
        }
    return conf


def has_ended(gateway: object) -> bool:
    """Whether the JVM behind pyspark's gateway is gone; it is known where pyspark started it itself."""
    process = getattr(gateway, "proc", None)
    return process is not None and process.poll() is not None


def _forget_ended_spark() -> None:
    """pyspark keeps its way to a JVM for good; to one that has ended there is none, and another can be started."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway = SparkContext._gateway
    if gateway is not None and has_ended(gateway):
        gateway.close()
        gateway.proc.stdin.close()
        SparkSession._instantiatedSession = SparkSession._activeSession = None
        SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None


@contextmanager
def _interrupts_kept() -> Iterator[None]:
    """Spark takes Ctrl-C over when it starts; a program that has done so before keeps it."""
    before = signal.getsignal(signal.SIGINT)
    yield
    if before is not signal.default_int_handler and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, before)


def give_interrupts_back() -> None:
    """What Spark does at Ctrl-C, telling its JVM, would outlive it: the program is interrupted as before again."""
    taken = getattr(signal.getsignal(signal.SIGINT), "__module__", None) == "pyspark.core.context"
    if taken and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def _stderr_into_log() -> Iterator[int]:
    """How long the log was, while stderr leads into it.

    The JVM inherits the descriptor it is started with: its chatter and its workers' goes into a file for good.

    With it they inherit the lock that keeps the file: it lasts as long as any of them lives.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    target = open_spark_log()
    hold(target)
    try:
        os.dup2(target, 2)
        yield os.fstat(target).st_size
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(target)
