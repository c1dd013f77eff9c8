"""headwater as its users start it, `headwater up` in a process, with the same face as the Apache peer."""

import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from .processes import dies_with_parent, end, kill
from .readiness import BrokerNotReadyError, free_port, tail, wait_until_answering

_READY_TIMEOUT_S = 20


class HeadwaterProcess:
    """A broker in a process. Its data stays in `folder` over stop, kill and restart.

    >>> with HeadwaterProcess(tmp_path, {"num.partitions": "3"}) as broker:
    ...     print(broker.bootstrap)
    """

    name = "headwater"

    def __init__(
        self, folder: Path, overrides: Mapping[str, str] | None = None, *, data_dir: Path | None = None
    ) -> None:
        self.folder = folder
        self.data_dir = data_dir or folder / "data"
        self.port = free_port()
        self._overrides = dict(overrides or {})
        self._log = folder / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """The address for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the broker."""
        assert self._process is not None, "not started"
        return self._process.pid

    def start(self) -> None:
        """Starts the broker and returns once its ready line is out and it answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._log.write_bytes(b"")
        command = [str(Path(sys.executable).with_name("headwater")), "up"]
        command += ["--host", "127.0.0.1", "--port", str(self.port), "--data", str(self.data_dir)]
        for name, value in self._overrides.items():
            command += ["-o", f"{name}={value}"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                dies_with_parent(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder
            )
        try:
            self._wait_for_ready_line(self._process)
            wait_until_answering(self._process, "127.0.0.1", self.port, log=self._log)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> int:
        """A clean stop, as by the operator; returns the exit code."""
        process, self._process = self._process, None
        return end(process) if process is not None else 0

    def kill(self) -> None:
        """Death without warning (kill -9)."""
        process, self._process = self._process, None
        if process is not None:
            kill(process)

    def restart(self) -> None:
        """A clean stop and a start on the same data and port."""
        self.stop()
        self.start()

    def output(self) -> str:
        """All that this run of the broker has printed so far."""
        return self._log.read_text(errors="replace")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.stop()

    def _wait_for_ready_line(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while "is ready at" not in self.output():  # with the address that it advertises, which may be another's
            if process.poll() is not None:
                raise BrokerNotReadyError(f"headwater ended with {process.returncode}:\n{tail(self._log)}")
            if time.monotonic() > deadline:
                raise BrokerNotReadyError(f"no ready line within {_READY_TIMEOUT_S} s:\n{tail(self._log)}")
            time.sleep(0.02)
