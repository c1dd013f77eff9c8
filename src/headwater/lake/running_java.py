"""What a Spark that runs in this process already can no longer be given: it is said, instead of silently not done.

Java takes its jars and its own options when it starts, and pyspark keeps one Java for as long as the process lives. A
session, as long as it is open, belongs to one master and one catalog. Nothing here starts or changes anything.
"""

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from headwater.lake.errors import LakeError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MEMORY: Final = "spark.driver.memory"
_OPTIONS_OF_JAVA: Final = (
    _MEMORY,
    "spark.driver.extraJavaOptions",
    "spark.driver.defaultJavaOptions",
    "spark.driver.extraClassPath",
    "spark.driver.extraLibraryPath",
)
_S3_KEYS: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE")
"""Java and the workers of Python look for keys in the environment that Java was started with."""
_JARS: Final = "spark.jars"
_CLASS_PATH: Final = "java.class.path"
_SIZE: Final = re.compile(r"(\d+)([kmgtp]?)b?")


def refuse_what_comes_too_late(conf: Mapping[str, str], *, master: str, catalog: str) -> None:
    """A LakeError that names what Spark would ignore; `catalog` is the setting that says where the catalog is."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._jvm is None:
        return
    system = SparkContext._jvm.System
    started_with = {name: system.getProperty(name) or "" for name in (*_OPTIONS_OF_JAVA, _JARS, _CLASS_PATH)}
    differences = what_java_lacks(conf, started_with)
    if differences:
        raise LakeError(
            f"Spark runs in this process already, and Java takes some things only when it starts: {differences}. Give "
            "the first lake of the process all that later ones need, or open this one in a process of its own"
        )
    session = SparkSession._instantiatedSession
    if session is not None and SparkContext._active_spark_context is not None:
        _refuse_another_lake(session, conf[catalog], master=master, catalog=catalog)


def refuse_other_keys() -> None:
    """A LakeError where Java was started with other keys of S3 than this process has now, or with none."""
    from pyspark import SparkContext

    if SparkContext._jvm is None:
        return
    others = [name for name in _S3_KEYS if SparkContext._jvm.System.getenv(name) != os.environ.get(name)]
    if others:
        raise LakeError(
            f"Spark runs in this process already and was started without {' and '.join(others)} of now: set the keys "
            "before the first lake of the process, or open this one in a process of its own"
        )


def what_java_lacks(conf: Mapping[str, str], started_with: Mapping[str, str]) -> str:
    """What is asked for and differs from what Java was started with, in words; nothing if it all fits."""
    there = [*started_with[_JARS].split(","), *started_with[_CLASS_PATH].split(":")]
    # Jars that Spark has fetched itself have their group's name in front.
    missing = [
        name
        for name in (jar.rpartition("/")[2] for jar in conf.get(_JARS, "").split(","))
        if not any(jar.endswith(name) for jar in there)
    ]
    words = [f"it does not have {', '.join(missing)}"] if missing else []
    words += [
        f"{name} is {started_with[name] or 'not set'} and cannot become {conf[name]}"
        for name in _OPTIONS_OF_JAVA
        if name in conf and not _same(name, conf[name], started_with[name])
    ]
    return "; ".join(words)


def _same(option: str, asked: str, there: str) -> bool:
    return asked == there or (option == _MEMORY and _kibibytes(asked) == _kibibytes(there))


def _kibibytes(size: str) -> int | str:
    """The size of memory as Spark takes it: a bare number counts mebibytes. What is no size stays as it is."""
    found = _SIZE.fullmatch(size.strip().lower())
    return size if found is None else int(found[1]) << 10 * "kmgtp".index(found[2] or "m")


def _refuse_another_lake(session: "SparkSession", uri: str, *, master: str, catalog: str) -> None:
    runs_on = session.sparkContext.master
    if runs_on != master:
        raise LakeError(
            f"Spark runs in this process on {runs_on} already and cannot work on {master} too: close the lake (or stop "
            "the session) that uses it, or open this one in a process of its own"
        )
    if session.conf.get(catalog, uri) != uri:
        raise LakeError(
            "another lake has its Spark in this process, which would write this one's data into the tables of that "
            "one: close it first, or open this one in a process of its own"
        )
