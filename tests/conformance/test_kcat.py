"""kcat (librdkafka in C) as people use it in a shell."""

import json
import subprocess
from typing import Any

import pytest

from peers.presence import require_kcat

from .actions import create_topic, fetch_all, unique_name
from .batches import read_batches
from .conftest import Broker
from .wire import Wire

pytestmark = pytest.mark.peer


def kcat(broker: Broker, *arguments: str, stdin: str = "") -> str:
    command = [require_kcat(), "-b", broker.bootstrap, *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def consume(broker: Broker, topic: str, *more: str) -> list[dict[str, Any]]:
    lines = kcat(broker, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-J", *more).splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_go_in_and_come_out_with_each_compression(broker: Broker, wire: Wire, codec: str) -> None:
    topic = create_topic(wire)
    lines = [f"line {number} {'x' * 50}" for number in range(500)]
    kcat(broker, "-P", "-t", topic.name, "-z", codec, stdin="\n".join(lines))
    got = consume(broker, topic.name)
    assert [entry["payload"] for entry in got] == lines
    assert [entry["offset"] for entry in got] == list(range(500))
    assert {one.codec for one in read_batches(fetch_all(wire, topic))} == {codec}


@pytest.mark.parametrize("acks", ["0", "1", "-1"])
def test_every_level_of_acks(broker: Broker, wire: Wire, acks: str) -> None:
    topic = create_topic(wire)
    kcat(broker, "-P", "-t", topic.name, "-X", f"acks={acks}", stdin="one\ntwo\n")
    assert [entry["payload"] for entry in consume(broker, topic.name)] == ["one", "two"]


def test_keys_headers_and_nulls(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, partitions=3)
    kcat(broker, "-P", "-t", topic.name, "-K:", "-Z", "-H", "a=1", "-H", "b=2", stdin="k1:v1\nk2:\nk1:v2\n")
    got = consume(broker, topic.name)
    assert sorted((entry["key"], entry["payload"] or "") for entry in got) == [
        ("k1", "v1"),
        ("k1", "v2"),
        ("k2", ""),
    ]
    assert all(entry["headers"] == ["a", "1", "b", "2"] for entry in got)
    assert len({entry["partition"] for entry in got if entry["key"] == "k1"}) == 1
    assert [entry["payload"] for entry in got if entry["key"] == "k1"] == ["v1", "v2"]


def test_an_idempotent_producer(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)
    kcat(broker, "-P", "-t", topic.name, "-X", "enable.idempotence=true", stdin="a\nb\nc\n")
    assert [entry["payload"] for entry in consume(broker, topic.name)] == ["a", "b", "c"]


def test_from_an_offset_and_from_the_tail(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire)
    kcat(broker, "-P", "-t", topic.name, stdin="\n".join(str(number) for number in range(10)))
    from_offset = kcat(broker, "-C", "-t", topic.name, "-p", "0", "-o", "7", "-e", "-q")
    assert from_offset.split() == ["7", "8", "9"]
    from_tail = kcat(broker, "-C", "-t", topic.name, "-p", "0", "-o", "-2", "-e", "-q")
    assert from_tail.split() == ["8", "9"]


def test_producing_makes_a_topic_where_that_is_allowed(broker: Broker) -> None:
    name = unique_name("auto")
    kcat(broker, "-P", "-t", name, stdin="first\n")
    assert [entry["payload"] for entry in consume(broker, name)] == ["first"]


def test_listing_and_querying_offsets(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, partitions=2)
    kcat(broker, "-P", "-t", topic.name, "-p", "1", stdin="a\nb\n")
    listing = json.loads(kcat(broker, "-L", "-J", "-t", topic.name))
    (found,) = listing["topics"]
    assert (found["topic"], len(found["partitions"])) == (topic.name, 2)
    assert kcat(broker, "-Q", "-t", f"{topic.name}:1:-1").split() == [topic.name, "[1]", "offset", "2"]
