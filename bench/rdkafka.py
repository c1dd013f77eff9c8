"""librdkafka, driven in batches through ctypes: the library that the confluent-kafka wheel ships.

confluent-kafka itself makes a Python object per message, which would bound the rate below what brokers take;
`rd_kafka_produce_batch` and `rd_kafka_consume_batch` take that cost away and leave the library's own work in.
"""

import ctypes
import time
from collections.abc import Callable
from pathlib import Path

import procstat

_PRODUCER, _CONSUMER = 0, 1
_OFFSET_BEGINNING = -2
_BATCH_MESSAGES = 10_000
_QUEUED_BYTES = 256 << 20
_TIMEOUT_S = 120.0


class ClientError(RuntimeError):
    """librdkafka refused, lost or failed to deliver something."""


class _Message(ctypes.Structure):
    """`rd_kafka_message_t`."""

    _fields_ = (
        ("err", ctypes.c_int),
        ("topic", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_size", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("opaque", ctypes.c_void_p),
    )


_MessagePointer = ctypes.POINTER(_Message)
_DeliveryCallback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, _MessagePointer, ctypes.c_void_p)


def _load() -> ctypes.CDLL:
    import confluent_kafka  # noqa: F401  (maps the library into this process)

    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split()[-1]
        if "librdkafka" in path:
            return ctypes.CDLL(path)
    raise ClientError("confluent-kafka is installed, yet no librdkafka is loaded with it")


def _prototypes(library: ctypes.CDLL) -> ctypes.CDLL:
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    i32, i64, size = ctypes.c_int32, ctypes.c_int64, ctypes.c_size_t
    signatures: dict[str, tuple[object, list[object]]] = {
        "conf_new": (pointer, []),
        "conf_set": (number, [pointer, text, text, text, size]),
        "conf_set_dr_msg_cb": (None, [pointer, _DeliveryCallback]),
        "new": (pointer, [number, pointer, text, size]),
        "destroy": (None, [pointer]),
        "topic_new": (pointer, [pointer, text, pointer]),
        "topic_destroy": (None, [pointer]),
        "produce_batch": (number, [pointer, i32, number, pointer, number]),
        "outq_len": (number, [pointer]),
        "poll": (number, [pointer, number]),
        "flush": (number, [pointer, number]),
        "query_watermark_offsets": (
            number,
            [pointer, text, i32, ctypes.POINTER(i64), ctypes.POINTER(i64), number],
        ),
        "consume_start": (number, [pointer, i32, i64]),
        "consume_stop": (number, [pointer, i32]),
        "consume_batch": (ctypes.c_ssize_t, [pointer, i32, number, pointer, size]),
        "message_destroy": (None, [_MessagePointer]),
        "err2str": (text, [number]),
        "version_str": (text, []),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, f"rd_kafka_{name}")
        function.restype, function.argtypes = result, arguments
    return library


class Client:
    """One librdkafka handle on one topic."""

    def __init__(self, kind: int, port: int, topic: str, settings: dict[str, object]) -> None:
        self.library = _prototypes(_load())
        self.failed_deliveries = 0
        self._on_delivery = _DeliveryCallback(self._count_failure)
        conf = self.library.rd_kafka_conf_new()
        problem = ctypes.create_string_buffer(512)
        for name, value in {"bootstrap.servers": f"127.0.0.1:{port}", **settings}.items():
            if self.library.rd_kafka_conf_set(conf, name.encode(), str(value).encode(), problem, len(problem)):
                raise ClientError(f"librdkafka refuses {name}={value}: {problem.value.decode()}")
        if kind == _PRODUCER:
            self.library.rd_kafka_conf_set_dr_msg_cb(conf, self._on_delivery)
        self.handle = self.library.rd_kafka_new(kind, conf, problem, len(problem))
        if not self.handle:
            raise ClientError(f"librdkafka made no client: {problem.value.decode()}")
        self.topic_name = topic.encode()
        self.topic = self.library.rd_kafka_topic_new(self.handle, self.topic_name, None)

    def _count_failure(self, _handle: object, _message: object, _opaque: object) -> None:
        # Asked for with delivery.report.only.error, so every call is a failure.
        self.failed_deliveries += 1

    def end_offset(self) -> int:
        """Where partition 0 ends; asking it also opens the connection."""
        low, high = ctypes.c_int64(), ctypes.c_int64()
        code = self.library.rd_kafka_query_watermark_offsets(
            self.handle, self.topic_name, 0, ctypes.byref(low), ctypes.byref(high), 30_000
        )
        if code:
            raise ClientError(f"the end offset cannot be read: {self.library.rd_kafka_err2str(code).decode()}")
        return high.value

    def close(self) -> None:
        """Gives the handle back."""
        self.library.rd_kafka_topic_destroy(self.topic)
        self.library.rd_kafka_destroy(self.handle)


