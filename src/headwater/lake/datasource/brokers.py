"""A cluster as the data source asks it: one client on a thread of its own, for callers that wait."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

from headwater.client.blocking.client import BlockingClient
from headwater.client.client import Client
from headwater.client.configured import connection_settings
from headwater.client.consumer.settings import ConsumerSettings, consumer_settings
from headwater.config.errors import ConfigError
from headwater.lake.errors import LakeUsageError

T = TypeVar("T")

_DEFAULTS: Final = {
    "isolation.level": "read_committed",
    # A few batches for Spark in one answer; more would only wait in memory.
    "max.partition.fetch.bytes": 4 << 20,
}


def reader_settings(bootstrap: str, settings: Mapping[str, object]) -> ConsumerSettings:
    """A consumer's settings by Kafka's names, with what suits bulk reads where nothing is said."""
    try:
        return consumer_settings({**_DEFAULTS, **settings, "bootstrap.servers": bootstrap})
    except ConfigError as error:
        raise LakeUsageError(f"the client's settings do not fit: {error}") from None


class Brokers(BlockingClient[Client]):
    """A client for a cluster; `run` waits for what an asyncio function makes of it.

    >>> with Brokers("localhost:9092", {}) as brokers:  # doctest: +SKIP
    ...     brokers.run(lambda client: client.metadata())
    """

    def __init__(self, bootstrap: str, settings: Mapping[str, object]) -> None:
        self.bootstrap = bootstrap
        self.settings = reader_settings(bootstrap, settings)
        connection = connection_settings(self.settings.connection, client_id="headwater-lake")
        self._begin("lake's reader", lambda _: Client(bootstrap, connection))

    @property
    def client(self) -> Client:
        """The asyncio client, for functions that `run` runs."""
        return self._client

    def run(self, ask: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """Waits for what `ask` finds out."""
        return self._io.run(ask(self._client))

    def close(self) -> None:
        """Closes the connections and ends the thread."""
        if not self._io.closed:
            try:
                self._io.run(self._client.close())
            finally:
                self._io.abandon()
