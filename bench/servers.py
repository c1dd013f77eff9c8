"""The brokers under test as real processes: headwater, and Apache Kafka as a KRaft single node."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import wire

# A deleted topic's files go within a second (the default is a minute), so that the disk holds one round.
DELETE_DELAY = "log.segment.delete.delay.ms"
DELETE_DELAY_MS = 1000
# What Apache's own start script sets.
_JVM_OPTIONS = (
    "-Xms1G",
    "-Xmx1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)
# By Kafka's names.
Settings = Mapping[str, object]
_CLUSTER_ID = "bmVhci1oZWFkd2F0ZXItMQ"


class ServerError(RuntimeError):
    """A broker cannot be found, did not come up, or did not stop."""


_ports: dict[Path, tuple[int, int]] = {}


def ports_of(data: Path) -> tuple[int, int]:
    """Two free ports of the loopback interface; a broker started again on its folder gets its old ones."""
    if data not in _ports:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            second.bind(("127.0.0.1", 0))
            _ports[data] = first.getsockname()[1], second.getsockname()[1]
    return _ports[data]


@dataclass(slots=True, kw_only=True)
class Running:
    """A broker process."""

    name: str
    process: "subprocess.Popen[bytes]"
    port: int
    data: Path
    output: Path
    begin: float

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    def wait_until_it_answers(self, timeout_s: float = 120.0) -> float:
        """Seconds from process start to the first answered ApiVersions."""
        while not wire.answers(self.port):
            self.fail_if_gone(timeout_s)
            time.sleep(0.002)
        return time.perf_counter() - self.begin

    def wait_until_led(self, topic_prefix: str, partitions: int, timeout_s: float = 180.0) -> float:
        """Seconds from process start until all these partitions are reported with a leader."""
        self.wait_until_it_answers(timeout_s)
        while wire.led_partitions(self.port, topic_prefix) < partitions:
            self.fail_if_gone(timeout_s)
            time.sleep(0.02)
        return time.perf_counter() - self.begin

    def fail_if_gone(self, timeout_s: float) -> None:
        """Raises when the process has ended or is slower than this."""
        code = self.process.poll()
        slow = time.perf_counter() - self.begin > timeout_s
        if code is None and not slow:
            return
        state = f"is not ready after {timeout_s:.0f} s" if code is None else f"ended with exit code {code}"
        raise ServerError(f"{self.name} {state}; the end of its output:\n{self.last_words()}")

    def last_words(self) -> str:
        """The end of what the process printed."""
        return self.output.read_text(errors="replace")[-1500:]

    def stop(self, timeout_s: float = 180.0) -> None:
        """A clean stop: SIGTERM, then wait."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerError(f"{self.name} did not stop within {timeout_s:.0f} s of SIGTERM") from None

    def kill(self) -> None:
        """An end without questions."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Kind(Protocol):
    """A broker that can be started on a data folder, empty or used."""

    name: str

    def version(self) -> str:
        """Name and version for the report."""

    def start(self, data: Path) -> Running:
        """Starts the process and returns at once."""


def _spawn(name: str, command: list[str], port: int, data: Path) -> Running:
    output = data.with_suffix(".out")
    with output.open("ab") as stream:
        begin = time.perf_counter()
        # A session of its own: Ctrl-C reaches the benchmark, which then stops its brokers.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True
        )
    return Running(name=name, process=process, port=port, data=data, output=output, begin=begin)


class Headwater:
    """`headwater up` from the environment that runs the benchmark; `profile` takes cProfile's figures."""

    name = "headwater"

    def __init__(self, profile: Path | None = None, settings: Settings | None = None) -> None:
        self._profile = profile
        self._settings = {DELETE_DELAY: DELETE_DELAY_MS, **(settings or {})}
        self._command = Path(sys.executable).parent / "headwater"
        if not self._command.exists():
            raise ServerError(f"there is no {self._command}: run `make setup` first")

    def version(self) -> str:
        """Name and version for the report."""
        from importlib.metadata import version

        return f"headwater {version('headwater')} on Python {sys.version.split()[0]}"

    def start(self, data: Path) -> Running:
        """Starts `headwater up` on this folder."""
        port, _ = ports_of(data)
        data.mkdir(parents=True, exist_ok=True)
        command = [str(self._command), "up", "--port", str(port), "--data", str(data)]
        if self._profile:
            command = [sys.executable, "-m", "cProfile", "-o", str(self._profile), *command]
        for name, value in self._settings.items():
            command += ["-o", f"{name}={value}"]
        return _spawn(self.name, command, port, data)


class ApacheKafka:
    """Apache Kafka from its jars."""

    def __init__(self, libs: Path, work: Path, name: str = "Apache Kafka", settings: Settings | None = None) -> None:
        self.name = name
        self._settings = settings or {}
        jars = sorted(libs.glob("kafka_2.13-*.jar"))
        java = os.environ.get("JAVA_HOME")
        self._java = str(Path(java) / "bin" / "java") if java else shutil.which("java") or ""
        if not jars:
            raise ServerError(f"no Apache Kafka in {libs}: name the folder of its jars with --kafka-libs")
        if not self._java:
            raise ServerError("Apache Kafka needs Java 17 or newer: install it or set JAVA_HOME")
        self._jar_version = jars[-1].stem.removeprefix("kafka_2.13-")
        self._classpath = f"{libs}/*"
        self._template = work / f"{name} template"

    def version(self) -> str:
        """Name and version for the report."""
        printed = subprocess.run([self._java, "-version"], capture_output=True, text=True, check=True).stderr
        return f"Apache Kafka {self._jar_version} (KRaft, 1 GiB heap) on {printed.splitlines()[0]}"

    def start(self, data: Path) -> Running:
        """Formats the folder when it is new, then starts the node."""
        port, controller_port = ports_of(data)
        properties = data.with_suffix(".properties")
        properties.parent.mkdir(parents=True, exist_ok=True)
        properties.write_text(self._properties(data, port, controller_port))
        if not data.exists():
            self._format(properties, data)
        # Native libraries are unpacked there, and must go with the rest.
        options = [*_JVM_OPTIONS, f"-Djava.io.tmpdir={properties.parent}"]
        command = [self._java, *options, "-cp", self._classpath, "kafka.Kafka", str(properties)]
        return _spawn(self.name, command, port, data)

    def _properties(self, data: Path, port: int, controller_port: int) -> str:
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": data,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            DELETE_DELAY: DELETE_DELAY_MS,
            **self._settings,
        }
        return "".join(f"{name}={value}\n" for name, value in settings.items())

    def _format(self, properties: Path, data: Path) -> None:
        if not self._template.exists():
            command = [self._java, "-cp", self._classpath, "kafka.tools.StorageTool", "format"]
            ran = subprocess.run(
                [*command, "-t", _CLUSTER_ID, "-c", str(properties)],
                capture_output=True,
                text=True,
                check=False,
            )
            if ran.returncode:
                raise ServerError(f"Apache Kafka's storage was not formatted:\n{ran.stdout}{ran.stderr}")
            shutil.copytree(data, self._template)
            shutil.rmtree(data)
        shutil.copytree(self._template, data)
