"""A fork beside the blocking clients: the child gets a clear error and may make its own, the parent goes on."""

import subprocess
import sys
import textwrap
import uuid

import pytest

import headwater as hw
from peers.headwater import HeadwaterProcess

MAKE = {
    "producer": "hw.Producer(bootstrap)",
    "consumer": "hw.Consumer(bootstrap, group=topic, topics=[topic], auto_offset_reset='earliest')",
    "admin": "hw.Admin(bootstrap)",
}
USE = {
    "producer": "client.send(topic, b'x', partition=0)",
    "consumer": "client.poll(timeout=1.0)",
    "admin": "client.describe_topic(topic)",
}
HEAD = """
import os, signal, sys, threading, time
import headwater as hw
from headwater.client.errors import ForkedError
bootstrap, topic = sys.argv[1:]

def child_ended(child):
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)
"""


@pytest.fixture
def topic(headwater: HeadwaterProcess) -> str:
    name = f"fork-{uuid.uuid4().hex[:8]}"
    with hw.Admin(headwater.bootstrap) as admin:
        admin.create_topic(name, partitions=1)
    return name


def run(source: str, headwater: HeadwaterProcess, topic: str) -> list[str]:
    """The lines that a program prints, which ends well."""
    warnings = ["-W", "error", "-W", "ignore:This process:DeprecationWarning"]
    command = [sys.executable, *warnings, "-c", HEAD + textwrap.dedent(source), headwater.bootstrap, topic]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("kind", MAKE)
def test_the_child_is_told_and_the_parent_goes_on(kind: str, headwater: HeadwaterProcess, topic: str) -> None:
    printed = run(
        f"""
        client = {MAKE[kind]}
        {USE[kind]}
        child = os.fork()
        if child == 0:
            try:
                {USE[kind]}
            except ForkedError as error:
                print(error, flush=True)
            client.close()
            sys.exit(3)
        assert child_ended(child) == 3
        {USE[kind]}
        client.close()
        print("the parent closed it")
        """,
        headwater,
        topic,
    )
    assert printed == [
        f"this {kind} belongs to the parent process, where its connections are; "
        "make a new one in the child process, after the fork",
        "the parent closed it",
    ]


def test_a_block_that_the_child_leaves_closes_nothing_of_the_parents(headwater: HeadwaterProcess, topic: str) -> None:
    """Of a record that waits in the parent's memory when it forks, one is written, by the parent."""
    run(
        """
        with hw.Producer(bootstrap, linger_ms=60_000) as producer:
            producer.send(topic, b"once")
            child = os.fork()
            if child == 0:
                sys.exit(0)
            assert child_ended(child) == 0
        """,
        headwater,
        topic,
    )
    with hw.Consumer(headwater.bootstrap, topics=[topic], auto_offset_reset="earliest") as consumer:
        assert [record.value for record in consumer.poll(timeout=10.0)] == [b"once"]
        assert consumer.poll(timeout=0.2) == []


def test_a_child_has_clients_of_its_own(headwater: HeadwaterProcess, topic: str) -> None:
    run(
        """
        parents = hw.Producer(bootstrap)
        parents.send(topic, b"parent").result(10)
        children = []
        for number in range(3):
            child = os.fork()
            if child == 0:
                with hw.Producer(bootstrap) as own:
                    own.send(topic, b"child").result(10)
                os._exit(0)
            children.append(child)
        assert [child_ended(child) for child in children] == [0, 0, 0]
        parents.send(topic, b"parent").result(10)
        parents.close()
        """,
        headwater,
        topic,
    )
    with hw.Consumer(headwater.bootstrap, topics=[topic], auto_offset_reset="earliest") as consumer:
        found: list[hw.Record] = []
        while len(found) < 5:
            found += consumer.poll(timeout=10.0)
    assert sorted(record.value or b"" for record in found) == [b"child"] * 3 + [b"parent"] * 2


def test_multiprocessing_that_forks_under_load_hangs_nobody(headwater: HeadwaterProcess, topic: str) -> None:
    """Threads send while others fork: whatever locks are held in that moment, children end and records arrive."""
    printed = run(
        """
        import multiprocessing

        def work(number):
            try:
                producer.send(topic, b"x")
            except ForkedError:
                return number
            return -1

        producer = hw.Producer(bootstrap, batch_size=1000)
        stop = threading.Event()
        sent = [0, 0]

        def send(place):
            while not stop.is_set():
                producer.send(topic, b"y" * 100)
                sent[place] += 1

        threads = [threading.Thread(target=send, args=(place,)) for place in (0, 1)]
        for thread in threads:
            thread.start()
        context = multiprocessing.get_context("fork")
        with context.Pool(4) as pool:
            assert pool.map(work, range(40)) == list(range(40))
        stop.set()
        for thread in threads:
            thread.join()
        producer.flush()
        producer.close()
        with hw.Admin(bootstrap) as admin:
            with hw.Consumer(bootstrap) as consumer:
                partition = hw.TopicPartition(topic, 0)
                print(consumer.end_offsets([partition])[partition] == sum(sent))
        """,
        headwater,
        topic,
    )
    assert printed == ["True"]
