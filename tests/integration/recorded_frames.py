"""Frames that real clients send to a broker, one of each API and version: what the tests of hostile bytes harm."""

import contextlib
import socket
import struct
import threading
from typing import Any

import confluent_kafka
import confluent_kafka.admin

from headwater.testing import LocalBroker
from integration.raw_client import API_VERSIONS_V0, batch_of, fetch_body, produce_body

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


def recorded_frames() -> list[bytes]:
    """One frame of each API and version that a real client sends, and a few that it does not."""
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
