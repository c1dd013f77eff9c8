"""A connection stays in step whatever its callers and its broker do, or ends and says which address it was."""

import asyncio
import shutil
import socket
import ssl
import struct
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from event_loops import Run, both_loops, on_both_loops, run_limited
from headwater.client.addresses import Address
from headwater.client.connection import Connection
from headwater.client.errors import (
    AuthenticationError,
    CannotConnectError,
    ConnectionLostError,
    NotKafkaError,
    RefusedError,
    TimedOutError,
)
from headwater.client.security import Security
from headwater.client.settings import ConnectionSettings
from headwater.protocol.kafka_types import ErrorCode
from headwater.protocol.messages import encode_response
from peers.stand_in import HANG_UP, SILENCE, Answer, Asked, StandIn, Verbatim, served_versions

from kio.schema.metadata.v12.request import MetadataRequest  # isort: skip
from kio.schema.metadata.v12.response import MetadataResponse  # isort: skip
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest  # isort: skip
from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse  # isort: skip

METADATA, PRODUCE, FETCH = 3, 0, 1


def echo(asked: Asked) -> bytes:
    return asked.body


def echoing(**answers: Answer) -> StandIn:
    return StandIn({"metadata": echo, "fetch": echo, "produce": echo, **answers})


def ask(connection: Connection, text: bytes, *, timeout_s: float = 10) -> "asyncio.Future[memoryview]":
    return connection.submit_raw(METADATA, 1, [text], flexible=False, timeout_s=timeout_s)


@on_both_loops
async def test_answers_come_in_order_to_those_who_asked() -> None:
    async with echoing() as broker:
        connection = await Connection.open(broker.address)
        texts = [b"%d" % number * (number % 7 * 5_000 + 1) for number in range(100)]
        answers = [ask(connection, text) for text in texts]
        assert connection.in_flight == 100
        assert [bytes(await answer) for answer in answers] == texts
        assert connection.in_flight == 0
        await connection.close()


@on_both_loops
async def test_parts_go_out_one_after_the_other_and_the_header_fits_the_version() -> None:
    async with echoing() as broker:
        connection = await Connection.open(broker.address, ConnectionSettings(client_id="billing"))
        parts: list[bytes | bytearray | memoryview] = [
            b"small",
            bytearray(b"m" * 20_000),
            memoryview(b"l" * 300_000)[1:],
            b"",
            b"end",
        ]
        for version, flexible in ((8, False), (9, True)):
            answer = await connection.submit_raw(PRODUCE, version, parts, flexible=flexible, timeout_s=10)
            assert answer == b"".join(parts)
            asked = broker.asked[-1]
            assert (asked.api.name, asked.version, asked.client_id) == ("produce", version, "billing")
        await connection.close()


@on_both_loops
async def test_a_large_answer_is_handed_out_in_memory_that_is_the_callers_alone() -> None:
    size = 24_000_000

    def large(asked: Asked) -> Verbatim:
        body = b"\x07" * size
        return Verbatim(struct.pack(">ii", size + 5, asked.correlation_id) + b"\0" + body)

    async with echoing(fetch=large) as broker:
        connection = await Connection.open(broker.address)
        first, second = [await connection.submit_raw(FETCH, 12, [b"?"], flexible=True, timeout_s=20) for _ in range(2)]
        assert len(first) == len(second) == size
        assert isinstance(first.obj, bytearray)
        assert len(first.obj) < size * 1.13, "more memory than the answer needs"
        first[:] = b"\x00" * size
        assert second == b"\x07" * size
        assert connection.statistics.bytes_in > 2 * size
        await connection.close()


@on_both_loops
async def test_tagged_fields_in_an_answers_header_are_skipped() -> None:
    def tagged(asked: Asked) -> Verbatim:
        frame = (
            struct.pack(">i", asked.correlation_id) + bytes([2, 0, 3]) + b"abc" + bytes([130, 1, 1]) + b"d" + b"body"
        )
        return Verbatim(struct.pack(">i", len(frame)) + frame)

    async with echoing(fetch=tagged) as broker:
        connection = await Connection.open(broker.address)
        assert (await connection.submit_raw(FETCH, 12, [b"?"], flexible=True, timeout_s=10)).tobytes() == b"body"
        await connection.close()


