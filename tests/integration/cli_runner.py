"""Runs the `headwater` command as a user does: a process of its own, with pipes."""

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HEADWATER = str(Path(sys.executable).with_name("headwater"))


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def rows(self) -> list[list[str]]:
        """The cells of a printed table without its heading."""
        return [line.split() for line in self.out.splitlines()[1:]]


class Started:
    """A running command."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self.stdin = process.stdin
        self.stdout = process.stdout

    def write(self, text: str) -> None:
        """Types `text`."""
        self.stdin.write(text.encode())
        self.stdin.flush()

    def line(self) -> str:
        """The next line it prints."""
        return self.stdout.readline().decode()

    def finish(self, number: signal.Signals | None = None, timeout_s: float = 60) -> Done:
        """Waits for its end: by the signal, or by the end of its input."""
        if number is not None:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=timeout_s)
        return Done(self.process.returncode, out.decode(), err.decode())


@dataclass(frozen=True, slots=True)
class Cli:
    """The command, aimed at one cluster."""

    bootstrap: str

    def __call__(self, *arguments: str, stdin: str | bytes = b"", timeout_s: float = 60) -> Done:
        """Runs to the end, whatever that is."""
        done = subprocess.run(
            [HEADWATER, *arguments],
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            env=self.environment(),
            timeout=timeout_s,
            check=False,
        )
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    def ok(self, *arguments: str, stdin: str | bytes = b"", timeout_s: float = 60) -> Done:
        """Runs a command that must succeed without a word on stderr."""
        done = self(*arguments, stdin=stdin, timeout_s=timeout_s)
        assert (done.code, done.err) == (0, ""), done
        return done

    @contextmanager
    def started(self, *arguments: str) -> Iterator[Started]:
        """A command that runs beside the test, and ends with it at the latest."""
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            [HEADWATER, *arguments], stdin=pipe, stdout=pipe, stderr=pipe, env=self.environment()
        )
        try:
            yield Started(process)
        finally:
            process.kill()
            process.communicate()

    def environment(self) -> dict[str, str]:
        return os.environ | {"HEADWATER_BOOTSTRAP": self.bootstrap}

    def new_topic(self, *options: str) -> str:
        name = f"cli-{uuid.uuid4().hex[:8]}"
        self.ok("topics", "create", name, *options)
        return name
