"""Hostile bytes: whatever arrives, that connection is answered or closed, and everybody else is served on.

The frames are recorded from real clients at work, then cut, flipped, stretched and mixed by Hypothesis.
"""

import logging
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.testing import LocalBroker
from integration.hostile_frames import HostileFrames
from integration.raw_client import API_VERSIONS_V0, RawClient, batch_of, produce_body, produced
from integration.recorded_frames import recorded_frames

# The package re-exports these names without saying so, which strict typing does not take.
admin_api: Any = confluent_kafka.admin
FRAMES_UNDER_FIRE = 20_000


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker(config={"num.partitions": 2}) as broker:
        yield broker


@pytest.fixture(scope="module")
def recorded() -> list[bytes]:
    return recorded_frames()


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


def test_thousands_of_harmed_frames_leave_the_broker_and_its_groups_as_they_were(tmp_path: Path) -> None:
    fire = HostileFrames(tmp_path, seed=0)
    fire.run(frames=FRAMES_UNDER_FIRE)
    assert fire.looked_at >= 0.9 * FRAMES_UNDER_FIRE