@on_both_loops
async def test_a_request_without_an_answer_leaves_the_next_one_in_step() -> None:
    async with echoing(produce=lambda _: SILENCE) as broker:
        connection = await Connection.open(broker.address)
        nothing = await connection.submit_raw(PRODUCE, 3, [b"acks=0"], flexible=False, timeout_s=10, answered=False)
        assert len(nothing) == 0
        assert (await ask(connection, b"next")).tobytes() == b"next"
        assert broker.count("produce") == 1
        await connection.close()


@on_both_loops
async def test_whoever_stops_waiting_does_not_bring_the_others_out_of_step() -> None:
    gate = asyncio.Event()

    async def slow(asked: Asked) -> bytes:
        await gate.wait()
        return echo(asked)

    async with echoing(metadata=slow) as broker:
        connection = await Connection.open(broker.address)
        answers = [ask(connection, b"%d" % number) for number in range(6)]
        waiter = asyncio.ensure_future(asyncio.wait_for(answers[0], 5))
        await asyncio.sleep(0)
        waiter.cancel()
        for cancelled in (answers[2], answers[5]):
            cancelled.cancel()
        gate.set()
        assert [bytes(await answers[number]) for number in (1, 3, 4)] == [b"1", b"3", b"4"]
        assert (await ask(connection, b"later")).tobytes() == b"later"
        assert connection.in_flight == connection.statistics.in_flight == 0
        await connection.close()


@on_both_loops
async def test_an_answer_that_nobody_waits_for_any_more_is_still_owed() -> None:
    async with echoing(metadata=lambda _: SILENCE) as broker:
        connection = await Connection.open(broker.address)
        lost = asyncio.get_running_loop().create_future()
        connection.on_lost = lost.set_result
        ask(connection, b"?", timeout_s=0.1).cancel()
        assert str(await lost) == f"no answer from {broker.address} within 0.1 s"
        assert not connection.usable


@on_both_loops
async def test_the_earliest_deadline_ends_the_connection_whoever_asked_first() -> None:
    async with echoing(metadata=lambda _: SILENCE) as broker:
        connection = await Connection.open(broker.address)
        begin_s = time.monotonic()
        answers = [ask(connection, b"patient", timeout_s=60), ask(connection, b"hasty", timeout_s=0.1)]
        for answer in answers:
            with pytest.raises(TimedOutError, match=f"no answer from {broker.address} within 0.1 s"):
                await answer
        with pytest.raises(TimedOutError, match=r"within 0\.1 s"):
            await ask(connection, b"afterwards")
        assert time.monotonic() - begin_s < 5
        assert connection.in_flight == connection.statistics.in_flight == 0
        await connection.drained()
        await connection.close()


@on_both_loops
async def test_a_deadline_that_was_met_does_not_end_the_connection_later() -> None:
    async with echoing() as broker:
        connection = await Connection.open(broker.address)
        await ask(connection, b"met", timeout_s=0.05)
        await asyncio.sleep(0.15)
        assert (await ask(connection, b"next", timeout_s=0.5)).tobytes() == b"next"
        await connection.close()


@on_both_loops
async def test_an_answer_that_came_while_this_process_was_held_up_is_not_late() -> None:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer_at_once() -> None:
            client, _ = listener.accept()
            with client:
                while (length := client.recv(4)) and (frame := client.recv(int.from_bytes(length), socket.MSG_WAITALL)):
                    asked = Asked.read(frame)
                    answer: Any = served_versions(asked) if asked.api.name == "api_versions" else b"answer" * 50_000
                    client.sendall(encode_response(asked.api, asked.version, asked.correlation_id, answer))

        answering = loop.run_in_executor(None, answer_at_once)
        connection = await Connection.open(Address("127.0.0.1", listener.getsockname()[1]))
        answer = ask(connection, b"?", timeout_s=0.1)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        time.sleep(0.5)
        assert (await answer).tobytes() == b"answer" * 50_000
        await connection.close()
        await answering


