"""One side of the lake's benchmark from outside: its process, what it takes, and whether its answers are right."""

import json
import os
import select
import subprocess
import sys
import threading
import uuid
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import procstat
from lake_data import Totals, Written
from lake_jobs import SCAN
from shapes import ShapeError

_WORKER = Path(__file__).with_name("lake_worker.py")
_PATIENCE_S = 180
_STOP_S = 30
_SAMPLE_EVERY_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a job took: time, CPU of all its processes, and the most memory that they had together."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int


class PeakMemory:
    """The most that a process and its children hold while the context lasts, by samples."""

    def __init__(self, pid: int) -> None:
        self.peak_bytes = 0
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        ended = False
        while not ended:
            self.peak_bytes = max(self.peak_bytes, procstat.resident_bytes(self._pid))
            ended = self._ended.wait(_SAMPLE_EVERY_S)


class RunningSide:
    """A `lake_worker.py` with its Spark, for one side; it ends with the context."""

    def __init__(self, name: str, work: Path, *, catalog: str, bootstrap: str) -> None:
        folder = work / name
        folder.mkdir()
        self._name = name
        self._output = work / f"{name}.out"
        task = {"folder": str(folder), "catalog": catalog, "bootstrap": bootstrap}
        with self._output.open("ab") as stream:
            self._process = subprocess.Popen(
                [sys.executable, str(_WORKER), json.dumps(task)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                text=True,
                env={**os.environ, "TMPDIR": str(folder)},
                start_new_session=True,
            )
        self.spark_version = ""

    def __enter__(self) -> Self:
        try:
            self.spark_version = self._answer()["spark"]
        except ShapeError:
            self._process.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Its input ends, and so does it; Spark ends with it in any case."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def run(self, side: str, job: str, written: Written) -> Done:
        """Does the job once, as a side does it; a `ShapeError` unless it finds, or puts away, what was written."""
        table = f"bench.t_{uuid.uuid4().hex[:8]}"
        self._ask("tidy", side, job, table)
        cpu_before_s = procstat.tree_cpu_seconds(self._process.pid)
        with PeakMemory(self._process.pid) as memory:
            answer = self._ask("run", side, job, table, topic=written.topic)
        cpu_seconds = procstat.tree_cpu_seconds(self._process.pid) - cpu_before_s
        found = answer["totals"] if job == SCAN else self._ask("check", side, job, table)["totals"]
        check(f"{side}, {job}", tuple(found), written.totals)
        return Done(seconds=answer["seconds"], cpu_seconds=cpu_seconds, peak_bytes=memory.peak_bytes)

    def _ask(self, do: str, side: str, job: str, table: str, **more: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, "side": side, "job": job, "table": table, **more}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failed("ended") from None
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], _PATIENCE_S)
        if not ready:
            raise self._failed(f"has not answered for {_PATIENCE_S} s")
        line = self._process.stdout.readline()
        if not line:
            raise self._failed("ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _failed(self, what: str) -> ShapeError:
        last_lines = "\n".join(self._output.read_text(errors="replace").splitlines()[-12:])
        return ShapeError(f"the Spark of '{self._name}' {what}:\n{last_lines}")


def check(who: str, found: Totals, written: Totals) -> None:
    """A side that has not found what was written has no figure."""
    if found != written:
        raise ShapeError(f"{who}: the totals are {found} and must be {written}")
