"""Puts the peers of tests and benchmarks in place: a Java, kcat, Node, PostgreSQL, under `.peers/` Kafka's jars and
kafkajs, and where the lake looks for them the jars that Spark needs.

Run it as often as you like: what is there already is left alone. As root on Debian it installs what is
missing with apt-get; elsewhere it says what to install. It exits with 1 when a peer is still missing; the tests
of that peer are then skipped (or fail, where HEADWATER_REQUIRE_PEERS=1 asks for all of them).
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from xml.sax.saxutils import quoteattr

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "bench")]

from headwater.lake.errors import LakeError  # noqa: E402
from headwater.lake.jars import ICEBERG, ICEBERG_AWS, POSTGRESQL, jar_folder, jars  # noqa: E402
from headwater.lake.java import OLDEST_VERSION, find_java  # noqa: E402
from lake_jobs import CONNECTOR  # noqa: E402
from peers.apache import JARS_COMPLETE, KAFKA_LIBS, KAFKA_VERSION  # noqa: E402
from peers.kafkajs import KAFKAJS_FOLDER, KAFKAJS_VERSION  # noqa: E402
from peers.kafkajs import why_absent as why_kafkajs_is_absent  # noqa: E402
from peers.postgresql import find_binaries as find_postgresql  # noqa: E402

LOG4J_VERSION = "2.24.3"
COORDINATES = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    ("org.apache.logging.log4j", "log4j-core", LOG4J_VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J_VERSION),
)
DEBIAN_IVY = Path("/usr/share/java/ivy.jar")
KAFKA_DIGESTS = Path(__file__).with_name(f"kafka-{KAFKA_VERSION}.sha256")
DOWNLOAD_ATTEMPTS = 3
RETRY_PAUSE_S = 5


class PeerMissingError(Exception):
    """A peer is not there and cannot be put there; the message says what to do."""


def main() -> int:
    """Gets every peer; prints one sentence for each that stays missing."""
    missing = 0
    for get in (get_java, get_kcat, get_kafka, get_kafkajs, get_postgresql, get_lake_jars):
        try:
            get()
        except PeerMissingError as error:
            missing += 1
            print(f"get_peers: {error}", file=sys.stderr)
    return 1 if missing else 0


def get_java() -> None:
    """A Java for Apache Kafka and its tools."""
    if find_java() is None:
        apt_install("default-jre-headless")
    if find_java() is None:
        raise PeerMissingError(
            f"no Java {OLDEST_VERSION} or newer is here: install one (Debian: apt-get install "
            "default-jre-headless), put it on PATH or in JAVA_HOME, then run this again"
        )


def get_kcat() -> None:
    """The command-line client kcat, built on librdkafka."""
    if shutil.which("kcat") is None:
        apt_install("kcat")
    if shutil.which("kcat") is None:
        raise PeerMissingError("no kcat is here: install it (Debian: apt-get install kcat), then run this again")


def get_kafka() -> None:
    """Apache Kafka's broker and tools with all they depend on, as jars in one folder."""
    if JARS_COMPLETE.exists():
        return
    java = find_java()
    if java is None:
        raise PeerMissingError(f"Apache Kafka {KAFKA_VERSION} was not fetched, as there is no Java to run it")
    KAFKA_LIBS.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=KAFKA_LIBS.parent) as scratch:
        resolved = Path(scratch) / "libs"
        resolve_jars(java, Path(scratch), resolved)
        check_jars(resolved)
        shutil.rmtree(KAFKA_LIBS, ignore_errors=True)
        resolved.rename(KAFKA_LIBS)
    JARS_COMPLETE.write_text("".join(f"{jar.name}\n" for jar in sorted(KAFKA_LIBS.glob("*.jar"))))


def get_kafkajs() -> None:
    """kafkajs, the client for Node, from npm, and Node to run it."""
    if why_kafkajs_is_absent() is None:
        return
    if shutil.which("node") is None or shutil.which("npm") is None:
        apt_install("nodejs", "npm")
    npm = shutil.which("npm")
    if shutil.which("node") is None or npm is None:
        raise PeerMissingError(
            f"kafkajs {KAFKAJS_VERSION} was not fetched: install Node and npm "
            "(Debian: apt-get install nodejs npm), then run this again"
        )
    KAFKAJS_FOLDER.mkdir(parents=True, exist_ok=True)
    options = ("--no-audit", "--no-fund", "--no-save", "--ignore-scripts", "--prefix", str(KAFKAJS_FOLDER))
    fetch(f"kafkajs {KAFKAJS_VERSION}", [npm, "install", *options, f"kafkajs@{KAFKAJS_VERSION}"], KAFKAJS_FOLDER)


def get_postgresql() -> None:
    """The database PostgreSQL: the tests start servers of their own with it."""
    if find_postgresql() is None:
        apt_install("postgresql")
    if find_postgresql() is None:
        raise PeerMissingError(
            "no PostgreSQL is here: install it (Debian: apt-get install postgresql), with initdb on PATH, "
            "then run this again"
        )


