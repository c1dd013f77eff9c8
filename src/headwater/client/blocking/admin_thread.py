"""What the blocking Admin stands on: how it begins and ends. Its methods are written by `scripts/blocking_admin.py`."""

from collections.abc import Mapping
from typing import Self

from headwater.client.admin.admin import Admin as AsyncAdmin
from headwater.client.blocking.client import BlockingClient
from headwater.client.statistics import ClientStatistics


class AdminThread(BlockingClient[AsyncAdmin]):
    """An asyncio Admin whose calls any number of threads may wait for."""

    def __init__(self, bootstrap: str, **settings: object) -> None:
        self._begin("admin", lambda _: AsyncAdmin(bootstrap, **settings))

    @classmethod
    def from_config(cls, config: Mapping[str, object]) -> Self:
        """An admin client with settings by Kafka's own names.

        >>> admin = Admin.from_config({"bootstrap.servers": "localhost:9092", "request.timeout.ms": 5000})
        """
        made = cls.__new__(cls)
        made._begin("admin", lambda _: AsyncAdmin.from_config(config))
        return made

    @property
    def statistics(self) -> ClientStatistics:
        """What the connections have done so far."""
        return self._client.statistics

    def close(self) -> None:
        """Closes all connections and ends the thread; calls that other threads wait for fail with `ClosedError`."""
        if self._io.closed:
            return
        try:
            self._io.run(self._client.close())
        finally:
            self._io.abandon()
