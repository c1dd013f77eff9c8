"""A broker in a process of its own that tells what its watchdog saw.

It is a script, `watched_broker.py DATA NAME=VALUE…`, with a class that runs it. The script prints its port, then
answers each line on its input with one of JSON: the worst turns of its event loop since the line before. It ends with
its input.
"""

import asyncio
import gc
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import uvloop

from headwater.broker.broker import Broker
from headwater.config import BrokerConfig


class WatchedBroker:
    """The process, from the side of a test."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self.log = folder / "watched-broker.log"
        command = [sys.executable, __file__, str(folder / "data"), *[f"{name}={settings[name]}" for name in settings]]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        self.pid = self._process.pid
        self.bootstrap = f"127.0.0.1:{self._answer()}"

    def worst_turns(self) -> dict[str, Any]:
        """The worst turns since this was asked before."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        return dict(self._answer())

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the broker ended:\n{self.log.read_text(errors='replace')}"
        return json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        finally:
            self._process.kill()
            self._process.stdout.close()


async def _run(data: str, settings: list[str]) -> None:
    values = dict(setting.split("=", 1) for setting in settings)
    broker = Broker(BrokerConfig.from_values({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": data, **values}))
    await broker.start()
    # As `headwater up` does.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    ended = asyncio.Event()
    told = Counter[str]()

    def asked() -> None:
        if not os.read(0, 100):
            ended.set()
            return
        watchdog = broker.watchdog
        seen = {
            "worst_s": watchdog.worst_s,
            "worst_held_s": watchdog.worst_held_s,
            "long_turns": dict(watchdog.long_turns - told),
        }
        watchdog.reset()
        told.update(watchdog.long_turns - told)
        print(json.dumps(seen), flush=True)

    asyncio.get_running_loop().add_reader(0, asked)
    print(broker.listening_port, flush=True)
    await ended.wait()
    await broker.stop()


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    uvloop.run(_run(sys.argv[1], sys.argv[2:]))
