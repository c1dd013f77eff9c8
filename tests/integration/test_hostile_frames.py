"""Hostile bytes: whatever arrives, that connection is answered or closed, and everybody else is served on.

The frames are recorded from real clients at work, then cut, flipped, stretched and mixed by Hypothesis.
"""

import contextlib
import logging
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.testing import LocalBroker
from integration.raw_client import API_VERSIONS_V0, RawClient, batch_of, fetch_body, produce_body, produced

# The package re-exports these names without saying so, which strict typing does not take.
admin_api: Any = confluent_kafka.admin


class RecordingProxy:
    """Passes the bytes between clients and a broker on, and keeps the frames that clients sent."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.target = ("127.0.0.1", 0)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "{}:{}".format(*self._listener.getsockname())
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            if not self.frames and self.target[1] == 0:
                client.close()
                return
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(self.target) as server:
            answers = threading.Thread(target=self._pump, args=(server, client, False), daemon=True)
            answers.start()
            self._pump(client, server, True)
            answers.join()

    def _pump(self, source: socket.socket, sink: socket.socket, keep: bool) -> None:
        stream = bytearray()
        try:
            while data := source.recv(65536):
                sink.sendall(data)
                stream += data
                while keep and len(stream) >= 4 and len(stream) >= 4 + (size := struct.unpack_from(">i", stream)[0]):
                    self.frames.append(bytes(stream[4 : 4 + size]))
                    del stream[: 4 + size]
            sink.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def close(self) -> None:
        """Ends when the clients have: the last connection is our own, which ends the accepting."""
        self.frames, self.target = [], ("127.0.0.1", 0)
        host, _, port = self.address.rpartition(":")
        socket.create_connection((host, int(port))).close()
        for thread in self._threads:
            thread.join(timeout=10)
        self._listener.close()


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker(config={"num.partitions": 2}) as broker:
        yield broker


def record_confluent(bootstrap: str) -> None:
    """What librdkafka sends when it makes, describes, fills and reads a topic."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([admin_api.NewTopic("fuzz", 2, 1)]).values():
        future.result()
    for future in admin.describe_configs([admin_api.ConfigResource("topic", "fuzz")]).values():
        future.result()
    for future in admin.create_partitions([admin_api.NewPartitions("fuzz", 3)]).values():
        future.result()
    admin.describe_cluster().result()
    partition = confluent_kafka.TopicPartition("fuzz", 0, 0)
    admin.list_offsets({partition: admin_api.OffsetSpec.latest()})[partition].result()
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    producer.produce("fuzz", b"value", partition=0)
    producer.flush()
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    )
    consumer.assign([partition])
    assert consumer.poll(10) is not None
    consumer.close()
    admin.delete_records([confluent_kafka.TopicPartition("fuzz", 0, 1)])[partition].result()
    for future in admin.delete_topics(["fuzz"]).values():
        future.result()


@pytest.fixture(scope="module")
def recorded() -> list[bytes]:
    """One frame of each api and version that a real client sends, and a few that it does not."""
    proxy = RecordingProxy()
    with LocalBroker(config={"advertised.listeners": f"PLAINTEXT://{proxy.address}"}) as broker:
        proxy.target = ("127.0.0.1", broker.port)
        record_confluent(proxy.address)
        frames = list(proxy.frames)
    proxy.close()
    frames += [
        produce_body("fuzz", batch_of(b"one", b"two")),
        fetch_body("fuzz", 0),
        API_VERSIONS_V0,
        # ListOffsets v1, DeleteRecords v0, DescribeLogDirs v1
        struct.pack(">hhih", 2, 1, 1, -1) + struct.pack(">iih", -1, 1, 4) + b"fuzz" + struct.pack(">iiq", 1, 0, -1),
        struct.pack(">hhih", 21, 0, 1, -1) + struct.pack(">ih", 1, 4) + b"fuzz" + struct.pack(">iiqi", 1, 0, 0, 1000),
        struct.pack(">hhih", 35, 1, 1, -1) + struct.pack(">i", -1),
    ]
    by_kind = {frame[:4]: frame for frame in frames}
    assert len(by_kind) >= 14, f"the recording is too thin to be worth fuzzing: {sorted(by_kind)}"
    return list(by_kind.values())


def assert_still_serving(broker: LocalBroker) -> None:
    with RawClient(broker.bootstrap) as client:
        answer = client.ask(API_VERSIONS_V0)
        assert answer is not None
        assert answer[:6] == b"\0\0\0\7\0\0"


