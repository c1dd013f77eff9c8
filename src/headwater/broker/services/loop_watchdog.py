"""Watches how long the turns of the event loop take: while one lasts, nobody else is served.

A timer that fires late tells of any long turn. The connections tell which requests took long, the dispatcher which ones
are being worked on. Both cost next to nothing: one timer and, in a connection, one look at the clock a request.

It only watches; a turn that is too long is a fault of what ran in it.
"""

import asyncio
import logging
import struct
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from itertools import chain, islice
from typing import Final, NamedTuple

from headwater.net.connection import Connection
from headwater.protocol.apis import SERVED

logger = logging.getLogger(__name__)

_INTERVAL_S: Final = 0.02
_LIMIT_S: Final = 0.05
_WAIT_LIMIT_S: Final = 1.0
"""A pause in which this process hardly ran says something about the machine; a warning is due only from here on."""
_LOG_INTERVAL_S: Final = 5.0
_NAMED: Final = 3
_HEAD: Final = struct.Struct(">hh")
OTHER: Final = "other"
"""Stands for the API when a turn was long without a long request: a timer, a job, many requests one after another."""


class _LongRequest(NamedTuple):
    seconds: float
    api: str
    words: str


class LoopWatchdog:
    """Measures the loop that it is started on. `under_way` lists, in words, the requests that are being worked on.

    A turn counts when the timer was late by 50 ms, or when one request took so long. The timer looks every 20 ms, so a
    turn of up to 70 ms that no single request fills may escape it.
    """

    def __init__(self, under_way: Callable[[], Iterable[str]]) -> None:
        self._under_way = under_way
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0
        self._cpu_s = 0.0
        self._long_requests: list[_LongRequest] = []
        self._ended: deque[object] = deque(maxlen=_NAMED)
        self._logged_s = float("-inf")
        self._not_logged = 0
        self.long_turns: Counter[str] = Counter()
        """How many turns took more than 50 ms, by the name of the API that took most of it, or OTHER."""
        self.worst_s = 0.0
        """The longest turn so far."""
        self.worst_held_s = 0.0
        """The longest turn so far, of each only the time in which this process was running: other processes do not
        count. Time that threads of this process took from the loop does."""

    def start(self) -> None:
        """Begins to watch."""
        self._due_s, self._cpu_s = time.monotonic() + _INTERVAL_S, time.process_time()
        self._timer = self._loop.call_later(_INTERVAL_S, self._look)

    def stop(self) -> None:
        """Ends the watch."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def reset(self) -> None:
        """Forgets the worst turns so far, for a measurement that begins now."""
        self.worst_s = self.worst_held_s = 0.0

    def request_took(self, connection: Connection, frame: memoryview, seconds: float) -> None:
        """A request held the loop for so long."""
        api, words = _described(frame)
        words = f"{words} of {connection.peer}"
        self._long_requests.append(_LongRequest(seconds, api, words))

    def work_ended(self, work: object) -> None:
        """Work on a request ended, which `under_way` does not list any more. In words only when they are needed."""
        self._ended.append(work)

    def _look(self) -> None:
        now_s, cpu_s = time.monotonic(), time.process_time()
        late_s, running_s = now_s - self._due_s, cpu_s - self._cpu_s
        requests, self._long_requests = self._long_requests, []
        requests.sort(reverse=True)
        seconds = max(late_s, requests[0].seconds) if requests else late_s
        held_s = min(seconds, running_s)
        self.worst_s = max(self.worst_s, seconds)
        self.worst_held_s = max(self.worst_held_s, held_s)
        if seconds >= _LIMIT_S:
            self.long_turns[requests[0].api if requests else OTHER] += 1
            self._tell(now_s, seconds, held_s, requests)
        self._ended.clear()
        self._due_s, self._cpu_s = time.monotonic() + _INTERVAL_S, cpu_s
        self._timer = self._loop.call_later(_INTERVAL_S, self._look)

    def _tell(self, now_s: float, seconds: float, held_s: float, requests: list[_LongRequest]) -> None:
        if not requests and held_s < _LIMIT_S / 2 and seconds < _WAIT_LIMIT_S:
            logger.debug("nobody was served for %.0f ms: this process waited for a processor or a disk", seconds * 1000)
            return
        if now_s - self._logged_s < _LOG_INTERVAL_S:
            self._not_logged += 1
            return
        took = [f"{request.words}: {request.seconds * 1000:.0f} ms" for request in requests[:_NAMED]]
        words = ", ".join(took) or "no single request took long"
        under_way = ", ".join(islice(chain(map(str, self._ended), self._under_way()), _NAMED))
        logger.warning(
            "nobody was served for %.0f ms (%.0f ms of work here, the rest waiting for a processor or a disk): %s%s%s",
            seconds * 1000,
            held_s * 1000,
            words,
            f"; in work: {under_way}" if under_way else "",
            f"; {self._not_logged} more such pauses since the last line" if self._not_logged else "",
        )
        self._logged_s, self._not_logged = now_s, 0


def _described(frame: memoryview) -> tuple[str, str]:
    """The API's name, and the request in words."""
    if len(frame) < _HEAD.size:
        return OTHER, f"a frame of {len(frame)} bytes"
    key, version = _HEAD.unpack_from(frame)
    name = SERVED[key].name if key in SERVED else f"api key {key}"
    return name, f"{name} v{version} ({len(frame)} bytes)"
