"""A Spark standalone cluster for tests: a master and workers as processes, from the jars that pyspark brings.

Everything listens on free loopback ports and writes below one folder.
"""

import contextlib
import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from headwater.lake.java import find_java
from headwater.lake.spark import SparkSettings

from .processes import dies_with_parent
from .readiness import free_port, tail
from .spark import shared_jars

HOST = "127.0.0.1"
_QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_CONF = {
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": " ".join(_QUICK_JVM),
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": " ".join(_QUICK_JVM),
}


class ClusterNotReadyError(Exception):
    """A part of the cluster ended or did not come up; the message holds its last words."""


class SparkCluster:
    """A master and workers with one core each, for as long as the context lasts.

    >>> with SparkCluster(tmp_path) as cluster, Lake(tmp_path / "warehouse", spark=cluster.settings()) as lake:
    ...     lake.load(…)
    """

    def __init__(self, folder: Path, *, workers: int = 2, timeout_s: float = 120) -> None:
        self.folder = folder
        self.port = free_port()
        self._master_page = free_port()
        self._first_workers = workers
        self._timeout_s = timeout_s
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: dict[str, subprocess.Popen[bytes]] = {}
        self._started = 0

    @property
    def master(self) -> str:
        """What a session takes as its master."""
        return f"spark://{HOST}:{self.port}"

    @property
    def workers(self) -> list[str]:
        """The names of those that are alive."""
        return list(self._workers)

    def settings(self, conf: Mapping[str, str] | None = None) -> SparkSettings:
        """For a lake that works here: small executors, one on each worker."""
        return SparkSettings(master=self.master, conf={**_CONF, **(conf or {})}, more_jars=shared_jars())

    def start(self) -> None:
        """Returns once all workers are known to the master."""
        page = ("--webui-port", str(self._master_page))
        self._master = self._launch("master", "master.Master", "--host", HOST, "--port", str(self.port), *page)
        self._wait("master", self._master, lambda: self._state() is not None)
        self.add_workers(self._first_workers)

    def add_workers(self, count: int = 1) -> None:
        """So many more; returns once the master knows them."""
        for name, port in [self._launch_worker() for _ in range(count)]:
            self._wait(name, self._workers[name], partial(self._knows, port))

    def kill_worker(self, name: str) -> None:
        """Death without warning (kill -9) of a worker and its executors, as of a machine that is switched off."""
        _kill_group(self._workers.pop(name))

    def stop(self) -> None:
        """Ends every process of the cluster."""
        for name in self.workers:
            self.kill_worker(name)
        if self._master is not None:
            _kill_group(self._master)
            self._master = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.stop()

    def _launch_worker(self) -> tuple[str, int]:
        """Its name and its port."""
        self._started += 1
        name, port = f"worker-{self._started}", free_port()
        own = ("--host", HOST, "--port", str(port), "--webui-port", "0", "--work-dir", str(self.folder / name))
        self._workers[name] = self._launch(name, "worker.Worker", *own, "--cores", "1", "--memory", "1g", self.master)
        return name, port

    def _launch(self, name: str, main_class: str, *arguments: str) -> subprocess.Popen[bytes]:
        import pyspark

        java = find_java()
        assert java is not None, "ask `require` first"
        home = Path(pyspark.__file__).parent
        local = self.folder / f"{name}-local"
        local.mkdir(parents=True)
        environment = {
            **os.environ,
            "JAVA_HOME": str(java.resolve().parent.parent),
            "SPARK_HOME": str(home),
            # A worker wants to be told, to start an executor; Spark's scripts know it.
            "SPARK_SCALA_VERSION": "2.13",
            "SPARK_LOCAL_IP": HOST,
            "SPARK_LOCAL_DIRS": str(local),
        }
        options = ("-Xmx256m", *_QUICK_JVM, f"-Djava.io.tmpdir={local}")
        command = [str(java), *options, "-cp", f"{home}/jars/*", f"org.apache.spark.deploy.{main_class}", *arguments]
        with self._log(name).open("ab") as log:
            # Executors are in the process group of their worker, and die with it if the tests do.
            return subprocess.Popen(
                dies_with_parent(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=environment,
                start_new_session=True,
            )

    def _wait(self, name: str, process: subprocess.Popen[bytes], is_up: Callable[[], bool]) -> None:
        deadline = time.monotonic() + self._timeout_s
        while not is_up():
            if process.poll() is not None or time.monotonic() > deadline:
                raise ClusterNotReadyError(f"Spark's {name} is not up:\n{tail(self._log(name))}")
            time.sleep(0.05)

    def _knows(self, port: int) -> bool:
        """Whether the master has a worker there."""
        state = self._state() or {"workers": []}
        return any(worker["port"] == port and worker["state"] == "ALIVE" for worker in state["workers"])

    def _state(self) -> dict[str, Any] | None:
        """What the master tells of itself; None as long as it does not answer."""
        page = f"http://{HOST}:{self._master_page}/json/"
        with contextlib.suppress(OSError, ValueError), urllib.request.urlopen(page, timeout=5) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
        return None

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"


def _kill_group(leader: subprocess.Popen[bytes]) -> None:
    """The leader of a process group and all in it; it stays a group until its leader is waited for."""
    os.killpg(leader.pid, signal.SIGKILL)
    leader.wait()
