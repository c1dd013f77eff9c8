"""`headwater demo` shows the main job, proves what it says, and leaves nothing behind."""

import asyncio
import os
import pty
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conformance.actions import eventually
from headwater import LocalBroker
from headwater.cli.demo_broker import DemoError, demand_space
from headwater.cli.demo_records import VALUE, Leg, Plan, demand_same_bytes, read_all, write_all
from headwater.client.producer.producer import Producer

from .cli_runner import HEADWATER, Cli, Started

NOWHERE = Cli("127.0.0.1:1")
PARTITIONS = 3
WITH_SPARK_S = 170
INTERRUPTED = "headwater: interrupted; the demo's broker is stopped and its data removed\n"


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the demo takes for the system's temporary one."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def broker_pid(output: str) -> int:
    found = re.search(r"process (\d+)", output)
    assert found is not None, output
    return int(found[1])


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(autouse=True)
def _hang_ups_end_processes() -> Iterator[None]:
    """Whoever runs the tests may have them outlive a hang-up (nohup): children would inherit that."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@contextmanager
def demo_up_to(step: str, *arguments: str) -> Iterator[tuple[Started, str]]:
    """A demo that has printed a line that begins with `step`, and what it has printed."""
    with NOWHERE.started("demo", *arguments) as demo:
        output = ""
        while not output.splitlines() or not output.splitlines()[-1].startswith(step):
            line = demo.line()
            assert line, output
            output += line
        yield demo, output


def test_without_a_terminal_it_tells_all_in_plain_lines_and_ends(temporary: Path) -> None:
    done = NOWHERE.ok("demo", "--records", "20000", timeout_s=WITH_SPARK_S)
    for promised in (
        "broker  ready at 127.0.0.1:",
        "topic   orders with 3 partitions",
        "write   20,000 records in",
        "read    20,000 records in",
        "check   all came back",
        "arrow   20,000 rows as Arrow tables",
        "3 totals went to totals in one call",
        "compact prices: 100,001 updates of 500 prices became 501 records",
        "retain  clicks: 1,000 of last week are gone, 1,000 of today are there",
        "hostile 21 bytes that claim 4,294,967,294 topics: their connection was closed",
        "100 garbage records with a right checksum: INVALID_RECORD, record 0 of 100 does not parse",
        "the broker serves on, and orders-0 still ends at offset 10,000",
        "loaded 20,000 events into shop.events",
        "20,000 more events loaded, 2,000 values kept aside, nothing lost or doubled",
        'C1        6667  300000      667  "on the house"',
        "conflict  amount  long",
        "No faults in 110 partitions",
        "topics describe orders",
        "Cluster id: ",
        "stop    the broker ended cleanly",
        "00000000000000000000.log",
        "the batch that ends at offset",
        "0 to 4,999 (5,000 records)",
        '{"order":         0,',
        "Try next",
    ):
        assert promised in done.out
    assert re.search(r"CRC-32C +[0-9a-f]{8} ok", done.out)
    assert "\x1b" not in done.out
    assert not is_running(broker_pid(done.out))
    assert list(temporary.iterdir()) == []


def test_on_a_terminal_it_draws_bars(temporary: Path) -> None:
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "80", "NO_COLOR": ""}
    command = [HEADWATER, "demo", "-n", "20000", "--no-lake"]
    demo = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    drawn = b""
    try:
        while part := os.read(ours, 65536):
            drawn += part
    except OSError:
        pass  # how Linux says that the other end is closed
    finally:
        os.close(ours)
        code = demo.wait(60)
    assert code == 0
    assert "━━━━━━━━━━" in drawn.decode()
    assert "✓ " in drawn.decode()
    assert drawn.rfind(b"\x1b[?25h") > drawn.rfind(b"\x1b[?25l"), "the cursor is left hidden"
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("records", [1, 2, 10, 5001])
def test_the_summary_for_machines_is_all_there_is_on_stdout(temporary: Path, records: int) -> None:
    summary = NOWHERE.ok("demo", "--records", str(records), "--no-lake", "--json").json
    assert (summary["ok"], summary["records"], summary["value_bytes"]) == (True, records, 100 * records)
    assert summary["write"]["records_per_second"] > 0
    assert summary["read"]["records_per_second"] > 0
    assert summary["arrow_rows_per_second"] > 0
    first = Plan(topic="orders", records=records, partitions=PARTITIONS).count_in(0)
    assert summary["withstood"] == {"error": "INVALID_RECORD", "end_offset": first}
    assert summary["data"] is None
    assert list(temporary.iterdir()) == []


def test_kept_data_can_be_served_again() -> None:
    data = NOWHERE.ok("demo", "--records", "1000", "--no-lake", "--keep", "--json").json["data"]
    with LocalBroker(data=data) as broker:
        read = Cli(broker.bootstrap).ok("consume", "orders", "--from-beginning", "--until-end")
    assert sorted(read.out.splitlines()) == [(VALUE % order).decode() for order in range(1000)]


@pytest.mark.parametrize(
    ("step", "number"),
    [
        *((step, signal.SIGINT) for step in ("headwater demo", "broker", "topic", "write", "stop")),
        ("topic", signal.SIGTERM),
        ("topic", signal.SIGHUP),
    ],
)
def test_an_interrupt_leaves_nothing_behind(temporary: Path, step: str, number: signal.Signals) -> None:
    with demo_up_to(step, "--records", "300000", "--no-lake") as (demo, output):
        done = demo.finish(number)
    assert (done.code, done.err) == (130, INTERRUPTED)
    assert not re.search(r"process \d+", output) or not is_running(broker_pid(output + done.out))
    assert list(temporary.iterdir()) == []


def test_an_interrupt_while_spark_is_at_work_leaves_nothing_behind(temporary: Path) -> None:
    with demo_up_to("retain", "--records", "1000") as (demo, output):
        # All that comes before it is imported first, while other tests have the cores.
        eventually(lambda: list(temporary.glob("headwater-spark-*.log")), "Spark is being started", within_s=60)
        done = demo.finish(signal.SIGINT, timeout_s=WITH_SPARK_S)
    assert (done.code, done.err) == (130, INTERRUPTED)
    assert not is_running(broker_pid(output + done.out))
    eventually(lambda: list(temporary.iterdir()) == [], "the JVM has tidied up", within_s=60)


@pytest.mark.parametrize("written", [0, 1], ids=["at once", "while it is written to"])
def test_a_broker_that_dies_is_named_at_once(temporary: Path, written: int) -> None:
    with demo_up_to("topic", "--records", "3000000") as (demo, output):
        logs = "headwater-demo-*/orders-*/*.log"
        eventually(lambda: any(log.stat().st_size >= written for log in temporary.glob(logs)), "records on disk")
        os.kill(broker_pid(output), signal.SIGKILL)
        done = demo.finish(timeout_s=20)
    assert (done.code, done.err) == (
        1,
        "headwater: the demo failed: the broker was killed by signal 9; it gave no reason\n",
    )
    assert list(temporary.iterdir()) == []


def test_a_number_of_records_that_cannot_be_is_a_usage_error() -> None:
    refused = NOWHERE("demo", "--records", "0")
    assert refused.code == 2
    assert "--records" in refused.err


def test_a_disk_that_is_too_small_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(DemoError, match="use fewer --records, or set TMPDIR"):
        demand_space(tmp_path, 1 << 60)


@pytest.mark.parametrize("records", [1, 2, 3, 4, 14_999, 15_000, 15_001, 20_000, 34_567])
def test_the_plan_puts_every_order_in_one_place(records: int) -> None:
    plan = Plan(topic="orders", records=records, partitions=PARTITIONS)
    placed = [order for p in range(PARTITIONS) for order in plan.orders(p, 0, plan.count_in(p))]
    assert sorted(placed) == list(range(records))


@pytest.fixture(scope="module")
def local_broker() -> Iterator[LocalBroker]:
    with LocalBroker(config={"num.partitions": PARTITIONS}) as broker:
        yield broker


async def write_by_hand(broker: LocalBroker, plan: Plan, orders: dict[int, list[int]], value: bytes = VALUE) -> Leg:
    """Writes other orders than planned, and reads them; the sums are those of what should have been written."""
    async with Producer(broker.bootstrap) as producer:
        for partition, numbers in orders.items():
            for number in numbers:
                await producer.send(plan.topic, value % number, partition=partition)
    return await read_all(broker.bootstrap, plan, lambda _done: None)


def test_what_was_written_as_planned_passes_the_check(local_broker: LocalBroker) -> None:
    plan = Plan(topic="as-planned", records=20_000, partitions=PARTITIONS)
    done: list[int] = []
    written = asyncio.run(write_all(local_broker.bootstrap, plan, done.append))
    assert done[-1] == 20_000
    read = asyncio.run(read_all(local_broker.bootstrap, plan, done.append))
    demand_same_bytes(written, read)
    assert (read.records, done[-1]) == (20_000, 20_000)


@pytest.mark.parametrize(
    ("topic", "orders", "complaint"),
    [
        ("lost", {0: [0, 1], 1: [2], 2: [4, 5]}, "partition 1 ends at offset 1, although 2 records"),
        ("twice", {0: [0, 1, 1], 1: [2, 3], 2: [4, 5]}, "partition 0 ends at offset 3, although 2 records"),
        ("swapped", {0: [0, 1], 1: [3, 2], 2: [4, 5]}, "offset 0 of partition 1 holds order 3, but order 2"),
        ("astray", {0: [0, 1], 1: [4, 5], 2: [2, 3]}, "holds order"),
    ],
)
def test_the_check_notices_records_that_are(
    local_broker: LocalBroker, topic: str, orders: dict[int, list[int]], complaint: str
) -> None:
    plan = Plan(topic=topic, records=6, partitions=PARTITIONS)
    with pytest.raises(DemoError, match=complaint):
        asyncio.run(write_by_hand(local_broker, plan, orders))


def test_the_check_notices_a_changed_byte(local_broker: LocalBroker) -> None:
    plan = Plan(topic="changed", records=6, partitions=PARTITIONS)
    other = VALUE.replace(b"Falls", b"Fells")
    read = asyncio.run(write_by_hand(local_broker, plan, {0: [0, 1], 1: [2, 3], 2: [4, 5]}, other))
    intended = Plan(topic="intended", records=6, partitions=PARTITIONS)
    written = asyncio.run(write_all(local_broker.bootstrap, intended, lambda _done: None))
    with pytest.raises(DemoError, match="partition 0 came back with other bytes"):
        demand_same_bytes(written, read)
