"""Apache Kafka as a peer: one KRaft node in a folder of its own, and Apache's Java tools.

The jars come from `scripts/get_peers.py`. Everything listens on free loopback ports. Standard library only.
"""

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from headwater.lake.java import find_java

from .processes import dies_with_parent, end, kill
from .readiness import free_port, wait_until_answering

KAFKA_VERSION = "4.1.0"
KAFKA_LIBS = Path(__file__).resolve().parents[2] / ".peers" / f"kafka-{KAFKA_VERSION}" / "libs"
JARS_COMPLETE = KAFKA_LIBS.parent / "complete"
CLUSTER_ID = "aGVhZHdhdGVyLXBlZXJzIQ"

_QUIET_LOG4J = """\
appender.err.type=Console
appender.err.name=err
appender.err.target=SYSTEM_ERR
appender.err.layout.type=PatternLayout
appender.err.layout.pattern=[%d] %p %m (%c)%n
rootLogger=WARN,err
"""
# For brokers that live for a test and not for a benchmark: they start sooner, and never get fast.
QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
# A tool lives for a second: the fastest start matters, the speed of its code does not.
_TOOL_JVM = ("-Xmx256m", *QUICK_START)


class ToolFailedError(Exception):
    """A Java tool ended with an error; the message is all that it printed."""


def why_absent() -> str | None:
    """Why Apache Kafka cannot run here, or None when it can."""
    if find_java() is None:
        return "no Java 17 or newer: run scripts/get_peers.py"
    if not JARS_COMPLETE.exists():
        return f"no jars of Apache Kafka {KAFKA_VERSION}: run scripts/get_peers.py"
    return None


def java_command(main_class: str, *arguments: str, jvm_options: Sequence[str]) -> list[str]:
    """The command line that runs one class of Apache Kafka, with its warnings on stderr."""
    java = find_java()
    if java is None:
        raise ToolFailedError("no Java 17 or newer: run scripts/get_peers.py")
    log4j = KAFKA_LIBS.parent / "log4j2.properties"
    if not log4j.exists() or log4j.read_text() != _QUIET_LOG4J:
        log4j.write_text(_QUIET_LOG4J)
    quiet = f"-Dlog4j2.configurationFile={log4j}"
    return [str(java), *jvm_options, quiet, "-cp", f"{KAFKA_LIBS}/*", main_class, *arguments]


def run_tool(main_class: str, *arguments: str, stdin: str = "", timeout_s: float = 180) -> str:
    """Runs a Java tool, as `org.apache.kafka.tools.TopicCommand`, and returns what it printed to stdout."""
    done = subprocess.run(
        java_command(main_class, *arguments, jvm_options=_TOOL_JVM),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode != 0:
        raise ToolFailedError(f"{main_class} {' '.join(arguments)}\n{done.stdout}{done.stderr}")
    return done.stdout


class ApacheKafka:
    """A broker and controller in one process. Its data stays in `folder` over stop, kill and restart.

    With a `controller` it is a broker alone, of the cluster of that other node: see `ApacheCluster`.

    >>> with ApacheKafka(tmp_path, {"num.partitions": "3"}) as kafka:
    ...     print(kafka.bootstrap)
    """

    name = "apache"

    def __init__(
        self,
        folder: Path,
        overrides: Mapping[str, str] | None = None,
        *,
        heap: str = "512m",
        jvm_options: Sequence[str] = (),
        node_id: int = 1,
        controller: "ApacheKafka | None" = None,
    ) -> None:
        self.folder = folder
        self.data_dir = folder / "data"
        self.node_id = node_id
        self.port = free_port()
        self._overrides = dict(overrides or {})
        self._jvm_options = (f"-Xmx{heap}", *jvm_options)
        self._controller = controller or self
        self._controller_port: int = free_port() if controller is None else controller._controller_port
        self._log = folder / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """The address for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the JVM."""
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it was started and not ended since."""
        return self._process is not None

    def start(self) -> None:
        """Starts the broker, on fresh storage the first time, and returns once it answers."""
        self.launch()
        self.wait_until_answering()

    def launch(self) -> None:
        """The first half of a start: the process is there. It ends with the thread that calls this."""
        settings = self.folder / "server.properties"
        if not settings.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            settings.write_text(_as_properties(self._settings()))
        if not self.data_dir.exists():
            shutil.copytree(self._formatted_storage(), self.data_dir)
        command = java_command("kafka.Kafka", str(settings), jvm_options=self._jvm_options)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                dies_with_parent(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder
            )

    def wait_until_answering(self, *, brokers: int = 1) -> None:
        """The second half of a start: it answers, and knows of so many brokers with itself."""
        assert self._process is not None, "not started"
        try:
            wait_until_answering(self._process, "127.0.0.1", self.port, log=self._log, brokers=brokers)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """A clean stop, as by the operator."""
        if self._process is not None:
            end(self._process)
            self._process = None

    def kill(self) -> None:
        """Death without warning (kill -9)."""
        if self._process is not None:
            kill(self._process)
            self._process = None

    def restart(self) -> None:
        """A clean stop and a start on the same data and port."""
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.stop()

    def _formatted_storage(self) -> Path:
        """Storage as Apache's tool formats it: made once and kept, as that takes a JVM of its own."""
        settings = self._settings()
        formatted = KAFKA_LIBS.parent / f"formatted-{settings['node.id']}"
        if not formatted.exists():
            with tempfile.TemporaryDirectory(dir=KAFKA_LIBS.parent) as scratch:
                made = Path(scratch) / "data"
                file = Path(scratch) / "server.properties"
                file.write_text(_as_properties({**settings, "log.dirs": str(made)}))
                run_tool("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(file))
                # Another run may have been quicker; what it made is as good.
                with contextlib.suppress(OSError):
                    made.rename(formatted)
        return formatted

    def _settings(self) -> dict[str, str]:
        broker = f"PLAINTEXT://127.0.0.1:{self.port}"
        controller = f"127.0.0.1:{self._controller_port}"
        is_controller = self._controller is self
        return {
            "process.roles": "broker,controller" if is_controller else "broker",
            "node.id": str(self.node_id),
            "controller.quorum.voters": f"{self._controller.node_id}@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{broker},CONTROLLER://{controller}" if is_controller else broker,
            "advertised.listeners": broker,
            "log.dirs": str(self.data_dir),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self._overrides,
        }


def _as_properties(settings: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in settings.items())