HOSTILE = {
    "a negative length": (b"\xff\xff\xff\xff", "not in Kafka's protocol"),
    "a length of nothing": (struct.pack(">i", 3) + b"abc", "not in Kafka's protocol"),
    "a huge length": (struct.pack(">i", 2**31 - 1), "not in Kafka's protocol"),
    "a wrong correlation id": (struct.pack(">ii", 8, 4711) + b"body", r"a request that was not sent \(4711\)"),
    "an answer nobody asked for": (None, "a request that was not sent"),
    "a header without an end": (None, "an answer that cannot be read"),
}


@pytest.mark.parametrize("case", HOSTILE)
@both_loops
def test_hostile_answers_end_the_connection_and_name_the_address(case: str, run: Run) -> None:
    content, complaint = HOSTILE[case]

    def hostile(asked: Asked) -> Verbatim:
        good = struct.pack(">iib", 5, asked.correlation_id, 0)
        if case == "an answer nobody asked for":
            return Verbatim(good * 3)
        if case == "a header without an end":
            return Verbatim(struct.pack(">ii", 6, asked.correlation_id) + b"\xff\xff")
        return Verbatim(content or b"")

    async def talk() -> None:
        async with echoing(fetch=hostile) as broker:
            connection = await Connection.open(broker.address)
            answers = [connection.submit_raw(FETCH, 12, [b"?"], flexible=True, timeout_s=5) for _ in range(2)]
            with pytest.raises(NotKafkaError, match=f"{broker.address} .*{complaint}"):
                await answers[1]
            assert not connection.usable
            await connection.close()

    run_limited(run, talk())


@on_both_loops
async def test_a_message_that_cannot_be_read_ends_the_connection_and_names_the_address() -> None:
    request = MetadataRequest(topics=(), allow_auto_topic_creation=False, include_topic_authorized_operations=False)
    async with echoing(metadata=lambda _: b"\0\1") as broker:
        connection = await Connection.open(broker.address)
        with pytest.raises(NotKafkaError, match=f"{broker.address} sent an answer that cannot be read"):
            await connection.send(request, MetadataResponse, timeout_s=5)
        assert not connection.usable
        await connection.close()


@on_both_loops
async def test_an_answer_cut_off_in_the_middle_is_a_lost_connection() -> None:
    async def cut(asked: Asked) -> object:
        writer = next(iter(broker._writers))
        writer.write(struct.pack(">ii", 2_000_000, asked.correlation_id) + b"x" * 1_500_000)
        await writer.drain()
        return HANG_UP

    async with echoing(fetch=cut) as broker:
        connection = await Connection.open(broker.address)
        with pytest.raises(ConnectionLostError, match=f"the broker at {broker.address} closed the connection"):
            await connection.submit_raw(FETCH, 4, [b"?"], flexible=False, timeout_s=5)
        await connection.close()


@on_both_loops
async def test_a_broker_that_does_not_read_holds_back_those_who_wait_for_drained() -> None:
    gate = asyncio.Event()

    async def stuck(asked: Asked) -> bytes:
        await gate.wait()
        return b"taken"

    async with echoing(produce=stuck) as broker:
        settings = ConnectionSettings(send_buffer_bytes=50_000)
        connection = await Connection.open(broker.address, settings)
        part = bytes(8_000_000)
        answers = [connection.submit_raw(PRODUCE, 3, [part], flexible=False, timeout_s=15) for _ in range(3)]
        drained = [asyncio.ensure_future(connection.drained()) for _ in range(3)]
        await asyncio.sleep(0.05)
        assert not any(waiter.done() for waiter in drained)
        drained[0].cancel()
        gate.set()
        await asyncio.gather(*drained[1:])
        assert [bytes(await answer) for answer in answers] == [b"taken"] * 3
        await connection.close()


