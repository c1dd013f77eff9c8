"""What one client may take of the broker: connections, time, the size of a request, memory, the loop's attention."""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.actions import BROKER_RESOURCE, SET, alter_incrementally, create_topic
from conformance.wire import Wire
from headwater.protocol import records
from headwater.testing import LocalBroker
from integration.raw_client import API_VERSIONS_V0, RawClient, batch_of, fetch_body, fetched, produce_body, produced
from peers.headwater import HeadwaterProcess


def answers(client: RawClient, within_s: float = 5.0) -> bool:
    """Whether a request is answered: False when there is no answer in time, or the broker has hung up."""
    client.sock.settimeout(within_s)
    try:
        return client.ask(API_VERSIONS_V0) is not None
    except (TimeoutError, ConnectionError):
        return False


def is_cut_off(client: RawClient, within_s: float = 5.0) -> bool:
    """Whether the broker ends the connection in time."""
    client.sock.settimeout(within_s)
    try:
        return client.receive() is None
    except TimeoutError:
        return False


def from_address(source: str, bootstrap: str) -> RawClient:
    """A client that comes from another address of this machine."""
    client = RawClient.__new__(RawClient)
    host, _, port = bootstrap.rpartition(":")
    client.sock = socket.create_connection((host, int(port)), timeout=5, source_address=(source, 0))
    return client


def test_beyond_max_connections_the_next_waits_until_one_ends() -> None:
    with LocalBroker(config={"max.connections": 2}) as broker, contextlib.ExitStack() as stack:
        first, second, third = (stack.enter_context(RawClient(broker.bootstrap)) for _ in range(3))
        assert answers(first)
        assert answers(second)
        third.send(API_VERSIONS_V0)
        third.sock.settimeout(0.3)
        with pytest.raises(TimeoutError):
            third.receive()
        assert answers(first), "who is in is served on"
        second.close()
        third.sock.settimeout(5)
        assert third.receive() is not None


def test_max_connections_per_ip_refuses_one_address_and_no_other() -> None:
    with LocalBroker(config={"max.connections.per.ip": 2}) as broker, contextlib.ExitStack() as stack:
        first, second, third = (stack.enter_context(RawClient(broker.bootstrap)) for _ in range(3))
        assert answers(first)
        assert answers(second)
        assert is_cut_off(third)
        neighbour = stack.enter_context(from_address("127.0.0.2", broker.bootstrap))
        assert answers(neighbour)
        first.close()
        time.sleep(0.1)
        assert answers(stack.enter_context(RawClient(broker.bootstrap))), "there is room again"


def test_an_override_gives_one_address_a_limit_of_its_own() -> None:
    config = {"max.connections.per.ip": "1", "max.connections.per.ip.overrides": "127.0.0.2:3"}
    with LocalBroker(config=config) as broker, contextlib.ExitStack() as stack:
        favoured = [stack.enter_context(from_address("127.0.0.2", broker.bootstrap)) for _ in range(3)]
        assert [answers(client) for client in favoured] == [True, True, True]
        assert is_cut_off(stack.enter_context(from_address("127.0.0.2", broker.bootstrap)))
        assert answers(stack.enter_context(RawClient(broker.bootstrap)))
        assert is_cut_off(stack.enter_context(RawClient(broker.bootstrap)))


def test_the_limits_of_connections_can_be_changed_while_it_runs() -> None:
    with LocalBroker() as broker, contextlib.ExitStack() as stack, Wire(broker.bootstrap) as wire:
        changed = alter_incrementally(wire, "1", ("max.connections.per.ip", SET, "2"), resource_type=BROKER_RESOURCE)
        assert changed.error_code.name == "none", changed
        assert answers(stack.enter_context(RawClient(broker.bootstrap)))
        assert is_cut_off(stack.enter_context(RawClient(broker.bootstrap)))


def test_a_connection_without_traffic_is_closed_and_one_in_use_is_not() -> None:
    with (
        LocalBroker(config={"connections.max.idle.ms": 500}) as broker,
        RawClient(broker.bootstrap) as idle,
        RawClient(broker.bootstrap) as half,
        Wire(broker.bootstrap) as wire,
    ):
        assert answers(idle)
        half.sock.sendall(struct.pack(">i", 100) + b"half a request")
        started = time.monotonic()
        while time.monotonic() - started < 0.9:
            wire.send("api_versions", 0)
            time.sleep(0.05)
        assert is_cut_off(idle)
        assert is_cut_off(half)
        assert wire.send("api_versions", 0).api_keys


def test_a_long_poll_is_traffic() -> None:
    """Neither is it cut off while it waits, nor at once when it is answered."""
    with LocalBroker(config={"connections.max.idle.ms": 500}) as broker:
        with Wire(broker.bootstrap) as wire:
            topic = create_topic(wire)
        with RawClient(broker.bootstrap) as waiting:
            assert fetched(waiting.ask(fetch_body(topic.name, 0, max_wait_ms=1000))) == (0, 0, b"")
            time.sleep(0.25)
            assert answers(waiting)


