"""Puts the peers of tests and benchmarks in place: a Java, kcat, Node, PostgreSQL, under `.peers/` Kafka's jars and
kafkajs and Iceberg's compatibility kit, and where the lake looks for them the jars that Spark needs.

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
from collections.abc import Iterable, Sequence
from pathlib import Path
from xml.sax.saxutils import quoteattr

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "bench")]

from headwater.lake.errors import LakeError  # noqa: E402
from headwater.lake.jars import ICEBERG, ICEBERG_AWS, POSTGRESQL, jar_folder, jars  # noqa: E402
from headwater.lake.java import OLDEST_VERSION, find_java  # noqa: E402
from lake_jobs import CONNECTOR  # noqa: E402
from peers.apache import JARS_COMPLETE, KAFKA_LIBS, KAFKA_VERSION  # noqa: E402
from peers.iceberg_kit import ICEBERG_VERSION, KIT_COMPLETE, KIT_COORDINATES, KIT_LIBS  # noqa: E402
from peers.kafkajs import KAFKAJS_FOLDER, KAFKAJS_VERSION  # noqa: E402
from peers.kafkajs import why_absent as why_kafkajs_is_absent  # noqa: E402
from peers.postgresql import find_binaries as find_postgresql  # noqa: E402

Coordinates = Sequence[tuple[str, str, str, str]]
"""Group, name, version and classifier (none is empty) of jars."""

LOG4J_VERSION = "2.24.3"
KAFKA_COORDINATES = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION, ""),
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION, ""),
    ("org.apache.logging.log4j", "log4j-core", LOG4J_VERSION, ""),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J_VERSION, ""),
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
    for get in (get_java, get_kcat, get_kafka, get_iceberg_kit, get_kafkajs, get_postgresql, get_lake_jars):
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
    get_jars(f"Apache Kafka {KAFKA_VERSION}", 55, KAFKA_COORDINATES, KAFKA_LIBS, JARS_COMPLETE)


def get_iceberg_kit() -> None:
    """Apache Iceberg's compatibility kit for REST catalogs."""
    what = f"Iceberg's REST compatibility kit {ICEBERG_VERSION}"
    get_jars(what, 30, KIT_COORDINATES, KIT_LIBS, KIT_COMPLETE)


def get_jars(what: str, megabytes: int, coordinates: Coordinates, libs: Path, complete: Path) -> None:
    """Jars with all they depend on in one folder, and a file that says that all are there."""
    if complete.exists():
        return
    java = find_java()
    if java is None:
        raise PeerMissingError(f"{what} was not fetched, as there is no Java to run it")
    libs.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=libs.parent) as scratch:
        resolved = Path(scratch) / "libs"
        command = resolver(what, java, coordinates, Path(scratch), resolved)
        print(f"get_peers: fetching {what} (once, about {megabytes} MB)", file=sys.stderr)
        fetch(what, command, Path(scratch))
        check_jars(coordinates, resolved)
        shutil.rmtree(libs, ignore_errors=True)
        resolved.rename(libs)
    complete.write_text("".join(f"{jar.name}\n" for jar in sorted(libs.glob("*.jar"))))


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


def resolver(what: str, java: Path, coordinates: Coordinates, scratch: Path, destination: Path) -> list[str]:
    """The command that puts jars into `destination`, of Ivy, or of Maven where only that is there."""
    ivy = find_ivy()
    if ivy is None and shutil.which("mvn") is None:
        apt_install("ivy")
        ivy = find_ivy()
    if ivy is not None:
        return ivy_command(java, ivy, coordinates, scratch, destination)
    if maven := shutil.which("mvn"):
        return maven_command(maven, coordinates, scratch, destination)
    raise PeerMissingError(
        f"{what} was not fetched: install Ivy (Debian: apt-get install ivy), Maven, or pyspark (which brings Ivy), "
        "then run this again"
    )


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


def check_jars(coordinates: Coordinates, folder: Path) -> None:
    """A resolver may be content although a jar is absent, and a jar may be another than it was."""
    pinned = {name: digest for digest, name in map(str.split, KAFKA_DIGESTS.read_text().splitlines())}
    for jar in sorted(folder.glob("*.jar")):
        # Ivy and Maven may choose among versions of what Kafka depends on differently: those are not in the list.
        with jar.open("rb") as file:
            if jar.name in pinned and hashlib.file_digest(file, "sha256").hexdigest() != pinned[jar.name]:
                raise PeerMissingError(
                    f"{jar.name} was fetched, but it is not what it was: its SHA-256 is not {pinned[jar.name]}"
                )
    for _, name, version, classifier in coordinates:
        wanted = f"{name}-{version}{'-' if classifier else ''}{classifier}.jar"
        if not (folder / wanted).exists():
            raise PeerMissingError(f"{wanted} was resolved, but it is not there; run this again")


def find_ivy() -> Path | None:
    """The jar of Ivy that pyspark ships, or Debian's."""
    pyspark = importlib.util.find_spec("pyspark")
    for folder in (pyspark.submodule_search_locations or ()) if pyspark else ():
        for jar in sorted(Path(folder).glob("jars/ivy-*.jar")):
            return jar
    return DEBIAN_IVY if DEBIAN_IVY.exists() else None


def ivy_command(java: Path, ivy: Path, coordinates: Coordinates, scratch: Path, destination: Path) -> list[str]:
    """One resolution for all coordinates, so that no library comes in two versions."""
    module = scratch / "ivy.xml"
    modules: dict[tuple[str, str, str], list[str]] = {}
    for group, name, version, classifier in coordinates:
        extra = f" m:classifier={quoteattr(classifier)}" if classifier else ""
        artifact = f"<artifact name={quoteattr(name)} type='jar' ext='jar'{extra}/>"
        modules.setdefault((group, name, version), []).append(artifact)
    wanted = "\n".join(
        f"<dependency org={quoteattr(group)} name={quoteattr(name)} rev={quoteattr(version)} conf='default->default'>"
        f"{''.join(artifacts)}</dependency>"
        for (group, name, version), artifacts in modules.items()
    )
    module.write_text(
        "<ivy-module version='2.0' xmlns:m='http://ant.apache.org/ivy/extra'>"
        "<info organisation='headwater' module='peers'/>"
        "<configurations><conf name='default'/></configurations>"
        f"<dependencies>{wanted}</dependencies></ivy-module>"
    )
    pattern = f"{destination}/[artifact]-[revision](-[classifier]).[ext]"
    return [str(java), "-jar", str(ivy), "-ivy", str(module), "-retrieve", pattern, "-types", "jar", "bundle"]


def maven_command(maven: str, coordinates: Coordinates, scratch: Path, destination: Path) -> list[str]:
    """The same through a throw-away Maven project."""
    wanted = "\n".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version>{f'<classifier>{classifier}</classifier>' if classifier else ''}</dependency>"
        for group, name, version, classifier in coordinates
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