def produce(
    port: int, topic: str, messages: int, value_bytes: int, broker_pid: int, settings: dict[str, object]
) -> dict[str, float]:
    """Fills partition 0 with `messages` values, acks=all; the seconds until the last acknowledgement."""
    queued_messages = max(2 * _BATCH_MESSAGES, min(_QUEUED_BYTES // value_bytes, 400_000))
    client = Client(
        _PRODUCER,
        port,
        topic,
        {
            "acks": "all",
            "delivery.report.only.error": "true",
            "queue.buffering.max.messages": queued_messages + 2 * _BATCH_MESSAGES,
            "queue.buffering.max.kbytes": 2_000_000,
            **settings,
        },
    )
    library, handle = client.library, client.handle
    # Values are slices of one random block: not copied by the client, not all alike either.
    block = ctypes.create_string_buffer(_random_bytes(1 << 20), 1 << 20)
    base = ctypes.addressof(block)
    batch = (_Message * _BATCH_MESSAGES)()
    for index in range(_BATCH_MESSAGES):
        batch[index].payload = base + index * 97 % ((1 << 20) - value_bytes)
        batch[index].size = value_bytes
    first_offset = client.end_offset()

    left = messages
    cpu_before = procstat.cpu_seconds(broker_pid)
    begin = time.perf_counter()
    while left:
        step = min(left, _BATCH_MESSAGES)
        if library.rd_kafka_outq_len(handle) + step > queued_messages:
            time.sleep(0.001)
            if time.perf_counter() - begin > _TIMEOUT_S:
                raise ClientError(f"{left} of {messages} messages are not accepted after {_TIMEOUT_S:.0f} s")
            continue
        if library.rd_kafka_produce_batch(client.topic, 0, 0, ctypes.addressof(batch), step) != step:
            raise ClientError("librdkafka did not queue a whole batch")
        left -= step
    code = library.rd_kafka_flush(handle, int(_TIMEOUT_S * 1000))
    seconds = time.perf_counter() - begin
    cpu = procstat.cpu_seconds(broker_pid) - cpu_before
    if code or client.failed_deliveries:
        raise ClientError(f"not everything was delivered: {client.failed_deliveries} failures, flush says {code}")
    arrived = client.end_offset() - first_offset
    if arrived != messages:
        raise ClientError(f"{messages} messages were acknowledged, the partition grew by {arrived}")
    client.close()
    return {"seconds": seconds, "cpu_seconds": cpu}


def fetch(
    port: int, topic: str, messages: int, value_bytes: int, broker_pid: int, settings: dict[str, object]
) -> dict[str, float]:
    """Reads partition 0 from its beginning until `messages` values came; the seconds it took."""
    client = Client(
        _CONSUMER,
        port,
        topic,
        {
            # With the default queue limits the library itself pauses fetching, up to a second at a time.
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 1 << 20,
            "fetch.queue.backoff.ms": 10,
            **settings,
        },
    )
    library = client.library
    if client.end_offset() < messages:
        raise ClientError(f"the partition ends at {client.end_offset()}, {messages} messages were to be read")
    hand_back = _hand_back(library)
    batch = (ctypes.c_void_p * _BATCH_MESSAGES)()
    address = ctypes.addressof(batch)

    received, received_bytes = 0, 0
    cpu_before = procstat.cpu_seconds(broker_pid)
    begin = time.perf_counter()
    if library.rd_kafka_consume_start(client.topic, 0, _OFFSET_BEGINNING):
        raise ClientError("librdkafka did not start to consume")
    while received < messages:
        count = library.rd_kafka_consume_batch(client.topic, 0, 1000, address, _BATCH_MESSAGES)
        size = hand_back(address, count)
        if count < 0 or size < 0 or time.perf_counter() - begin > _TIMEOUT_S:
            raise ClientError(f"consuming failed or stalled after {received} of {messages} messages")
        received += count
        received_bytes += size
    seconds = time.perf_counter() - begin
    cpu = procstat.cpu_seconds(broker_pid) - cpu_before
    if received_bytes != received * value_bytes:
        raise ClientError(f"{received} messages came with {received_bytes} bytes, {value_bytes} each were sent")
    library.rd_kafka_consume_stop(client.topic, 0)
    client.close()
    return {"seconds": seconds, "cpu_seconds": cpu}


def _hand_back(library: ctypes.CDLL) -> Callable[[int, int], int]:
    destroy = library.rd_kafka_message_destroy
    destroy_address = ctypes.cast(destroy, ctypes.c_void_p).value
    import rdloop

    if rdloop.COMPILED:
        return lambda address, count: rdloop.hand_back(address, count, destroy_address or 0)

    def slowly(address: int, count: int) -> int:
        total = 0
        for message in (_MessagePointer * count).from_address(address):
            total = -1 if message.contents.err or total < 0 else total + message.contents.size
            destroy(message)
        return total

    return slowly


def _random_bytes(size: int) -> bytes:
    import random

    return random.Random(3).randbytes(size)