def get_lake_jars() -> None:
    """Iceberg for Spark, also in S3, the JDBC driver of PostgreSQL, and Spark's own Kafka connector to compare with."""
    wanted = (ICEBERG, ICEBERG_AWS, POSTGRESQL, *CONNECTOR)
    absent = [jar for jar in wanted if not (jar_folder() / jar.file_name).exists()]
    if absent:
        print(f"get_peers: fetching {' and '.join(map(str, absent))} (once, about 130 MB)", file=sys.stderr)
    try:
        jars(wanted)
    except LakeError as error:
        # One that is there and is not what it should be is named too.
        raise PeerMissingError(str(error)) from None


def resolve_jars(java: Path, scratch: Path, destination: Path) -> None:
    """Resolves COORDINATES with Ivy, or with Maven where only that is there, into `destination`."""
    ivy = find_ivy()
    if ivy is None and shutil.which("mvn") is None:
        apt_install("ivy")
        ivy = find_ivy()
    if ivy is not None:
        command = ivy_command(java, ivy, scratch, destination)
    elif maven := shutil.which("mvn"):
        command = maven_command(maven, scratch, destination)
    else:
        raise PeerMissingError(
            f"Apache Kafka {KAFKA_VERSION} was not fetched: install Ivy (Debian: apt-get install ivy), "
            "Maven, or pyspark (which brings Ivy), then run this again"
        )
    print(f"get_peers: fetching Apache Kafka {KAFKA_VERSION} (once, about 55 MB)", file=sys.stderr)
    fetch(f"Apache Kafka {KAFKA_VERSION}", command, scratch)


def fetch(what: str, command: list[str], folder: Path) -> None:
    """Runs a command that downloads, again when it fails; PeerMissingError with its last words in the end."""
    for attempt in range(1, DOWNLOAD_ATTEMPTS + 1):
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        if done.returncode == 0:
            return
        if attempt < DOWNLOAD_ATTEMPTS:
            time.sleep(RETRY_PAUSE_S * attempt)
    last_words = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
    raise PeerMissingError(
        f"{what} could not be fetched in {DOWNLOAD_ATTEMPTS} attempts; look at the "
        f"network and run this again. The last words of {' '.join(command[:3])} were:\n{last_words}"
    )


def check_jars(folder: Path) -> None:
    """A resolver that is content although a jar is absent must not pass for a whole Kafka, nor one that got others."""
    pinned = {name: digest for digest, name in map(str.split, KAFKA_DIGESTS.read_text().splitlines())}
    for jar in sorted(folder.glob("*.jar")):
        # Ivy and Maven may choose among versions of what Kafka depends on differently: those are not in the list.
        with jar.open("rb") as file:
            if jar.name in pinned and hashlib.file_digest(file, "sha256").hexdigest() != pinned[jar.name]:
                raise PeerMissingError(
                    f"{jar.name} was fetched, but it is not what it was: its SHA-256 is not {pinned[jar.name]}"
                )
    for _, name, version in COORDINATES:
        if not (folder / f"{name}-{version}.jar").exists():
            raise PeerMissingError(f"{name} {version} was resolved, but its jar is not there; run this again")


def find_ivy() -> Path | None:
    """The jar of Ivy that pyspark ships, or Debian's."""
    pyspark = importlib.util.find_spec("pyspark")
    for folder in (pyspark.submodule_search_locations or ()) if pyspark else ():
        for jar in sorted(Path(folder).glob("jars/ivy-*.jar")):
            return jar
    return DEBIAN_IVY if DEBIAN_IVY.exists() else None


def ivy_command(java: Path, ivy: Path, scratch: Path, destination: Path) -> list[str]:
    """One resolution for all coordinates, so that no library comes in two versions."""
    module = scratch / "ivy.xml"
    wanted = "\n".join(
        f"<dependency org={quoteattr(group)} name={quoteattr(name)} rev={quoteattr(version)} conf='default->default'/>"
        for group, name, version in COORDINATES
    )
    module.write_text(
        "<ivy-module version='2.0'><info organisation='headwater' module='peers'/>"
        "<configurations><conf name='default'/></configurations>"
        f"<dependencies>{wanted}</dependencies></ivy-module>"
    )
    pattern = f"{destination}/[artifact]-[revision](-[classifier]).[ext]"
    return [str(java), "-jar", str(ivy), "-ivy", str(module), "-retrieve", pattern, "-types", "jar", "bundle"]


def maven_command(maven: str, scratch: Path, destination: Path) -> list[str]:
    """The same through a throw-away Maven project."""
    wanted = "\n".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, name, version in COORDINATES
    )
    (scratch / "pom.xml").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>headwater</groupId><artifactId>peers</artifactId>"
        f"<version>1</version><dependencies>{wanted}</dependencies></project>"
    )
    copy = ["dependency:copy-dependencies", f"-DoutputDirectory={destination}", "-DincludeScope=runtime"]
    return [maven, "--batch-mode", "--quiet", *copy]


def apt_install(*packages: str) -> None:
    """Installs Debian packages where that is possible without asking: as root, with apt-get."""
    apt_get = shutil.which("apt-get")
    if apt_get is None or os.geteuid() != 0:
        return
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    steps: Iterable[list[str]] = (
        [apt_get, "update", "--quiet"],
        [apt_get, "install", "--yes", "--quiet", "--no-install-recommends", *packages],
    )
    for step in steps:
        print(f"get_peers: {' '.join(step)}", file=sys.stderr)
        subprocess.run(step, check=False, env=environment, stdout=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
