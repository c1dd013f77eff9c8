"""The catalog as a server: `serve` for a process of its own, `EmbeddedCatalog` within a job's process."""

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterable
from types import FrameType, TracebackType
from typing import Any, Final, Self

import uvicorn

from headwater.catalog.connections import MOST_HEAD_BYTES, BoundedConnection
from headwater.catalog.databases import database_url
from headwater.catalog.doorkeeping import MOST_BODY_BYTES, Door, DoorRules, allowed_name, names_of_listener
from headwater.catalog.object_stores import S3Place, is_s3
from headwater.catalog.places import warehouse_url
from headwater.catalog.rest import catalog_app
from headwater.catalog.tables import LakeCatalog

_DIES_AT: Final = "HEADWATER_CATALOG_DIES_AT"
_START_TIMEOUT_S: Final = 30.0
_STOP_TIMEOUT_S: Final = 5
_KEEP_ALIVE_S: Final = 300


class EmbeddedCatalog:
    """A catalog that this process serves to its own jobs, on a free port of the loopback interface.

    Other programs of the machine reach that port too: with a `token`, only who knows it is served.

    with EmbeddedCatalog("lake/catalog.db", "lake") as catalog:
        client = CatalogClient(catalog.uri)
    """

    def __init__(
        self,
        database: str,
        warehouse: str,
        *,
        token: str | None = None,
        allow_locations: Iterable[str] = (),
        at: Callable[[str], None] | None = None,
    ) -> None:
        self._database = database
        self._warehouse = warehouse
        self._rules = DoorRules(token=token)
        self._allowed = tuple(allow_locations)
        self._at = at
        self.uri = ""

    def __enter__(self) -> Self:
        self._catalog = open_catalog(self._database, self._warehouse, allow_locations=self._allowed, at=self._at)
        self._socket = listen("127.0.0.1", 0)
        self.uri = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        # The logging of the process is its own; a mistake of the catalog is told in its answer.
        self._server = _Server(_configuration(self._catalog, self._rules, log_config=None, log_level="critical"))
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="headwater-catalog", daemon=True
        )
        self._thread.start()
        if not self._server.is_up.wait(_START_TIMEOUT_S):
            raise RuntimeError(f"the embedded catalog did not start within {_START_TIMEOUT_S:.0f} s")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join(2 * _STOP_TIMEOUT_S)
        self._socket.close()
        self._catalog.close()


def serve(
    database: str,
    warehouse: str,
    host: str = "127.0.0.1",
    port: int = 8181,
    *,
    allow_hosts: Iterable[str] = (),
    allow_locations: Iterable[str] = (),
    most_body_bytes: int = MOST_BODY_BYTES,
    ready: Callable[[str], None] = lambda _uri: None,
) -> None:
    """Serves a catalog until SIGINT or SIGTERM. `ready` is called with its address when it can be reached.

    Requests are for the address it listens on, or for one of `allow_hosts`; tables lie in the warehouse or in one of
    `allow_locations`.
    """
    names = frozenset(map(allowed_name, allow_hosts)) | names_of_listener(host)
    catalog = open_catalog(database, warehouse, allow_locations=allow_locations)
    listener = listen(host, port)
    rules = DoorRules(names=names, most_body_bytes=most_body_bytes)
    server = _Server(_configuration(catalog, rules, log_level="error"))
    shown = f"[{host}]" if ":" in host else host
    server.when_up = lambda: ready(f"http://{shown}:{listener.getsockname()[1]}")

    def stop(_signal: int, _frame: FrameType | None) -> None:
        server.should_exit = True

    # uvicorn repeats the signal that stopped it to whom it belonged before; for us, stopping is all that it asks for.
    former = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        server.run(sockets=[listener])
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
        listener.close()
        catalog.close()


def open_catalog(
    database: str,
    warehouse: str,
    *,
    allow_locations: Iterable[str] = (),
    at: Callable[[str], None] | None = None,
) -> LakeCatalog:
    """The catalog of a database and a warehouse, each a path or a URL; ValueError for what cannot be used."""
    dies_at = os.environ.get(_DIES_AT)
    if at is None and dies_at:
        at = die_at(dies_at)
    place = warehouse_url(warehouse)
    io = S3Place.parse(warehouse).iceberg() if is_s3(warehouse) else {}
    return LakeCatalog(database=database_url(database), warehouse=place, allowed=allow_locations, at=at, **io)


def die_at(armed: str) -> Callable[[str], None]:
    """For tests: kills this process when it passes a point for the n-th time, `after-swap:3` say."""
    point, _, count = armed.partition(":")
    left = threading.Semaphore(int(count or "1") - 1)

    def at(passed: str) -> None:
        if passed == point and not left.acquire(blocking=False):
            os.kill(os.getpid(), signal.SIGKILL)

    return at


def listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections from now on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=512)


def _configuration(catalog: LakeCatalog, rules: DoorRules, **logging: Any) -> uvicorn.Config:
    return uvicorn.Config(
        Door(catalog_app(catalog), rules),
        **logging,
        access_log=False,
        lifespan="off",
        http=BoundedConnection,
        ws="none",
        h11_max_incomplete_event_size=MOST_HEAD_BYTES,
        # Nobody's word is taken for who asks, or under which name.
        proxy_headers=False,
        server_header=False,
        # A client that sends on a connection just when we give it up does not know what became of its request.
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_STOP_TIMEOUT_S,
    )


class _Server(uvicorn.Server):
    """Tells when it has started."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = threading.Event()
        self.when_up: Callable[[], None] = lambda: None

    async def startup(self, sockets: list[socket.socket] | None = None) -> Any:
        """Starts, then tells."""
        await super().startup(sockets=sockets)
        self.is_up.set()
        self.when_up()
