"""The demo's broker: `headwater up` as a process of its own on a free port, and its temporary data dir."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, TypeVar

from headwater.cli.demo_interrupts import Interrupts
from headwater.cli.waiting import readable

T = TypeVar("T")

_READY_TIMEOUT_S: Final = 30.0
_STOP_TIMEOUT_S: Final = 30.0
_LOOK_INTERVAL_S: Final = 0.2
_LAST_GASP_S: Final = 1.0


class DemoError(Exception):
    """What is wrong, as a sentence."""


@dataclass(slots=True, eq=False)
class DemoBroker:
    """A broker that was started; `stop` ends it."""

    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    interrupts: Interrupts
    bootstrap: str = ""
    start_s: float = 0.0

    def wait_until_ready(self, started_s: float) -> None:
        """Returns when the broker has said where it listens."""
        assert self.process.stdout is not None
        while not readable(self.process.stdout.fileno(), _LOOK_INTERVAL_S):
            self.interrupts.check()
            if time.perf_counter() - started_s > _READY_TIMEOUT_S:
                raise DemoError(f"the broker was not ready within {_READY_TIMEOUT_S:g} s; {self._last_words()}")
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            raise DemoError(self.how_it_ended())
        self.start_s = time.perf_counter() - started_s
        self.bootstrap = json.loads(line)["bootstrap"]

    async def while_alive(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, which the end of the broker ends: a client alone would wait for its return."""
        from headwater.client import ClientError

        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                self.interrupts.check()
                await asyncio.wait([task], timeout=_LOOK_INTERVAL_S)
                if not task.done() and self.process.poll() is not None:
                    raise DemoError(self.how_it_ended())
            return task.result()
        except ClientError as error:
            # A connection that is lost may be the first sign of a broker that is just ending.
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_LAST_GASP_S)
                raise DemoError(self.how_it_ended()) from None
            raise DemoError(str(error)) from error
        finally:
            # A producer that is cancelled still waits for what it has sent; told once more, it gives that up.
            while not task.done():
                task.cancel()
                await asyncio.wait([task], timeout=_LOOK_INTERVAL_S)
            if not task.cancelled():
                task.exception()  # asyncio would tell of one that nobody has asked for

    def stop(self) -> float:
        """Stops the broker as Ctrl-C would and returns the seconds that took. It must end with exit code 0."""
        if self.process.poll() is not None:
            raise DemoError(self.how_it_ended())
        started_s = time.perf_counter()
        self.process.terminate()
        try:
            code = self.process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise DemoError(f"the broker did not stop within {_STOP_TIMEOUT_S:g} s of SIGTERM") from None
        if code != 0:
            raise DemoError(self.how_it_ended())
        return time.perf_counter() - started_s

    def end(self) -> None:
        """Makes sure that the process is gone, one way or the other."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def how_it_ended(self) -> str:
        """Why there is no broker any more."""
        code = self.process.returncode
        how = f"was killed by signal {-code}" if code < 0 else f"ended by itself with exit code {code}"
        return f"the broker {how}; {self._last_words()}"

    def _last_words(self) -> str:
        self.errors.seek(0)
        lines = self.errors.read().decode("utf-8", "replace").strip().splitlines()
        return f"its last words: {lines[-1]}" if lines else "it gave no reason"


@contextmanager
def running_broker(data: Path, interrupts: Interrupts, settings: Mapping[str, object]) -> Iterator[DemoBroker]:
    """A broker with these settings that serves `data`, gone at the end."""
    command = [sys.executable, "-m", "headwater.cli.main", "up", "--port", "0", "--data", str(data), "--json"]
    command += [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]
    with ExitStack() as stack:
        errors = stack.enter_context(tempfile.TemporaryFile())
        started_s = time.perf_counter()
        # A process group of its own, so that Ctrl-C reaches the demo alone, which then stops the broker.
        process = subprocess.Popen(  # noqa: S603 (it is this very program)
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, process_group=0
        )
        broker = DemoBroker(stack.enter_context(process), errors, interrupts)
        stack.callback(broker.end)
        broker.wait_until_ready(started_s)
        yield broker


@contextmanager
def data_dir(*, keep: bool) -> Iterator[Path]:
    """A new folder among the temporary ones, removed at the end unless it is to be kept."""
    try:
        path = Path(tempfile.mkdtemp(prefix="headwater-demo-"))
    except OSError as error:
        raise DemoError(f"cannot make a temporary folder: {error}") from None
    try:
        yield path
    finally:
        if not keep:
            shutil.rmtree(path, ignore_errors=True)


def demand_space(path: Path, needed_bytes: int) -> None:
    """A disk that is too small is known before anything is written."""
    free_bytes = shutil.disk_usage(path).free
    if free_bytes < needed_bytes:
        raise DemoError(
            f"{os.path.dirname(path)} has {free_bytes / 1e6:,.0f} MB free and the demo needs "
            f"{needed_bytes / 1e6:,.0f} MB; use fewer --records, or set TMPDIR to a folder on a larger disk"
        )