@st.composite
def damage(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    kinds = st.sampled_from(["flip", "cut", "insert", "number", "repeat"])
    return draw(st.lists(st.tuples(kinds, st.integers(0, 400), st.integers(0, 2**32 - 1)), min_size=1, max_size=4))


def damaged(frame: bytes, steps: list[tuple[str, int, int]]) -> bytes:
    data = bytearray(frame)
    for kind, place, value in steps:
        # The first four bytes choose the handler: leave them alone most of the time.
        at = 4 + place % max(len(data) - 4, 1)
        if kind == "flip" and at < len(data):
            data[at] ^= 1 << (value % 8)
        elif kind == "cut":
            del data[at:]
        elif kind == "insert":
            data[at:at] = value.to_bytes(4, "big")
        elif kind == "number":
            data[at : at + 4] = value.to_bytes(4, "big")
        elif kind == "repeat":
            data += data[at:]
    return bytes(data)


@given(choice=st.integers(0, 10_000), steps=damage())
@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_requests_of_real_clients_harm_nobody_else(
    broker: LocalBroker, recorded: list[bytes], choice: int, steps: list[tuple[str, int, int]]
) -> None:
    frame = damaged(recorded[choice % len(recorded)], steps)
    with RawClient(broker.bootstrap, timeout_s=2) as client:
        client.send(frame)
        client.sock.shutdown(socket.SHUT_WR)
        try:
            client.receive()
        except TimeoutError:
            pytest.fail("neither answered nor closed")
    assert_still_serving(broker)


@given(
    noise=st.binary(max_size=300),
    key=st.sampled_from([0, 1, 2, 3, 18, 19, 20, 32, 44, 60, 75]),
    version=st.integers(0, 20),
)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_noise_behind_a_good_header_harms_nobody_else(
    broker: LocalBroker, noise: bytes, key: int, version: int
) -> None:
    with RawClient(broker.bootstrap, timeout_s=2) as client:
        client.send(struct.pack(">hhih", key, version, 1, -1) + noise)
        client.sock.shutdown(socket.SHUT_WR)
        client.receive()
    assert_still_serving(broker)


@pytest.mark.parametrize(
    "stream",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff" + bytes(1000),
        b"\0\0\0\0",
        b"\0\0\0\4\x7f\xff\0\0",
    ],
    ids=["http", "tls", "negative length", "two gigabytes", "empty frame", "unknown api"],
)
def test_what_is_not_kafka_is_closed_with_one_line_in_the_log(
    broker: LocalBroker, stream: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with RawClient(broker.bootstrap) as client:
        client.sock.sendall(stream)
        assert client.receive() is None
    lines = [record for record in caplog.records if record.name.startswith("headwater")]
    assert len(lines) == 1
    assert "closed the connection of 127.0.0.1" in lines[0].getMessage()
    assert lines[0].exc_info is None
    assert_still_serving(broker)


def test_a_half_open_request_does_not_hold_up_others(broker: LocalBroker) -> None:
    with RawClient(broker.bootstrap) as stuck:
        stuck.sock.sendall(struct.pack(">i", 1000) + b"never finished")
        with RawClient(broker.bootstrap) as client:
            client.ask(produce_body("made-by-nobody", batch_of(b"x")))
        assert_still_serving(broker)


def test_a_good_request_behind_a_refused_one_is_not_looked_at(broker: LocalBroker) -> None:
    with RawClient(broker.bootstrap) as client:
        client.sock.sendall(struct.pack(">i", 2) + b"\0\0" + struct.pack(">i", 10) + API_VERSIONS_V0)
        assert client.receive() is None


def test_a_refused_batch_leaves_the_log_as_it_was(broker: LocalBroker) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([admin_api.NewTopic("pristine", 1, 1)]).values():
        future.result()
    good = batch_of(b"good")
    with RawClient(broker.bootstrap) as client:
        assert produced(client.ask(produce_body("pristine", good))) == (0, 0)
        for at in range(len(good)):
            bad = bytearray(good)
            bad[at] ^= 0x55
            answer = client.ask(produce_body("pristine", bytes(bad)))
            if answer is None:
                pytest.fail(f"the connection was closed for a flip at byte {at}")
            # Base offset and leader epoch are the broker's to set: only there may a flip go through.
            if at < 8 or 12 <= at < 16:
                continue
            assert produced(answer)[0] != 0, f"a flip at byte {at} was accepted"
