"""The blocking clients against a broker: their calls, their threads, Ctrl-C, and how they end."""

import collections
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import headwater as hw
from headwater.client.consumer.listeners import RebalanceListener
from headwater.client.errors import ClosedError, RefusedError, WrongThreadError
from headwater.types import TopicPartition
from peers.headwater import HeadwaterProcess


@pytest.fixture
def bootstrap(headwater: HeadwaterProcess) -> str:
    return headwater.bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"blocking-{uuid.uuid4().hex[:8]}"
    with hw.Admin(bootstrap) as admin:
        admin.create_topic(name, partitions=2)
    return name


def filled(bootstrap: str, topic: str, count: int) -> str:
    with hw.Producer(bootstrap) as producer:
        for number in range(count):
            producer.send(topic, str(number), partition=0)
    return topic


def values(records: list[hw.Record]) -> list[int]:
    return [int(record.value or b"") for record in records]


def eventually(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    gives_up_at_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < gives_up_at_s, "waited in vain"
        time.sleep(0.005)


def reader(bootstrap: str, topic: str, group: str | None = None, **settings: object) -> hw.Consumer:
    return hw.Consumer(bootstrap, group=group, topics=[topic], auto_offset_reset="earliest", **settings)


def read(consumer: hw.Consumer, count: int) -> list[hw.Record]:
    found: list[hw.Record] = []
    gives_up_at_s = time.monotonic() + 20
    while len(found) < count and time.monotonic() < gives_up_at_s:
        found += consumer.poll(timeout=1.0)
    return found


# Producer

_NO_MEMORY = r"max\.block\.ms = 300: .* take all of buffer\.memory = 32768"


def test_a_record_is_sent_and_its_handle_tells_where_it_is(bootstrap: str, topic: str) -> None:
    with hw.Producer(bootstrap, acks="all", linger_ms=5) as producer:
        first = producer.send(topic, b"six bottles", key="ann", partition=1, headers=[("from", b"cellar")])
        second = producer.send(topic, "two crates", partition=1, timestamp_ms=1_700_000_000_000)
        assert first.result(10)[:3] == (topic, 1, 0)
        assert second.result(10) == (topic, 1, 1, 1_700_000_000_000)
        assert producer.pending_records == 0
    with reader(bootstrap, topic) as consumer:
        found = read(consumer, 2)
    assert [(record.key, record.value, record.headers) for record in found] == [
        (b"ann", b"six bottles", (("from", b"cellar"),)),
        (None, b"two crates", ()),
    ]


def test_leaving_the_block_sends_what_is_left(bootstrap: str, topic: str) -> None:
    with hw.Producer(bootstrap, linger_ms=10_000) as producer:
        handle = producer.send(topic, b"late")
    assert handle.done()
    assert handle.result().offset == 0


def test_many_threads_send_at_once_and_each_ones_order_is_kept(bootstrap: str, topic: str) -> None:
    threads, each = 8, 500
    with hw.Producer(bootstrap, batch_size=2000, buffer_memory=64 * 1024) as producer:

        def send_all(thread: int) -> None:
            for number in range(each):
                producer.send(topic, f"{thread * each + number}", partition=0)

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(send_all, range(threads)))
        producer.flush()
        assert producer.pending_records == 0
    with reader(bootstrap, topic) as consumer:
        found = values(read(consumer, threads * each))
    assert sorted(found) == list(range(threads * each))
    for thread in range(threads):
        mine = [number for number in found if number // each == thread]
        assert mine == sorted(mine)


def test_send_waits_for_memory_only_as_long_as_max_block_ms(headwater: HeadwaterProcess, topic: str) -> None:
    """With a broker that takes nothing, memory fills up; then `send` fails, and says what to do."""
    with hw.Producer(headwater.bootstrap, buffer_memory=32 * 1024, max_block_ms=300) as producer:
        producer.send(topic, b"x", partition=0).result(10)
        os.kill(headwater.pid, signal.SIGSTOP)
        try:
            with pytest.raises(hw.TimedOutError, match=_NO_MEMORY):
                collections.deque((producer.send(topic, b"x" * 1000, partition=0) for _ in range(100)), maxlen=0)
        finally:
            os.kill(headwater.pid, signal.SIGCONT)
        producer.flush(20)


def test_tables_larger_than_the_memory_are_sent_by_many_threads_at_once(bootstrap: str, topic: str) -> None:
    """Each thread encodes its rows itself, and waits for memory like those who send row by row."""
    pyarrow = pytest.importorskip("pyarrow")

    def table(thread: int) -> Any:
        numbers = range(thread * 10_000, (thread + 1) * 10_000)
        return pyarrow.table({"value": [str(number) for number in numbers], "place": [thread % 2] * 10_000})

    with (
        hw.Producer(bootstrap, batch_size=2000, buffer_memory=32 * 1024) as producer,
        ThreadPoolExecutor(4) as threads,
    ):
        sendings = [
            threads.submit(producer.send_arrow, topic, table(thread), value="value", partition_by="place")
            for thread in range(4)
        ]
        sent = [sending.result(20).result(20) for sending in sendings]
    assert [(list(rows), rows[thread % 2].count) for thread, rows in enumerate(sent)] == [
        ([thread % 2], 10_000) for thread in range(4)
    ]
    with reader(bootstrap, topic) as consumer:
        found = values(read(consumer, 40_000))
    for thread in range(4):
        assert [number for number in found if number // 10_000 == thread] == list(
            range(thread * 10_000, (thread + 1) * 10_000)
        )


def test_a_table_waits_for_memory_only_as_long_as_max_block_ms(headwater: HeadwaterProcess, topic: str) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table({"value": [b"x" * 1000] * 100})
    with hw.Producer(headwater.bootstrap, buffer_memory=32 * 1024, max_block_ms=300) as producer:
        producer.send(topic, b"x", partition=0).result(10)
        os.kill(headwater.pid, signal.SIGSTOP)
        try:
            with pytest.raises(hw.TimedOutError, match=_NO_MEMORY):
                producer.send_arrow(topic, table, value="value")
        finally:
            os.kill(headwater.pid, signal.SIGCONT)
        producer.flush(20)
        assert producer.send_arrow(topic, table, value="value").count == 100
    with pytest.raises(ClosedError, match="the producer is closed"):
        producer.send_arrow(topic, table, value="value")


def test_a_topic_that_is_not_there_is_told_with_its_name(bootstrap: str) -> None:
    with hw.Producer(bootstrap, max_block_ms=300) as producer, pytest.raises(hw.ClientError, match="no/topic"):
        producer.send("no/topic", b"x")


def test_a_delivery_callback_may_send_but_not_wait(bootstrap: str, topic: str) -> None:
    told: list[object] = []
    done = threading.Event()
    with hw.Producer(bootstrap, linger_ms=0) as producer:

        def on_delivery(error: Exception | None, metadata: object) -> None:
            told.append(producer.send(topic, b"second", partition=0))
            try:
                producer.flush()
            except WrongThreadError as refused:
                told.append(str(refused))
            done.set()

        producer.send(topic, b"first", partition=0, on_delivery=on_delivery)
        assert done.wait(20)
        assert "a callback of the producer cannot wait for the producer" in str(told[1])


def test_a_transaction_is_committed_by_its_block_or_aborted_by_an_error(bootstrap: str, topic: str) -> None:
    with hw.Producer(bootstrap, transactional_id=f"txn-{topic}") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send(topic, "1", partition=0)
        with pytest.raises(ZeroDivisionError), producer.transaction():
            producer.send(topic, str(2 // producer.send(topic, "2", partition=0).result(10).partition), partition=0)
        with producer.transaction():
            producer.send(topic, "3", partition=0)
    with reader(bootstrap, topic, isolation_level="read_committed") as consumer:
        assert values(read(consumer, 2)) == [1, 3]


def test_ctrl_c_in_a_transaction_aborts_it(bootstrap: str, topic: str) -> None:
    printed = run(
        """
        with hw.Producer(bootstrap, transactional_id="t-" + topic) as producer:
            producer.init_transactions()
            try:
                with producer.transaction():
                    producer.send(topic, "1", partition=0).result(10)
                    os.kill(os.getpid(), signal.SIGINT)
                    time.sleep(10)
            except KeyboardInterrupt:
                print("aborted")
            with producer.transaction():
                producer.send(topic, "2", partition=0)
        """,
        bootstrap,
        topic,
    )
    assert printed == "aborted\n"
    with reader(bootstrap, topic, isolation_level="read_committed") as consumer:
        assert values(read(consumer, 1)) == [2]


def test_a_closed_producer_says_so(bootstrap: str, topic: str) -> None:
    producer = hw.Producer(bootstrap)
    producer.close()
    producer.close()
    for use in (lambda: producer.send(topic, b"x"), producer.flush, lambda: producer.partitions_for(topic)):
        with pytest.raises(ClosedError, match="the producer is closed"):
            use()


# Consumer


def test_poll_gives_lists_and_for_gives_one_after_the_other(bootstrap: str, topic: str) -> None:
    filled(bootstrap, topic, 1000)
    with reader(bootstrap, topic) as consumer:
        first = consumer.poll(timeout=10.0, max_records=10)
        assert values(first) == list(range(10))
        following = [int(record.value or b"") for _, record in zip(range(600), consumer, strict=False)]
        assert following == list(range(10, 610))


def test_settings_may_come_by_kafkas_names(bootstrap: str, topic: str) -> None:
    filled(bootstrap, topic, 3)
    config = {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    with hw.Consumer.from_config(config) as consumer:
        consumer.subscribe([topic])
        assert values(read(consumer, 3)) == [0, 1, 2]


def test_all_records_come_once_and_in_order_while_more_are_fetched(bootstrap: str, topic: str) -> None:
    """Polls take what has arrived in their own thread, while the consumer's goes on fetching small pieces."""
    filled(bootstrap, topic, 30_000)
    small = {"max_partition_fetch_bytes": 5000, "prefetch_max_bytes": 20_000}
    with reader(bootstrap, topic, f"group-{topic}", **small) as consumer:
        found = values([record for _ in range(10) for record in read(consumer, 1000)])
        found += [int(record.value or b"") for _, record in zip(range(30_000 - len(found)), consumer, strict=False)]
    assert found == list(range(30_000))


def test_poll_returns_empty_when_the_time_is_over(bootstrap: str, topic: str) -> None:
    with reader(bootstrap, topic) as consumer:
        consumer.poll(timeout=0.5)
        began_s = time.monotonic()
        assert consumer.poll(timeout=0.3) == []
        assert 0.25 <= time.monotonic() - began_s < 3


def test_poll_arrow_gives_a_table(bootstrap: str, topic: str) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    filled(bootstrap, topic, 100)
    with reader(bootstrap, topic) as consumer:
        tables: list[Any] = []
        while sum(table.num_rows for table in tables) < 100:
            tables.append(consumer.poll_arrow(timeout=10.0))
            assert tables[-1].num_rows
        table = pyarrow.concat_tables(tables)
    assert table.column_names == ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
    assert [int(value) for value in table["value"].to_pylist()] == list(range(100))


def test_a_for_that_is_left_reads_on_where_it_stopped_and_commits_no_more(bootstrap: str, topic: str) -> None:
    """Records that were fetched for the loop, but that its body has not seen, are neither lost nor committed."""
    filled(bootstrap, topic, 100)
    group = f"group-{topic}"
    partition = TopicPartition(topic, 0)
    with reader(bootstrap, topic, group) as consumer:
        for record in consumer:
            if record.offset == 29:
                break
        assert consumer.position(partition) == 30
        consumer.commit()
        assert consumer.committed([partition])[partition].offset == 30  # type: ignore[union-attr]
        assert next(consumer).offset == 30
        assert consumer.poll(timeout=10.0, max_records=1)[0].offset == 31
        for record in consumer:
            if record.offset == 69:
                break
    with reader(bootstrap, topic, group) as consumer:
        assert consumer.poll(timeout=10.0)[0].offset == 70


def test_after_an_error_what_was_being_worked_on_is_read_again(bootstrap: str, topic: str) -> None:
    filled(bootstrap, topic, 10)
    with pytest.raises(ZeroDivisionError), reader(bootstrap, topic, f"group-{topic}") as consumer:
        sum(1 // value for value in values(read(consumer, 10)))
    with reader(bootstrap, topic, f"group-{topic}") as consumer:
        assert values(read(consumer, 10)) == list(range(10))


def test_after_an_error_in_a_for_the_record_that_failed_is_the_first_to_come_again(bootstrap: str, topic: str) -> None:
    filled(bootstrap, topic, 10)
    with pytest.raises(ZeroDivisionError), reader(bootstrap, topic, f"group-{topic}") as consumer:
        sum(1 // (6 - int(record.value or b"")) for record in consumer)
    with reader(bootstrap, topic, f"group-{topic}") as consumer:
        assert values(read(consumer, 4)) == [6, 7, 8, 9]


def test_a_listener_runs_in_the_polling_thread_and_may_use_the_consumer(bootstrap: str, topic: str) -> None:
    filled(bootstrap, topic, 10)
    seen: list[tuple[str, int, object]] = []

    class Listener(RebalanceListener):
        def on_assigned(self, partitions: object) -> None:
            seen.append(("assigned", threading.get_ident(), consumer.assignment()))

        def on_revoked(self, partitions: object) -> None:
            consumer.commit()
            seen.append(("revoked", threading.get_ident(), consumer.assignment()))

    with hw.Consumer(bootstrap, group=topic, auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        consumer.subscribe([topic], listener=Listener())
        assert len(read(consumer, 10)) == 10
    mine = threading.get_ident()
    both = {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    assert seen == [("assigned", mine, both), ("revoked", mine, both)]
    with reader(bootstrap, topic, topic) as consumer:
        assert consumer.committed([TopicPartition(topic, 0)])[TopicPartition(topic, 0)].offset == 10  # type: ignore[union-attr]


def test_a_commit_callback_is_called_by_a_later_poll_in_its_thread(bootstrap: str, topic: str) -> None:
    filled(bootstrap, topic, 10)
    told: list[tuple[int, Exception | None]] = []
    with reader(bootstrap, topic, f"group-{topic}", enable_auto_commit=False) as consumer:
        read(consumer, 10)
        consumer.commit_async(callback=lambda offsets, error: told.append((threading.get_ident(), error)))
        eventually(lambda: consumer.poll(timeout=0.05) == [] and bool(told))
    assert told == [(threading.get_ident(), None)]


def test_two_threads_at_once_are_told_apart(bootstrap: str, topic: str) -> None:
    with reader(bootstrap, topic) as consumer, ThreadPoolExecutor(1) as pool:
        consumer.poll(timeout=0.1)
        waiting = pool.submit(consumer.poll, timeout=2.0)
        eventually(lambda: consumer.statistics.polls == 2)
        with pytest.raises(WrongThreadError, match="being used by another thread"):
            consumer.position(TopicPartition(topic, 0))
        assert waiting.result(20) == []


def test_close_from_another_thread_ends_the_poll(bootstrap: str, topic: str) -> None:
    consumer = reader(bootstrap, topic, f"group-{topic}")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(consumer.poll, timeout=60.0)
        eventually(lambda: bool(consumer.statistics.polls))
        consumer.close()
        with pytest.raises(ClosedError, match="closed by another thread"):
            waiting.result(10)


def test_close_from_another_thread_ends_a_for(bootstrap: str, topic: str) -> None:
    filled(bootstrap, topic, 10)
    consumer = reader(bootstrap, topic)
    seen: list[hw.Record] = []

    def work() -> None:
        for record in consumer:
            seen.append(record)  # noqa: PERF402 (it is the loop that is tested)

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work)
        eventually(lambda: len(seen) == 10)
        consumer.close()
        working.result(10)
    with pytest.raises(ClosedError):
        consumer.poll(timeout=1.0)


def test_heartbeats_go_on_while_the_caller_works(bootstrap: str, topic: str) -> None:
    filled(bootstrap, topic, 10)
    settings = {"session_timeout_ms": 1000, "heartbeat_interval_ms": 200}
    with reader(bootstrap, topic, f"group-{topic}", **settings) as consumer:
        assert len(read(consumer, 10)) == 10
        before = consumer.group_metadata
        time.sleep(2.5)  # the work
        consumer.commit()
        consumer.poll(timeout=0.1)
        assert consumer.group_metadata == before


# Admin


def test_admin_can_be_used_by_many_threads(bootstrap: str) -> None:
    with hw.Admin(bootstrap) as admin, ThreadPoolExecutor(8) as pool:
        names = [f"admin-{uuid.uuid4().hex[:8]}" for _ in range(16)]
        list(pool.map(lambda name: admin.create_topic(name, partitions=1), names))
        assert set(names) <= {found.name for found in admin.list_topics()}
        with pytest.raises(RefusedError, match="exists already"):
            admin.create_topic(names[0], partitions=1)


# Ctrl-C and the end of the program


def run(source: str, *arguments: str, err: str = "") -> str:
    """What a program prints that has the clients imported, and `bootstrap` and `topic` as its arguments."""
    head = "import os, signal, sys, threading, time\nimport headwater as hw\nbootstrap, topic = sys.argv[1:]\n"
    command = [sys.executable, "-c", head + textwrap.dedent(source), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, err), done.stdout + done.stderr
    return done.stdout


def test_ctrl_c_ends_a_poll_and_the_consumer_stays_usable(bootstrap: str, topic: str) -> None:
    filled(bootstrap, topic, 5)
    printed = run(
        """
        with hw.Consumer(bootstrap, group=topic, topics=[topic], auto_offset_reset="earliest") as consumer:
            found = []
            while len(found) < 5:
                found += consumer.poll(timeout=10.0)
            for _ in range(5):
                threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
                try:
                    consumer.poll(timeout=60.0)
                except KeyboardInterrupt:
                    print("interrupted")
            consumer.commit()
            print(sum(offset.offset for offset in consumer.committed(consumer.assignment()).values() if offset))
        """,
        bootstrap,
        topic,
    )
    assert printed == "interrupted\n" * 5 + "5\n"


def test_ctrl_c_ends_a_result_that_is_waited_for_and_the_record_is_still_sent(bootstrap: str, topic: str) -> None:
    printed = run(
        """
        with hw.Producer(bootstrap, linger_ms=60_000) as producer:
            handle = producer.send(topic, b"x", partition=0)
            for _ in range(3):
                threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
                try:
                    handle.result()
                except KeyboardInterrupt:
                    print("interrupted")
        print(handle.result(0).offset)
        """,
        bootstrap,
        topic,
    )
    assert printed == "interrupted\n" * 3 + "0\n"


def test_ctrl_c_ends_a_send_that_waits_for_a_cluster_that_is_not_there(topic: str) -> None:
    printed = run(
        """
        producer = hw.Producer("127.0.0.1:1")
        for _ in range(3):
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                producer.send(topic, b"x")
            except KeyboardInterrupt:
                print("interrupted")
        producer.close(0.1)
        """,
        "",
        topic,
    )
    assert printed == "interrupted\n" * 3


def test_a_program_that_closes_nothing_ends_and_says_what_is_lost(bootstrap: str, topic: str) -> None:
    run(
        """
        producer = hw.Producer(bootstrap, linger_ms=60_000)
        for _ in range(3):
            producer.send(topic, b"x")
        consumer = hw.Consumer(bootstrap, group="g-" + topic, topics=[topic])
        consumer.poll(timeout=0.1)
        admin = hw.Admin(bootstrap)
        """,
        bootstrap,
        topic,
        err="a producer was not closed: 3 records may not have been sent; use `with`, or close it\n",
    )


def test_a_client_that_nobody_holds_any_more_ends_its_thread(bootstrap: str) -> None:
    def names() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name.startswith("headwater-")]

    before = len(names())
    clients = [hw.Producer(bootstrap), hw.Consumer(bootstrap), hw.Admin(bootstrap)]
    assert len(names()) == before + 3
    clients.clear()
    gc.collect()
    eventually(lambda: len(names()) == before)
