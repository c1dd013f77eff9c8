"""The way of one record from `send` into its batch: made bytes, given a partition, a time and a handle.

Both producers, blocking and asyncio, are this plus what cannot be done at once: a record whose topic is not known yet,
or for which no memory is free, goes to the `hold_back` that they gave. The clock of records is read here. Compiled by
Cython (pure Python mode) and correct without it; `sending.pxd` is its C side.
"""
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from headwater.protocol.record_writing import encoded_headers

try:
    import cython
except ImportError:
    from headwater.protocol import without_cython as cython

if TYPE_CHECKING or not cython.compiled:
    from headwater.client.producer.accumulator import Accumulator
    from headwater.client.producer.handles import SendHandle
    from headwater.client.producer.partitioners import partition_for_key
    from headwater.client.producer.queues import PartitionQueue, TopicQueue
    from headwater.protocol.record_writing import as_bytes
else:
    from cython.cimports.headwater.client.producer.accumulator import Accumulator
    from cython.cimports.headwater.client.producer.handles import SendHandle
    from cython.cimports.headwater.client.producer.partitioners import partition_for_key
    from cython.cimports.headwater.client.producer.queues import PartitionQueue, TopicQueue
    from cython.cimports.headwater.protocol.record_writing import as_bytes

if cython.compiled:
    from cython.cimports.posix.time import CLOCK_REALTIME, clock_gettime, timespec

if TYPE_CHECKING:
    from headwater.client.producer.handles import OnDelivery
    from headwater.client.producer.memory import RoomTicket
    from headwater.protocol.record_writing import EncodedHeaders

Headers: TypeAlias = "Sequence[tuple[str, bytes | str | None]] | Mapping[str, bytes | str | None]"
Content: TypeAlias = "bytes | bytearray | memoryview | str | None"
Partitioner: TypeAlias = "Callable[[str, bytes | None, bytes | None, int], int]"
"""Chooses by topic, key, value and the number of partitions."""

TopicName: TypeAlias = "str"
Number: TypeAlias = "int"
"""These two are aliases as the compiled form would take no subclass of `str` or `int`, and no foreign integers."""

Sent: TypeAlias = "SendHandle"
"""A handle, or what can be awaited for one: an alias, as the compiled form would insist on the class."""

STICKY = "sticky"
ROUND_ROBIN = "round_robin"

# What a record takes besides its key and value, roughly, and what a batch does.
_RECORD_OVERHEAD_BYTES = cython.declare(cython.longlong, 10)
_BATCH_OVERHEAD_BYTES = cython.declare(cython.longlong, 61)


class UnplacedRecord(NamedTuple):
    """A record that has been prepared but has no place yet: see `RecordSender.place`."""

    topic: str
    key: bytes | None
    value: bytes | None
    partition: int | None
    timestamp_ms: int
    headers: EncodedHeaders | None
    on_delivery: OnDelivery | None


class Route:
    """Where the records of one topic go. Its C attributes are declared in `sending.pxd`."""

    def __init__(self, topic: TopicQueue, partitions: int, available: Sequence[int]) -> None:
        self.queues: list[PartitionQueue] = [topic.partition_queue(number) for number in range(partitions)]
        self.available: list[int] = [number for number in available if number < partitions]
        self.sticky: PartitionQueue | None = None
        self.sticky_bytes: int = 0
        self.turn: int = 0