@on_both_loops
async def test_a_connection_that_ends_lets_go_of_those_who_wait_for_drained() -> None:
    gate = asyncio.Event()
    async with echoing(produce=lambda _: gate.wait()) as broker:
        connection = await Connection.open(broker.address)
        answers = [
            connection.submit_raw(PRODUCE, 3, [bytes(8_000_000)], flexible=False, timeout_s=15) for _ in range(3)
        ]
        waiter = asyncio.ensure_future(connection.drained())
        await asyncio.sleep(0.01)
        await connection.close()
        await waiter
        for answer in answers:
            with pytest.raises(ConnectionLostError, match=f"the connection to {broker.address} was closed"):
                await answer
        gate.set()


@on_both_loops
async def test_a_stop_while_it_opens_leaves_no_connection_behind() -> None:
    async with StandIn({"api_versions": lambda _: SILENCE}) as broker:
        opening = asyncio.create_task(Connection.open(broker.address))
        while not broker.asked:
            await asyncio.sleep(0.001)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        async with asyncio.timeout(5):  # well before the broker's silence would end it
            while broker.open_connections:
                await asyncio.sleep(0.001)


@on_both_loops
async def test_a_broker_that_accepts_and_says_nothing_is_given_up_in_time() -> None:
    async with StandIn({"api_versions": lambda _: SILENCE}) as broker:
        settings = ConnectionSettings(socket_connection_setup_timeout_ms=100)
        with pytest.raises(NotKafkaError, match=f"{broker.address} accepts connections but does not answer"):
            await Connection.open(broker.address, settings)


@on_both_loops
async def test_it_counts_what_it_does() -> None:
    async with echoing() as broker:
        connection = await Connection.open(broker.address)
        before = connection.statistics.snapshot()
        for _ in range(10):
            await ask(connection, bytes(100))
        after = connection.statistics.snapshot()
        assert after["requests"] - before["requests"] == after["answers"] - before["answers"] == 10
        assert after["bytes_out"] - before["bytes_out"] == 10 * (14 + len("headwater") + 100)
        assert after["bytes_in"] - before["bytes_in"] == 10 * (8 + 100)
        assert 0 < after["latency_average_ms"] <= after["latency_max_ms"]
        await connection.close()


async def handshake(connection: Connection) -> None:
    answer = await connection.send(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, timeout_s=5)
    if answer.error_code is not ErrorCode.none:
        raise RefusedError("mechanism PLAIN", answer.error_code)


def with_sasl(sasl: Callable[[Connection], Coroutine[Any, Any, None]], limit_ms: int = 5_000) -> ConnectionSettings:
    return ConnectionSettings(security=Security(sasl=sasl), socket_connection_setup_timeout_ms=limit_ms)


@on_both_loops
async def test_the_sasl_hook_has_the_connection_before_anybody_else() -> None:
    accepted = SaslHandshakeResponse(error_code=ErrorCode.none, mechanisms=("PLAIN",))
    async with echoing(sasl_handshake=lambda _: accepted) as broker:
        connection = await Connection.open(broker.address, with_sasl(handshake))
        await ask(connection, b"?")
        assert [asked.api.name for asked in broker.asked] == ["api_versions", "sasl_handshake", "metadata"]
        await connection.close()


@on_both_loops
async def test_a_refused_authentication_names_the_address_and_leaves_no_connection_behind() -> None:
    refused = SaslHandshakeResponse(error_code=ErrorCode.unsupported_sasl_mechanism, mechanisms=("SCRAM",))
    async with echoing(sasl_handshake=lambda _: refused) as broker:
        complaint = f"{broker.address} refuses the authentication: mechanism PLAIN: unsupported sasl mechanism"
        with pytest.raises(AuthenticationError, match=complaint):
            await Connection.open(broker.address, with_sasl(handshake))
        broker.answers["sasl_handshake"] = lambda _: HANG_UP
        with pytest.raises(AuthenticationError, match=f"{broker.address} refuses the authentication"):
            await Connection.open(broker.address, with_sasl(handshake))
        while broker.open_connections:
            await asyncio.sleep(0.001)


