"""What becomes of a sent record: a light handle on the batch that it travels in.

A handle is a batch's delivery and an index. Whoever waits, in a thread or on an event loop, waits for the delivery:
a million records in flight have a million handles and a few thousand deliveries, and no future. Compiled by Cython
(pure Python mode) and correct without it; `handles.pxd` is its C side. Nothing here knows a clock or a connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from headwater.client.errors import ForkedError

_log = logging.getLogger(__name__)

_LONGEST_WAIT_S = 0.1

PENDING = 0
DONE = 1
FAILED = 2
SPLIT = 3


class RecordMetadata(NamedTuple):
    """Where a record was written. `offset` is -1 when the broker was asked for no answer (acks=0)."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


OnDelivery: TypeAlias = "Callable[[Exception | None, RecordMetadata | None], object]"
"""Called once when the record is settled: with an error and no metadata, or with no error and metadata."""


class Delivery:
    """What becomes of the records of one batch: pending until it is done, failed, or split into smaller deliveries.

    The sender's thread settles it, any thread may wait; a process that was forked off meanwhile has no such thread, and
    gets a `ForkedError`. Its C attributes are declared in `handles.pxd`.
    """

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.state: int = PENDING
        self.base_offset: int = -1
        self.append_time_ms: int = -1
        self.error: Exception | None = None
        self.record_errors: dict[int, Exception] = {}
        # First index and delivery of each part of a batch that was split.
        self.parts: list[tuple[int, Delivery]] = []
        # Handles and their callbacks in turns: a pair for each would be work for the garbage collector.
        self.on_delivery: list[Any] = []
        self.callbacks: list[tuple[SendHandle, Callable[[SendHandle], object]]] = []
        self.event: threading.Event | None = None
        self.futures: list[asyncio.Future[None]] | None = None
        self.lock = threading.Lock()
        self.process_id: int = os.getpid()

    def complete(self, base_offset: int, append_time_ms: int) -> None:
        """The broker has them, from this offset on; at this time, if it is the broker that tells the time."""
        self._settle(DONE, base_offset=base_offset, append_time_ms=append_time_ms)

    def fail(self, error: Exception, record_errors: Mapping[int, Exception] | None = None) -> None:
        """None of them was written. Some records may have errors of their own, by index."""
        self._settle(FAILED, error=error, record_errors=record_errors)

    def split(self, parts: Sequence[tuple[int, Delivery]]) -> None:
        """The records travel on in these deliveries, of which each begins at an index here."""
        with self.lock:
            if self.state != PENDING:
                raise RuntimeError(f"the batch for {self.topic}-{self.partition} is settled already")
            self.parts = list(parts)
            self.state = SPLIT
            for index in range(0, len(self.on_delivery), 2):
                handle: SendHandle = self.on_delivery[index]
                handle.place()[1].on_delivery.extend(self.on_delivery[index : index + 2])
            for handle, callback in self.callbacks:
                handle.place()[1].add_callback(handle, callback)
            self.on_delivery = []
            self.callbacks = []
            event, futures = self._waiters()
        # Whoever waits looks again, and waits for its part.
        _wake(event, futures)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Blocks this thread until nothing is pending here, nor in the parts of what was split."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while self.state == PENDING:
            if not self._wait_for_change(deadline_s):
                return False
        return all(part.wait(_left(deadline_s)) for _, part in self.parts)

    async def settled(self) -> None:
        """The same on the running event loop."""
        while (future := self._future()) is not None:
            await future
        for _, part in self.parts:
            await part.settled()

    def add_callback(self, handle: SendHandle, callback: Callable[[SendHandle], object]) -> bool:
        """Calls back when this is settled; False if it is no longer pending."""
        self._check_process()
        with self.lock:
            if self.state != PENDING:
                return False
            self.callbacks.append((handle, callback))
            return True

    def _settle(
        self,
        state: int,
        *,
        base_offset: int = -1,
        append_time_ms: int = -1,
        error: Exception | None = None,
        record_errors: Mapping[int, Exception] | None = None,
    ) -> None:
        with self.lock:
            if self.state != PENDING:
                raise RuntimeError(f"the batch for {self.topic}-{self.partition} is settled already")
            self.base_offset = base_offset
            self.append_time_ms = append_time_ms
            self.error = error
            self.record_errors = dict(record_errors or {})
            self.state = state
            on_delivery, self.on_delivery = self.on_delivery, []
            callbacks, self.callbacks = self.callbacks, []
            event, futures = self._waiters()
        _wake(event, futures)
        for index in range(0, len(on_delivery), 2):
            _deliver(on_delivery[index], on_delivery[index + 1])
        for handle, callback in callbacks:
            _run(callback, handle)

    def _waiters(self) -> tuple[threading.Event | None, list[asyncio.Future[None]] | None]:
        """Those who wait, taken out. The lock is held."""
        event, self.event = self.event, None
        futures, self.futures = self.futures, None
        return event, futures

    def _check_process(self) -> None:
        """Raises in a child process, where nobody settles this; called before the lock, which may be taken for ever."""
        if self.state == PENDING and self.process_id != os.getpid():
            raise ForkedError(
                f"a record for {self.topic}-{self.partition} was sent by the parent process, which alone hears of it; "
                "ask its handle there, or make a new producer in the child process, after the fork"
            )

    def _wait_for_change(self, deadline_s: float | None) -> bool:
        self._check_process()
        with self.lock:
            if self.state != PENDING:
                return True
            if self.event is None:
                self.event = threading.Event()
            event = self.event
        # In pieces: a signal that comes right before Python begins to wait does not end that wait, Ctrl-C included.
        while not event.wait(_LONGEST_WAIT_S if deadline_s is None else min(_left(deadline_s) or 0.0, _LONGEST_WAIT_S)):
            if deadline_s is not None and time.monotonic() >= deadline_s:
                return False
        return True

    def _future(self) -> asyncio.Future[None] | None:
        """Resolved when this is no longer pending; None if that is so already. One for each that waits: whoever is
        cancelled cancels nobody else."""
        if self.state != PENDING:
            return None
        self._check_process()
        future = asyncio.get_running_loop().create_future()
        with self.lock:
            if self.state != PENDING:
                return None
            if self.futures is None:
                self.futures = []
            self.futures.append(future)
            return future