class RecordSender:
    """Puts records into their batches. Any thread may send.

    `partitioner` is STICKY (by the key's murmur2, without a key the same partition for a batch), ROUND_ROBIN, or a
    function. `prepare` sees each record before anything else, for serializers and interceptors. While `refusal` is set,
    every send raises it. Its C attributes are declared in `sending.pxd`.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        *,
        hold_back: Callable[[UnplacedRecord], Any],
        prepare: Callable[[str, Any, Any, int | None, int | None, Any], tuple[Any, ...]] | None = None,
        partitioner: str | Partitioner = STICKY,
        ignore_keys: bool = False,
        adaptive: bool = True,
        clock_ms: Callable[[], int] | None = None,
        chance: Callable[[], float] | None = None,
    ) -> None:
        self.refusal: Exception | None = None
        self._accumulator = accumulator
        self._hold_back = hold_back
        self._prepare = prepare
        self._partitioner: Partitioner | None = None if isinstance(partitioner, str) else partitioner
        if isinstance(partitioner, str) and partitioner not in (STICKY, ROUND_ROBIN):
            raise ValueError(f"no partitioner is called {partitioner!r}; there are {STICKY!r} and {ROUND_ROBIN!r}")
        self._round_robin: bool = partitioner == ROUND_ROBIN
        self._ignore_keys: bool = ignore_keys
        self._adaptive: bool = adaptive
        self._clock_ms = clock_ms
        self._chance = chance if chance is not None else accumulator.chance
        self._routes: dict[str, Route] = {}

    def set_partitions(self, topic: str, partitions: int, available: Sequence[int] | None = None) -> None:
        """A topic's number of partitions, and which of them have a leader (all, if that is not said)."""
        found: Route
        route: Route | None = self._routes.get(topic)
        if route is None or len(route.queues) < partitions or available is not None:
            found = Route(
                self._accumulator.topic(topic), partitions, range(partitions) if available is None else available
            )
            if route is not None and route.sticky is not None and route.sticky.partition in found.available:
                found.sticky = route.sticky
                found.sticky_bytes = route.sticky_bytes
            self._routes[topic] = found

    def forget(self, topic: str) -> None:
        """The number of partitions is not known any more: its records are held back."""
        self._routes.pop(topic, None)

    def knows(self, topic: str, partition: int | None = None) -> bool:
        """Whether a record for this topic, and partition if one is given, has a place to go to."""
        route: Route | None = self._routes.get(topic)
        return route is not None and (partition is None or 0 <= partition < len(route.queues))

    def partition_without_key(self, topic: str) -> int:
        """A partition for some rows that have no key, each time another by chance. The topic must be known."""
        route: Route = self._routes[topic]
        return self._another(route).partition

    def send(
        self,
        topic: TopicName,
        value: Content = None,
        *,
        key: Content = None,
        partition: Number | None = None,
        timestamp_ms: Number | None = None,
        headers: Headers | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Sent:
        """Sends a record; what comes back tells what became of it, and is what `hold_back` gave if it had to wait."""
        value_bytes: bytes | None
        key_bytes: bytes | None
        names: EncodedHeaders | None
        time_ms: cython.longlong
        number: cython.Py_ssize_t
        if self.refusal is not None:
            raise self.refusal
        if self._prepare is not None:
            value, key, partition, timestamp_ms, headers = self._prepare(
                topic, value, key, partition, timestamp_ms, headers
            )
        value_bytes = value if type(value) is bytes else _content(value)
        key_bytes = None if key is None else _content(key)
        names = _encoded(headers) if headers else None
        time_ms = self._now_ms() if timestamp_ms is None else _checked("time in ms", timestamp_ms)
        number = -1 if partition is None else _checked("partition", partition)
        handle: SendHandle | None = self._place(
            topic, key_bytes, value_bytes, number, time_ms, names, on_delivery, None
        )
        if handle is not None:
            return handle
        chosen = None if partition is None else number
        # Of a subclass of str only the text goes on.
        record = UnplacedRecord(str.__str__(topic), key_bytes, value_bytes, chosen, time_ms, names, on_delivery)
        return cast("Sent", self._hold_back(record))

    def place(self, record: UnplacedRecord, ticket: RoomTicket | None = None) -> SendHandle | None:
        """Tries again with a record that was held back; None if its topic is not known or no memory is free."""
        topic, key, value, partition, timestamp_ms, headers, on_delivery = record
        number: cython.Py_ssize_t = -1 if partition is None else partition
        handle: SendHandle | None = self._place(topic, key, value, number, timestamp_ms, headers, on_delivery, ticket)
        return handle

    def line_up(self, record: UnplacedRecord) -> RoomTicket:
        """A place in the line for the memory that the record needs."""
        accumulator = self._accumulator
        return accumulator.line_up(accumulator.room_needed(record.topic, record.key, record.value, record.headers))

    def _place(
        self,
        topic: TopicName,
        key: bytes | None,
        value: bytes | None,
        partition: cython.Py_ssize_t,
        timestamp_ms: cython.longlong,
        headers: EncodedHeaders | None,
        on_delivery: OnDelivery | None,
        ticket: RoomTicket | None,
    ) -> SendHandle | None:
        queue: PartitionQueue | None
        handle: SendHandle | None
        sticky: cython.bint = False
        route: Route | None = self._routes.get(topic)
        if route is None or not route.queues:
            return None
        if partition >= 0:
            if partition >= len(route.queues):
                return None
            queue = route.queues[partition]
        elif self._partitioner is not None:
            queue = self._own_choice(route, topic, key, value)
        elif self._round_robin:
            queue = _next_in_turn(route)
        elif key is not None and not self._ignore_keys:
            queue = route.queues[partition_for_key(key, len(route.queues))]
        else:
            sticky = True
            queue = self._sticky_queue(route, key, value, headers, timestamp_ms)
        handle = self._accumulator.append_to(queue, key, value, headers, timestamp_ms, on_delivery, ticket)
        if sticky and handle is not None:
            route.sticky_bytes += _sizes(key, value) + (_BATCH_OVERHEAD_BYTES if handle.index == 0 else 0)
        return handle

    def _own_choice(self, route: Route, topic: TopicName, key: bytes | None, value: bytes | None) -> PartitionQueue:
        assert self._partitioner is not None
        chosen = self._partitioner(topic, key, value, len(route.queues))
        if not 0 <= chosen < len(route.queues):
            raise ValueError(
                f"the partitioner chose partition {chosen} of topic {topic}, which has {len(route.queues)} partitions"
            )
        return route.queues[chosen]

    def _sticky_queue(
        self,
        route: Route,
        key: bytes | None,
        value: bytes | None,
        headers: EncodedHeaders | None,
        timestamp_ms: cython.longlong,
    ) -> PartitionQueue:
        """The partition for records without a key: another one after so many bytes as a batch may have.

        It changes between two batches where that is possible, so that none has to go half full; at the latest after
        twice as many bytes, for others may add to the batch too.
        """
        limit: cython.longlong = self._accumulator.batch_limit_bytes
        queue: PartitionQueue | None = route.sticky
        if queue is not None:
            if route.sticky_bytes + _sizes(key, value) + _BATCH_OVERHEAD_BYTES < limit:
                return queue
            if route.sticky_bytes < 2 * limit and self._accumulator.fits(queue, key, value, headers, timestamp_ms):
                return queue
        queue = route.sticky = self._another(route)
        route.sticky_bytes = 0
        return queue

    def _another(self, route: Route) -> PartitionQueue:
        """By chance; where some have longer queues than others, those are chosen less often (KIP-794)."""
        numbers: list[int] = route.available or list(range(len(route.queues)))
        lengths = [len(route.queues[number].batches) for number in numbers]
        longest = max(lengths)
        if not self._adaptive or longest == min(lengths):
            return route.queues[numbers[int(self._chance() * len(numbers))]]
        place = int(self._chance() * sum(longest + 1 - length for length in lengths))
        chosen = 0
        while place >= longest + 1 - lengths[chosen]:
            place -= longest + 1 - lengths[chosen]
            chosen += 1
        return route.queues[numbers[chosen]]

    def _now_ms(self) -> cython.longlong:
        if self._clock_ms is not None:
            return self._clock_ms()
        if cython.compiled:
            now: timespec = timespec(0, 0)
            clock_gettime(CLOCK_REALTIME, cython.address(now))
            return cython.cast(cython.longlong, now.tv_sec) * 1000 + now.tv_nsec // 1_000_000
        else:  # noqa: RET505
            return time.time_ns() // 1_000_000


@cython.cfunc
@cython.inline
def _sizes(key: bytes | None, value: bytes | None) -> cython.longlong:
    size: cython.longlong = _RECORD_OVERHEAD_BYTES
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    return size


@cython.cfunc
def _next_in_turn(route: Route) -> PartitionQueue:
    numbers: list[int] = route.available
    route.turn += 1
    if numbers:
        return route.queues[numbers[route.turn % len(numbers)]]
    return route.queues[route.turn % len(route.queues)]


def _content(content: Content) -> bytes | None:
    if isinstance(content, str):
        return content.encode()
    try:
        return as_bytes(content)
    except TypeError:
        raise TypeError(
            f"a key or value is bytes, str or None, not {type(content).__name__}; give the producer a serializer"
        ) from None


def _encoded(headers: Headers) -> EncodedHeaders:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    try:
        return encoded_headers(
            [(name, content.encode() if isinstance(content, str) else content) for name, content in pairs]
        )
    except (TypeError, ValueError, AttributeError):
        raise TypeError(
            f"headers are pairs of a name and its content (bytes, str or None), or a dict of them, not {headers!r}"
        ) from None


def _checked(what: str, number: Number) -> Number:
    if number < 0:
        raise ValueError(f"{number} is no {what} that a record can have")
    return operator.index(number)