@on_both_loops
async def test_an_authentication_that_never_ends_is_given_up_in_time() -> None:
    async with echoing(sasl_handshake=lambda _: SILENCE) as broker:
        with pytest.raises(AuthenticationError, match=f"{broker.address} did not finish the authentication"):
            await Connection.open(broker.address, with_sasl(handshake, limit_ms=100))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 that signs itself, and its key in the same file."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not there to make a certificate")
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=stand-in"
    subprocess.run(
        [*command.split(), "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", f"{file}.key", "-out", str(file)],
        check=True,
        capture_output=True,
    )
    file.write_bytes(file.read_bytes() + Path(f"{file}.key").read_bytes())
    return file


def server_tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def encrypted(context: ssl.SSLContext, server_hostname: str | None = None) -> ConnectionSettings:
    return ConnectionSettings(security=Security(tls=context, server_hostname=server_hostname))


@both_loops
def test_tls_carries_small_and_large_requests_and_answers(run: Run, certificate: Path) -> None:
    async def talk() -> None:
        tls = server_tls(certificate)
        async with StandIn({"metadata": echo, "produce": echo}, tls=tls) as broker:
            settings = encrypted(ssl.create_default_context(cafile=str(certificate)))
            connection = await Connection.open(broker.address, settings)
            large = bytes(range(256)) * 12_000
            answers = [ask(connection, b"small"), ask(connection, large), ask(connection, b"small again")]
            assert [bytes(await answer) for answer in answers] == [b"small", large, b"small again"]
            await connection.close()

    run_limited(run, talk())


@both_loops
def test_a_certificate_that_is_not_trusted_is_named_with_the_address(run: Run, certificate: Path) -> None:
    async def talk() -> None:
        async with StandIn({}, tls=server_tls(certificate)) as broker:
            complaint = f"cannot connect to {broker.address}: its certificate is not trusted .*right CA"
            with pytest.raises(CannotConnectError, match=complaint):
                await Connection.open(broker.address, encrypted(ssl.create_default_context()))
            trusting = ssl.create_default_context(cafile=str(certificate))
            with pytest.raises(CannotConnectError, match=r"its certificate is not trusted .*kafka\.example"):
                await Connection.open(broker.address, encrypted(trusting, "kafka.example"))

    run_limited(run, talk())


@both_loops
def test_tls_and_plaintext_that_meet_say_so(run: Run, certificate: Path) -> None:
    async def talk() -> None:
        async with StandIn({}, tls=server_tls(certificate)) as secure:
            with pytest.raises(NotKafkaError, match=f"{secure.address} .*plaintext"):
                await Connection.open(secure.address)
        async with _hanging_up() as address:
            with pytest.raises(CannotConnectError, match=f"cannot connect to {address}: .*is it a TLS listener"):
                await Connection.open(address, encrypted(ssl.create_default_context()))

    run_limited(run, talk())


@on_both_loops
async def test_a_tls_handshake_that_nobody_answers_is_given_up_in_time() -> None:
    async with echoing() as plaintext:  # takes the greeting for the beginning of a very long request
        settings = ConnectionSettings(
            security=Security(tls=ssl.create_default_context()), socket_connection_setup_timeout_ms=200
        )
        with pytest.raises(CannotConnectError, match=f"cannot connect to {plaintext.address}: no answer in 0.2 s"):
            await Connection.open(plaintext.address, settings)
        async with asyncio.timeout(5):
            while plaintext.open_connections:
                await asyncio.sleep(0.001)


@asynccontextmanager
async def _hanging_up() -> AsyncIterator[Address]:
    """What a plaintext broker does with a TLS greeting: the length that it reads there is too large."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4)
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listener:
        yield Address("127.0.0.1", listener.sockets[0].getsockname()[1])