def test_a_request_of_the_largest_size_is_served_and_a_larger_one_ends_the_connection() -> None:
    with LocalBroker(config={"socket.request.max.bytes": 100_000}) as broker:
        with Wire(broker.bootstrap) as wire:
            topic = create_topic(wire)
        with RawClient(broker.bootstrap) as client, RawClient(broker.bootstrap) as other:
            padding = 100_000 - len(produce_body(topic.name, batch_of(bytes(90_000))))
            body = produce_body(topic.name, batch_of(bytes(90_000 + padding)))
            assert len(body) == 100_000
            assert produced(client.ask(body)) == (0, 0)
            client.sock.sendall(struct.pack(">i", 100_001))
            assert is_cut_off(client), "before a byte of the request was sent"
            assert answers(other)


def memory_kb(pid: int) -> int:
    """Memory of a process that no other shares and no file backs."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "RssAnon" in line)
    return int(line.split()[1])


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadwaterProcess]:
    """A broker with a topic of 256 MiB, called `large`, in batches of a megabyte."""
    with HeadwaterProcess(tmp_path_factory.mktemp("limits")) as broker:
        with Wire(broker.bootstrap) as wire:
            create_topic(wire, name="large")
            create_topic(wire, name="small")
        body = produce_body("large", batch_of(bytes(1024 * 1024 - 200)))
        with RawClient(broker.bootstrap) as client:
            for number in range(256):
                assert produced(client.ask(body)) == (0, number)
        yield broker


def push(client: RawClient, body: bytes, times: int) -> None:
    """Sends a request again and again without ever reading, until the broker takes no more for a while."""
    client.sock.settimeout(0.1)
    with contextlib.suppress(TimeoutError):
        for _ in range(times):
            client.send(body)


def test_clients_that_never_read_their_answers_do_not_grow_the_broker(filled: HeadwaterProcess) -> None:
    # Bytes behind the end of a request are ignored: they make it large, which tells whether requests pile up.
    fetch = fetch_body("large", 0, max_bytes=50_000_000) + bytes(50_000)
    metadata = struct.pack(">hhih", 3, 4, 1, -1) + struct.pack(">ib", -1, 0) + bytes(50_000)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(RawClient(filled.bootstrap)) for _ in range(20)]
        before_kb = memory_kb(filled.pid)
        for number, client in enumerate(clients):
            push(client, metadata if number % 4 == 0 else fetch, 2000)  # up to 2 GB in all
        with RawClient(filled.bootstrap) as other:
            for _ in range(50):
                assert answers(other)
        assert memory_kb(filled.pid) - before_kb < 50_000


def test_large_requests_that_never_end_cost_what_was_sent_and_are_given_back(filled: HeadwaterProcess) -> None:
    before_kb = memory_kb(filled.pid)
    with contextlib.ExitStack() as stack:
        for _ in range(50):
            client = stack.enter_context(RawClient(filled.bootstrap))
            client.sock.sendall(struct.pack(">i", 100_000_000) + bytes(1000))
        with RawClient(filled.bootstrap) as other:
            assert answers(other)
        assert memory_kb(filled.pid) - before_kb < 80_000, "of the 5 GB that they claimed"


def test_a_slow_reader_does_not_hold_up_a_producer(filled: HeadwaterProcess) -> None:
    done = threading.Event()

    def read_slowly() -> None:
        with RawClient(filled.bootstrap) as client:
            client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            client.send(fetch_body("large", 0, max_bytes=50_000_000))
            while not done.is_set() and client.sock.recv(65536):
                time.sleep(0.002)

    readers = [threading.Thread(target=read_slowly) for _ in range(4)]
    took_s = []
    try:
        for reader in readers:
            reader.start()
        time.sleep(0.2)
        body = produce_body("small", batch_of(bytes(100)))
        with RawClient(filled.bootstrap) as client:
            for _ in range(400):
                started = time.monotonic()
                assert produced(client.ask(body))[0] == 0
                took_s.append(time.monotonic() - started)
                time.sleep(0.001)
    finally:
        done.set()
        for reader in readers:
            reader.join()
    assert max(took_s) < 0.5


def test_a_client_that_reads_slowly_gets_every_byte(filled: HeadwaterProcess) -> None:
    with RawClient(filled.bootstrap) as slow:
        slow.send(fetch_body("large", 100, max_bytes=20_000_000))
        time.sleep(0.3)
        error_code, high_watermark, data = fetched(slow.receive())
    assert (error_code, high_watermark) == (0, 256)
    assert struct.unpack_from(">q", data) == (100,)
    # Whole batches, as many as fit.
    headers = records.scan_headers(data, 0, len(data))
    assert sum(header.size for header in headers) == len(data)
    assert 20_000_000 - headers[-1].size < len(data) <= 20_000_000
    assert all(records.crc_is_valid(data, header) for header in headers)


def test_more_changes_at_once_than_may_be_worked_on_wait_their_turn() -> None:
    names = [f"turn-{number}" for number in range(30)]
    with LocalBroker(config={"queued.max.requests": 1}) as broker:
        clients = [RawClient(broker.bootstrap) for _ in names]
        for client, name in zip(clients, names, strict=True):
            # Metadata v4 that allows auto-creation: work for the disk.
            body = struct.pack(">ih", 1, len(name)) + name.encode() + b"\1"
            client.send(struct.pack(">hhih", 3, 4, 1, -1) + body)
        answers = [client.receive() for client in clients]
        for client in clients:
            client.close()
    assert all(answer is not None and name.encode() in answer for answer, name in zip(answers, names, strict=True))
