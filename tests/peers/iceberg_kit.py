"""Apache Iceberg's REST compatibility kit: the tests of its own catalog client, run against a catalog that is served.

The jars come from `scripts/get_peers.py`, Hadoop's from pyspark. Standard library only.
"""

import importlib.util
import subprocess
from dataclasses import dataclass
from pathlib import Path

from headwater.lake.java import find_java

from .apache import QUICK_START
from .processes import dies_with_parent

ICEBERG_VERSION = "1.11.0"
KIT_COORDINATES = (
    ("org.apache.iceberg", "iceberg-open-api", ICEBERG_VERSION, "tests"),
    ("org.apache.iceberg", "iceberg-open-api", ICEBERG_VERSION, "test-fixtures"),
    ("org.apache.iceberg", "iceberg-core", ICEBERG_VERSION, ""),
    ("org.apache.iceberg", "iceberg-core", ICEBERG_VERSION, "tests"),
    ("org.apache.iceberg", "iceberg-api", ICEBERG_VERSION, ""),
    ("org.apache.iceberg", "iceberg-api", ICEBERG_VERSION, "tests"),
    ("org.assertj", "assertj-core", "3.27.7", ""),
    ("org.awaitility", "awaitility", "4.3.0", ""),
    ("org.junit.platform", "junit-platform-console-standalone", "1.13.4", ""),
)
KIT_LIBS = Path(__file__).resolve().parents[2] / ".peers" / f"iceberg-kit-{ICEBERG_VERSION}" / "libs"
KIT_COMPLETE = KIT_LIBS.parent / "complete"

_PROGRAM = Path(__file__).with_name("IcebergKit.java")


@dataclass(frozen=True, slots=True, kw_only=True)
class KitTest:
    """One test of the kit, and what became of it."""

    outcome: str
    """SUCCESSFUL, FAILED, ABORTED (it does not apply) or SKIPPED."""
    name: str
    words: str


def why_absent() -> str | None:
    """Why the kit cannot run here, or None when it can."""
    if find_java() is None:
        return "no Java 17 or newer: run scripts/get_peers.py"
    if not KIT_COMPLETE.exists():
        return f"no jars of Iceberg's REST compatibility kit {ICEBERG_VERSION}: run scripts/get_peers.py"
    if not _hadoop():
        return "no pyspark, whose Hadoop the kit needs: install headwater[lake]"
    return None


def run_kit(uri: str, warehouse: str, *, timeout_s: float = 300) -> list[KitTest]:
    """Runs all of the kit against a catalog that is empty, and says what became of each test."""
    settings = {
        "uri": f"{uri}/",
        "warehouse": warehouse,
        "rck.requires-namespace-create": "true",
        "rck.supports-names-with-dot": "true",
    }
    command = [
        str(find_java()),
        "-Xmx256m",
        *QUICK_START,
        *(f"-D{name}={value}" for name, value in settings.items()),
        "-cp",
        ":".join([f"{KIT_LIBS}/*", *_hadoop()]),
        str(_PROGRAM),
    ]
    done = subprocess.run(dies_with_parent(command), capture_output=True, text=True, check=False, timeout=timeout_s)
    if done.returncode != 0:
        raise RuntimeError(f"the kit did not run: {done.stderr[-2000:]}")
    parts = (line.split("\t") for line in done.stdout.splitlines() if line.count("\t") == 2)
    return [KitTest(outcome=outcome, name=name, words=words) for outcome, name, words in parts]


def _hadoop() -> list[str]:
    pyspark = importlib.util.find_spec("pyspark")
    folders = (pyspark.submodule_search_locations or ()) if pyspark else ()
    return [str(jar) for folder in folders for jar in sorted(Path(folder).glob("jars/hadoop-client-*.jar"))]
