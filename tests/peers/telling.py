"""A peer that is a process and tells each of its steps as a line of JSON. Standard library only."""

import json
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from .processes import dies_with_parent, kill

_PATIENCE_S = 60


class TellingProcess:
    """What the process says is read on a thread, and taken over by `follow` when the test wants to know.

    A peer of this kind says what an event means to it (`heard`) and how it is asked to end (`ask_to_end`).
    """

    def __init__(self, command: Sequence[str], *, environment: Mapping[str, str] | None = None) -> None:
        self.events: list[dict[str, Any]] = []
        self._told: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.process = subprocess.Popen(
            dies_with_parent(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.stop()

    def heard(self, event: dict[str, Any]) -> None:
        """Takes over one event."""
        raise NotImplementedError

    def ask_to_end(self) -> None:
        """Lets it end in good order."""
        raise NotImplementedError

    def follow(self) -> None:
        """Takes over what it has said since."""
        while not self._told.empty():
            event = self._told.get()
            self.events.append(event)
            self.heard(event)

    def stop(self) -> None:
        """Asks it to end, waits, and reads its last words. Once is enough; more do nothing."""
        if self.process.poll() is None:
            self.ask_to_end()
        try:
            self.process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            kill(self.process)
        self._reader.join(_PATIENCE_S)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        self.follow()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(b"{"):
                self._told.put(json.loads(line))


def follow_until(condition: Callable[[], object], what: str, *peers: TellingProcess) -> None:
    """Follows all until the condition holds."""
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        said = "; ".join(str(peer.events[-5:]) for peer in peers)
        assert time.monotonic() < deadline, f"not within {_PATIENCE_S} s: {what}; last said: {said}"
        time.sleep(0.02)
        for peer in peers:
            peer.follow()
