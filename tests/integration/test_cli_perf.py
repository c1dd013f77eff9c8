"""`headwater perf`: what it measures is what it says, against any Kafka."""

import json
import os
import pty
import signal
import subprocess
import time

import pytest

from headwater.cli.perf_figures import Latency, Throughput, percentile
from headwater.cli.perf_screen import sparkline
from peers.headwater import HeadwaterProcess

from .cli_runner import HEADWATER, Cli

RATES = {"records", "bytes", "seconds", "records_per_s", "mib_per_s"}
LATENCIES = {"samples", "avg_ms", "max_ms", "p50_ms", "p95_ms", "p99_ms", "p999_ms"}


@pytest.fixture
def cli(headwater: HeadwaterProcess) -> Cli:
    return Cli(headwater.bootstrap)


@pytest.fixture
def topic(cli: Cli) -> str:
    return cli.new_topic("--partitions", "2")


def test_percentiles_are_those_of_the_values() -> None:
    thousand = list(range(1, 1001))
    assert [percentile(thousand, share) for share in (0.5, 0.95, 0.99, 0.999)] == [500, 950, 990, 999]
    found = Latency.of([3.0, 1.0, 2.0])
    assert found is not None
    assert (found.avg_ms, found.max_ms, found.p50_ms, found.p999_ms) == (2.0, 3.0, 2.0, 3.0)
    assert Latency.of([]) is None


def test_rates_count_kafkas_megabytes() -> None:
    found = Throughput(records=1000, size_bytes=2 * 1024 * 1024, seconds=2.0)
    assert (found.records_per_s, found.mib_per_s) == (500.0, 1.0)


def test_a_sparkline_is_as_high_as_its_values() -> None:
    assert sparkline([0, 1, 2, 4]) == "▁▃▅█"
    assert sparkline([0, 0]) == "▁▁"


def test_what_is_produced_is_what_is_consumed(cli: Cli, topic: str) -> None:
    produced = cli.ok("perf", "produce", topic, "--records", "5000", "--size", "200", "--json").json
    assert produced.keys() == {"topic", "latency", *RATES}
    assert produced["latency"].keys() == LATENCIES
    assert (produced["records"], produced["bytes"]) == (5000, 1_000_000)
    assert produced["latency"]["samples"] == 5000
    assert 0 < produced["latency"]["p50_ms"] <= produced["latency"]["p999_ms"] <= produced["latency"]["max_ms"]

    consumed = cli.ok("perf", "consume", topic, "--json").json
    assert consumed.keys() == {"topic", "group", "join_s", *RATES}
    assert (consumed["records"], consumed["bytes"]) == (5000, 1_000_000)


def test_records_may_be_compressed(cli: Cli, topic: str) -> None:
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        cli.ok("perf", "produce", topic, "-n", "100", "-z", codec, "--batch-size", "4000", "--linger-ms", "1")
    assert cli.ok("perf", "consume", topic, "-n", "400", "--json").json["records"] == 400


def test_records_may_be_acknowledged_by_few_or_none(cli: Cli, topic: str) -> None:
    for acks in ("0", "1", "all"):
        settings = ("--acks", acks, "-o", "enable.idempotence=false")
        assert cli.ok("perf", "produce", topic, "-n", "100", *settings, "--json").json["records"] == 100


def test_columns_instead_of_rows(cli: Cli, topic: str) -> None:
    pytest.importorskip("pyarrow")
    produced = cli.ok("perf", "produce", topic, "-n", "5000", "--arrow", "--json").json
    assert produced["records"] == 5000
    consumed = cli.ok("perf", "consume", topic, "--arrow", "--json").json
    assert (consumed["records"], consumed["bytes"]) == (5000, 500_000)


def test_a_throughput_is_kept(cli: Cli, topic: str) -> None:
    found = cli.ok("perf", "produce", topic, "-n", "300", "--throughput", "200", "--json").json
    assert 1.4 <= found["seconds"] < 5


def test_latency_is_from_send_to_receipt(cli: Cli, topic: str) -> None:
    found = cli.ok("perf", "latency", topic, "-n", "50", "--json").json
    assert found["records"] == found["latency"]["samples"] == 50
    assert 0 < found["latency"]["avg_ms"] < 1000


def test_people_get_words(cli: Cli, topic: str) -> None:
    produced = cli.ok("perf", "produce", topic, "-n", "100").out.splitlines()
    assert [line.split()[0] for line in produced] == ["Records", "Rate", "Latency", "Percentiles"]
    assert produced[0].startswith("Records      100 sent in ")
    consumed = cli.ok("perf", "consume", topic).out.splitlines()
    assert [line.split()[0] for line in consumed] == ["Records", "Rate", "Group"]


def test_records_that_do_not_come_are_an_error(cli: Cli, topic: str) -> None:
    cli.ok("perf", "produce", topic, "-n", "10")
    done = cli("perf", "consume", topic, "-n", "20", "--timeout", "2")
    assert (done.code, done.err) == (1, "headwater: 10 records are missing: nothing new for 2 s\n")


def test_a_setting_that_is_none_is_named(cli: Cli, topic: str) -> None:
    done = cli("perf", "produce", topic, "-o", "linger.mss=5")
    assert done.code == 2
    assert "linger.ms" in done.err


def test_a_cluster_that_is_not_there_is_told(topic: str) -> None:
    done = Cli("127.0.0.1:1")("perf", "produce", topic, "-o", "max.block.ms=500")
    assert done.code == 1
    assert done.err.startswith("headwater: ")
    assert "127.0.0.1:1" in done.err


def test_ctrl_c_ends_it_with_the_figures_so_far(cli: Cli, topic: str) -> None:
    with cli.started("perf", "produce", topic, "-n", "100000", "--throughput", "1000", "--json") as running:
        time.sleep(2.0)
        done = running.finish(signal.SIGINT)
    assert done.code == 130, done
    assert 0 < done.json["records"] < 100_000


def test_a_terminal_shows_a_live_picture(cli: Cli, topic: str) -> None:
    ours, theirs = pty.openpty()
    command = [HEADWATER, "perf", "produce", topic, "-n", "1500", "--throughput", "1000", "--json"]
    with subprocess.Popen(command, env=cli.environment(), stdout=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        while process.poll() is None or not shown:
            try:
                shown += os.read(ours, 65536)
            except OSError:
                break
        assert process.stdout is not None
        assert json.loads(process.stdout.read())["records"] == 1500
    os.close(ours)
    assert "records/s" in shown.decode()
    assert "p99" in shown.decode()
    assert "█" in shown.decode()
