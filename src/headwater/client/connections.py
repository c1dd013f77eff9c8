"""The open connections of one client: at most one for each address and lane, opened when needed.

Those who want the same connection wait for the same attempt. An address that failed is left alone for a while, the
longer the more often it failed in a row: whoever wants it then waits that long before the attempt. Connections that
nobody uses are closed.
"""

import asyncio
import functools
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from headwater.client.addresses import Address
from headwater.client.back_off import BackOff, ReconnectSchedule
from headwater.client.connection import Connection
from headwater.client.errors import ClientError, ClosedError
from headwater.client.settings import ConnectionSettings
from headwater.client.statistics import ClientStatistics


class Way(NamedTuple):
    """What a connection is for. Answers come in order, so what may wait long in a broker goes by a lane of its own."""

    address: Address
    lane: str


class Connections:
    """See the module's docstring. `on_lost` hears of attempts that fail and connections that others end."""

    def __init__(
        self,
        settings: ConnectionSettings,
        statistics: ClientStatistics,
        chance: Random,
        on_lost: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._statistics = statistics
        self._chance = chance
        self._on_lost = on_lost
        self._back_off = BackOff(settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms)
        self._schedules: dict[Address, ReconnectSchedule] = {}
        self._open: dict[Way, Connection] = {}
        self._opening: dict[Way, asyncio.Task[Connection]] = {}
        self._idle_timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def get(self, address: Address, lane: str = "") -> Connection:
        """The connection to an address, opened if it is not open; errors name the address."""
        way = Way(address, lane)
        connection = self._open.get(way)
        if connection is not None and connection.usable:
            return connection
        if self._is_closed:
            raise ClosedError("the client is closed")
        attempt = self._opening.get(way)
        if attempt is None:
            attempt = self._opening[way] = asyncio.create_task(self._connect(way), name=f"connect to {address}")
            attempt.add_done_callback(functools.partial(self._attempted, way))
        # Whoever stops waiting leaves the attempt to the others, and to whoever comes next.
        try:
            return await asyncio.shield(attempt)
        except asyncio.CancelledError:
            if self._is_closed and attempt.cancelled():
                raise ClosedError("the client was closed") from None
            raise

    def least_busy(self) -> Connection | None:
        """Of the usable connections the one that owes the fewest answers; the common lane before others."""
        usable = [(c.in_flight, bool(way.lane), i, c) for i, (way, c) in enumerate(self._open.items()) if c.usable]
        return min(usable)[-1] if usable else None

    def wait_ms(self, address: Address) -> float:
        """How long an attempt to connect to this address would wait before it begins."""
        schedule = self._schedules.get(address)
        return 0.0 if schedule is None else schedule.wait_ms(self._now_ms())

    async def close(self) -> None:
        """Closes every connection and gives up attempts; no more can be had."""
        self._is_closed = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        attempts = list(self._opening.values())
        for attempt in attempts:
            attempt.cancel()
        if attempts:
            await asyncio.wait(attempts)
        closing, self._open = list(self._open.values()), {}
        await asyncio.gather(*(connection.close() for connection in closing))

    async def _connect(self, way: Way) -> Connection:
        schedule = self._schedules.get(way.address)
        if schedule is None:
            schedule = self._schedules[way.address] = ReconnectSchedule(self._back_off)
        await asyncio.sleep(schedule.wait_ms(self._now_ms()) / 1000)
        statistics = self._statistics.of(way.address)
        try:
            connection = await Connection.open(way.address, self._settings, statistics=statistics)
        except ClientError:
            self._failed(way.address)
            self._on_lost()
            raise
        schedule.succeeded()
        statistics.connects += 1
        connection.on_lost = functools.partial(self._lost, way)
        self._open[way] = connection
        self._watch_idleness()
        return connection

    def _attempted(self, way: Way, attempt: "asyncio.Task[Connection]") -> None:
        del self._opening[way]
        if not attempt.cancelled():
            attempt.exception()  # nobody may have waited for it to the end, and that is fine

    def _lost(self, way: Way, _: ClientError) -> None:
        self._open.pop(way, None)
        self._failed(way.address)
        self._on_lost()

    def _failed(self, address: Address) -> None:
        self._statistics.of(address).failures += 1
        self._schedules[address].failed(self._now_ms(), self._chance.random())

    def _watch_idleness(self) -> None:
        limit_s = self._settings.connections_max_idle_ms / 1000
        if limit_s >= 0 and self._idle_timer is None and self._open:
            next_s = min(limit_s - connection.idle_s for connection in self._open.values())
            # Rounded up: a timer that comes a moment early would be set again and again.
            self._idle_timer = asyncio.get_running_loop().call_later(max(next_s, 0.0) + 0.01, self._close_idle)

    def _close_idle(self) -> None:
        self._idle_timer = None
        limit_s = self._settings.connections_max_idle_ms / 1000
        for way, connection in list(self._open.items()):
            if connection.idle_s >= limit_s:
                del self._open[way]
                connection.end(f"was closed: it was not used for {limit_s:g} s")
        self._watch_idleness()

    def _now_ms(self) -> float:
        return asyncio.get_running_loop().time() * 1000
