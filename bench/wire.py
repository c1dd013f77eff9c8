"""The few Kafka messages the benchmarks speak themselves, written by hand.

Nothing of headwater is imported here: a benchmark must not share code with what it measures. The versions are
those that name topics (Produce 9, Fetch 12, Metadata 4, ListOffsets 5), so that a request can be built once and
replayed.
"""

import socket
import struct

import crc32c

PRODUCE_VERSION = 9
# The first one that needs no AddPartitionsToTxn before it; its layout is that of version 9.
TRANSACTIONAL_PRODUCE_VERSION = 12
FETCH_VERSION = 12
CLIENT_ID = b"bench"


def _uvarint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _varint(value: int) -> bytes:
    return _uvarint(value << 1 if value >= 0 else (-value << 1) - 1)


def _compact(data: bytes) -> bytes:
    return _uvarint(len(data) + 1) + data


def _request(api_key: int, version: int, body: bytes, *, flexible: bool) -> bytes:
    header = struct.pack(">hhih", api_key, version, 1, len(CLIENT_ID)) + CLIENT_ID
    if flexible:
        header += b"\0"
    return struct.pack(">i", len(header) + len(body)) + header + body


def record_batch(value: bytes, timestamp_ms: int) -> bytes:
    """A magic-2 batch of one record without key and headers, from a producer that is not idempotent."""
    return _batch(_records([value]), 1, timestamp_ms, attributes=0, producer_id=-1, producer_epoch=-1, sequence=-1)


class TransactionalBatch:
    """Records without key and headers, encoded once; each transaction writes them under another epoch."""

    def __init__(self, values: list[bytes], timestamp_ms: int) -> None:
        self._records = _records(values)
        self._count = len(values)
        self._timestamp_ms = timestamp_ms

    def encode(self, producer_id: int, producer_epoch: int) -> bytes:
        """The first batch of this producer in this epoch."""
        return _batch(
            self._records,
            self._count,
            self._timestamp_ms,
            attributes=0x10,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            sequence=0,
        )


def _records(values: list[bytes]) -> bytes:
    encoded = bytearray()
    for number, value in enumerate(values):
        record = b"\0" + _varint(0) + _varint(number) + _varint(-1) + _varint(len(value)) + value + _varint(0)
        encoded += _varint(len(record)) + record
    return bytes(encoded)


def _batch(
    records: bytes,
    count: int,
    timestamp_ms: int,
    *,
    attributes: int,
    producer_id: int,
    producer_epoch: int,
    sequence: int,
) -> bytes:
    times = (timestamp_ms, timestamp_ms)
    head = struct.pack(">hiqqqhii", attributes, count - 1, *times, producer_id, producer_epoch, sequence, count)
    checked = head + records
    return struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, crc32c.crc32c(checked)) + checked


def produce_request(topic: str, partition: int, batch: bytes, transactional_id: str | None = None) -> bytes:
    """One batch for one partition, acks=all. In a transaction, the request also adds the partition to it (KIP-890)."""
    partitions = b"\x02" + struct.pack(">i", partition) + _compact(batch) + b"\0"
    topics = b"\x02" + _compact(topic.encode()) + partitions + b"\0"
    name = b"\0" if transactional_id is None else _compact(transactional_id.encode())
    version = PRODUCE_VERSION if transactional_id is None else TRANSACTIONAL_PRODUCE_VERSION
    return _request(0, version, name + struct.pack(">hi", -1, 30_000) + topics + b"\0", flexible=True)


def produce_error_position(topic: str) -> int:
    """Where the partition's error code stands in the answer to `produce_request`, frame length included."""
    return 4 + 4 + 1 + 1 + len(_compact(topic.encode())) + 1 + 4


def fetch_request(topic: str, *, max_wait_ms: int) -> tuple[bytearray, int]:
    """A long poll of partition 0 outside of any session, and the position of its fetch offset."""
    name = _compact(topic.encode())
    head = struct.pack(">iiiibii", -1, max_wait_ms, 1, 50 << 20, 0, 0, -1) + b"\x02" + name + b"\x02"
    partition = struct.pack(">iiqiqi", 0, -1, 0, -1, -1, 1 << 20) + b"\0"
    tail = b"\0" + b"\x01" + b"\x01" + b"\0"
    frame = bytearray(_request(1, FETCH_VERSION, head + partition + tail, flexible=True))
    return frame, len(frame) - len(tail) - len(partition) + 8


def fetch_error_position(topic: str) -> int:
    """Where the partition's error code stands in the answer frame to `fetch_request`; its records follow."""
    return 4 + 4 + 1 + 4 + 2 + 4 + 1 + len(_compact(topic.encode())) + 1 + 4


def _read_exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError(f"the broker closed the connection after {len(data)} of {size} bytes")
        data += part
    return bytes(data)


def ask(port: int, request: bytes, *, timeout_s: float) -> bytes:
    """Sends one request over a connection of its own; the answer without its length."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
        connection.sendall(request)
        return read_frame(connection)


def read_frame(connection: socket.socket) -> bytes:
    """The next answer without its length."""
    (size,) = struct.unpack(">i", _read_exactly(connection, 4))
    return _read_exactly(connection, size)


def list_offsets_request(topic: str, partition: int, timestamp_ms: int) -> bytes:
    """Where a time begins in one partition (version 5); the timestamp, -1 for the end, is its last eight bytes."""
    name = topic.encode()
    topics = struct.pack(">ih", 1, len(name)) + name + struct.pack(">iiiq", 1, partition, -1, timestamp_ms)
    return _request(2, 5, struct.pack(">ib", -1, 0) + topics, flexible=False)


def listed_offset(answer: bytes) -> int:
    """The offset in the answer to `list_offsets_request`, which must be without an error."""
    error, _, offset, _ = struct.unpack_from(">hqqi", answer, len(answer) - 22)
    if error:
        raise ConnectionError(f"ListOffsets was answered with error code {error}")
    return int(offset)


def answers(port: int) -> bool:
    """Whether the broker at this port answers ApiVersions."""
    try:
        body = ask(port, _request(18, 0, b"", flexible=False), timeout_s=5.0)
    except OSError:
        return False
    return bool(struct.unpack_from(">h", body, 4)[0] == 0)


class _Reader:
    """A cursor over a non-flexible answer."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def int16(self) -> int:
        self._position += 2
        return int.from_bytes(self._data[self._position - 2 : self._position], signed=True)

    def int32(self) -> int:
        self._position += 4
        return int.from_bytes(self._data[self._position - 4 : self._position], signed=True)

    def skip(self, size: int) -> None:
        self._position += size

    def string(self) -> str:
        size = max(self.int16(), 0)
        self._position += size
        return self._data[self._position - size : self._position].decode()


def led_partitions(port: int, topic_prefix: str) -> int:
    """How many partitions of the topics with this prefix have a leader, by the broker's own Metadata."""
    reader = _Reader(ask(port, _request(3, 4, struct.pack(">ib", -1, 0), flexible=False), timeout_s=30.0))
    reader.skip(8)
    for _ in range(reader.int32()):
        reader.skip(4)
        reader.string()
        reader.skip(4)
        reader.string()
    reader.string()
    reader.skip(4)
    led = 0
    for _ in range(reader.int32()):
        topic_error = reader.int16()
        counts = reader.string().startswith(topic_prefix) and topic_error == 0
        reader.skip(1)
        for _ in range(reader.int32()):
            error = reader.int16()
            reader.skip(4)
            leader = reader.int32()
            reader.skip(4 * reader.int32())
            reader.skip(4 * reader.int32())
            led += counts and error == 0 and leader >= 0
    return led
