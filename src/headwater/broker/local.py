"""A broker inside the calling process: for tests and notebooks.

It runs on an event loop in a thread of its own; several may live side by side.
"""

import asyncio
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import uvloop

from headwater.broker.broker import Broker
from headwater.config import BrokerConfig
from headwater.log.filesystem import FileSystem

_DEFAULTS: Final = {
    "auto.create.topics.enable": "true",
    # A test's group is complete when its one consumer is there: no reason to wait three seconds for more.
    "group.initial.rebalance.delay.ms": "0",
}


class LocalBroker:
    """A real broker on a free port, with temporary data, auto-created topics and groups that start at once.

    `data` keeps the data in a folder of yours instead; `config` takes Kafka's own names; `fs` puts the logs on another
    file system, a `headwater.testing.FaultyFileSystem` say.

    >>> with LocalBroker(config={"num.partitions": 3}) as broker:
    ...     bootstrap = broker.bootstrap
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        data: str | Path | None = None,
        config: Mapping[str, str | int | bool | float] | None = None,
        fs: FileSystem | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._data = data
        self._config = dict(config or {})
        self._fs = fs
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = threading.Event()
        self._stop: asyncio.Event | None = None
        self._failure: BaseException | None = None
        self.bootstrap = ""
        """`host:port` for clients, once started."""
        self.port = 0
        """The port that it listens on, once started."""

    @property
    def data(self) -> Path:
        """The folder that holds the partitions."""
        if self._data is None:
            raise RuntimeError("the broker is not started: its temporary data dir does not exist")
        return Path(self._data)

    def start(self) -> Self:
        """Starts the broker and returns when it serves."""
        if self._thread is not None:
            raise RuntimeError("the broker is started already")
        # Checked before anything is made on the disk.
        config = BrokerConfig.from_values(
            {**_DEFAULTS, "listeners": f"PLAINTEXT://{self._host}:{self._port}", **self._config}
        )
        if "log.dirs" in self._config:
            self._data = config.log_dirs[0] if config.log_dirs else None
        else:
            if self._data is None:
                self._temporary = tempfile.TemporaryDirectory(prefix="headwater-")
                self._data = self._temporary.name
            config = config.merge({"log.dirs": str(self._data)})
        self._started.clear()
        self._failure = None
        self._thread = threading.Thread(target=self._run, args=(config,), name="headwater-broker", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            self._thread.join()
            self._thread = None
            self._remove_temporary()
            raise self._failure
        return self

    def stop(self) -> None:
        """Stops the broker cleanly and removes temporary data. Does nothing when it is stopped."""
        if self._thread is None:
            return
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._thread = None
        self._remove_temporary()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self, config: BrokerConfig) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve(config))

    async def _serve(self, config: BrokerConfig) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        try:
            broker = Broker(config, fs=self._fs)
            await broker.start()
        except BaseException as error:
            self._failure = error
            self._started.set()
            return
        self.bootstrap = broker.bootstrap
        self.port = broker.listening_port
        self._started.set()
        await self._stop.wait()
        await broker.stop()

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None
            self._data = None