class SendHandle:
    """A record on its way: `result()` blocks, `await` waits on the running event loop.

    >>> handle = producer.send("orders", b"...")  # doctest: +SKIP
    >>> handle.result().offset  # doctest: +SKIP
    42
    """

    def __init__(self, delivery: Delivery, index: int, timestamp_ms: int) -> None:
        self.delivery = delivery
        self.index = index
        self.timestamp_ms = timestamp_ms

    def done(self) -> bool:
        """Whether the record was written or has failed."""
        return self.place()[1].state != PENDING

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Where the record was written; blocks until that is known and raises what prevented it.

        TimeoutError after `timeout_s` says nothing about the record: it is still on its way.
        """
        error = self.exception(timeout_s)
        if error is not None:
            raise error.with_traceback(None)
        return self._metadata()

    def exception(self, timeout_s: float | None = None) -> Exception | None:
        """What prevented the record from being written, None if nothing did; blocks until that is known."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while (delivery := self.place()[1]).state == PENDING:
            if not delivery._wait_for_change(deadline_s):
                raise TimeoutError(
                    f"a record for {delivery.topic}-{delivery.partition} is still on its way after {timeout_s} s; "
                    f"it fails by itself after delivery.timeout.ms"
                )
        return self._error()

    def add_done_callback(self, callback: Callable[[SendHandle], object]) -> None:
        """Calls `callback(handle)` when the record is settled: on the sender's thread, or here if it is already."""
        while (delivery := self.place()[1]).state == PENDING:
            if delivery.add_callback(self, callback):
                return
        _run(callback, self)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        return _outcome_of(self).__await__()

    def place(self) -> tuple[int, Delivery]:
        """The index and the delivery that the record travels in now: a batch may have been split."""
        index: int = self.index
        delivery: Delivery = self.delivery
        while delivery.state == SPLIT:
            for first, part in reversed(delivery.parts):
                if index >= first:
                    index -= first
                    delivery = part
                    break
        return index, delivery

    def _error(self) -> Exception | None:
        index, delivery = self.place()
        return delivery.record_errors.get(index, delivery.error)

    def _metadata(self) -> RecordMetadata:
        index, delivery = self.place()
        offset = -1 if delivery.base_offset < 0 else delivery.base_offset + index
        timestamp_ms = self.timestamp_ms if delivery.append_time_ms < 0 else delivery.append_time_ms
        return RecordMetadata(delivery.topic, delivery.partition, offset, timestamp_ms)


async def _outcome_of(handle: SendHandle) -> RecordMetadata:
    while (future := handle.place()[1]._future()) is not None:
        await future
    if (error := handle._error()) is not None:
        raise error.with_traceback(None)
    return handle._metadata()


def _deliver(handle: SendHandle, on_delivery: OnDelivery) -> None:
    error = handle._error()
    _run(on_delivery, error, None if error is not None else handle._metadata())


def _run(callback: Callable[..., object], *outcome: object) -> None:
    """A callback is its owner's code: what it raises is logged, and harms nobody else's record."""
    try:
        callback(*outcome)
    except Exception:
        _log.exception("the delivery callback %r raised; the record itself is settled", callback)


def _left(deadline_s: float | None) -> float | None:
    return None if deadline_s is None else max(deadline_s - time.monotonic(), 0.0)


def _wake(event: threading.Event | None, futures: Iterable[asyncio.Future[None]] | None) -> None:
    if event is not None:
        event.set()
    by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for future in futures or ():
        by_loop.setdefault(future.get_loop(), []).append(future)
    for loop, waiting in by_loop.items():
        if loop is asyncio._get_running_loop():
            _resolve(waiting)
        else:
            # A loop that was closed meanwhile has nobody waiting.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_resolve, waiting)


def _resolve(futures: Iterable[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
