"""Producing and consuming from the command line: nothing lost, nothing doubled, order kept."""

import json
import os
import signal
import time
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest

from headwater.client.producer.partitioners import partition_for_key
from peers.headwater import HeadwaterProcess

from .cli_runner import Cli, Done


@pytest.fixture(params=["headwater", "apache"])
def cli(request: pytest.FixtureRequest) -> Cli:
    """Each case runs once against either."""
    return Cli(request.getfixturevalue(request.param).bootstrap)


def everything(cli: Cli, topic: str, *options: str) -> str:
    return cli.ok("consume", topic, "--from-beginning", "--until-end", *options).out


def test_lines_in_are_lines_out(cli: Cli) -> None:
    topic = cli.new_topic("--partitions", "1")
    lines = "first\n\n  spaces \nÜmläut 한글\nlast without newline"
    cli.ok("produce", topic, stdin=lines)
    assert everything(cli, topic) == lines + "\n"


def test_many_lines_keep_their_order_in_each_partition(cli: Cli) -> None:
    topic = cli.new_topic("--partitions", "3")
    lines = [f"line {number}" for number in range(200_000)]
    account = cli.ok("produce", topic, "--json", "--batch-bytes", "20000", stdin="\n".join(lines)).json
    assert (account["acknowledged"], account["lines"], account["error"]) == (200_000, 200_000, None)
    by_partition = [everything(cli, topic, "--partition", str(number)).splitlines() for number in range(3)]
    assert sorted(chain(*by_partition), key=lambda line: int(line[5:])) == lines
    for found in by_partition:
        assert len(found) > 10_000
        assert found == sorted(found, key=lambda line: int(line[5:]))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_comes_back_whole(cli: Cli, codec: str) -> None:
    topic = cli.new_topic("--partitions", "1")
    lines = "".join(f"a line that repeats itself {number % 10}\n" for number in range(20_000))
    cli.ok("produce", topic, "--compression", codec, stdin=lines)
    assert everything(cli, topic) == lines
    sizes = cli.ok("cluster", "--json").json["brokers"][0]["log_dirs"][0]
    assert sizes["size_bytes"] > 0


def test_keys_headers_and_tombstones(cli: Cli) -> None:
    topic = cli.new_topic("--partitions", "4")
    keys = [f"key-{number}" for number in range(40)]
    lines = "".join(f"{key}:value of {key}\n" for key in keys) + "gone:NULL\n"
    options = ("--key-separator", ":", "--header", "source=test", "--null-value", "NULL")
    cli.ok("produce", topic, *options, stdin=lines)
    found = [json.loads(line) for line in everything(cli, topic, "--json").splitlines()]
    assert {record["key"]: record["value"] for record in found} == {
        **{key: f"value of {key}" for key in keys},
        "gone": None,
    }
    for record in found:
        assert record["partition"] == partition_for_key(record["key"].encode(), 4)
        assert record["headers"] == [["source", "test"]]
        assert abs(record["timestamp"] / 1000 - time.time()) < 60


def test_headers_of_a_line_and_other_delimiters(cli: Cli) -> None:
    topic = cli.new_topic("--partitions", "1")
    options = ("--headers-separator", r"\t", "--key-separator", r"\t", "--delimiter", ";")
    cli.ok("produce", topic, *options, stdin="a:1,b:2\tk\tv\nw;c:3\tx\ty")
    assert everything(cli, topic, "--format", "%h %k %s|") == "a=1,b=2 k v\nw|c=3 x y|"


def test_files_are_read_one_after_the_other_or_each_as_one_record(cli: Cli, tmp_path: Path) -> None:
    topic = cli.new_topic("--partitions", "1")
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("1\n2")
    two.write_text("3\n")
    cli.ok("produce", topic, str(one), "-", str(two), stdin="stdin\n")
    assert everything(cli, topic) == "1\n2\nstdin\n3\n"
    cli.ok("produce", topic, "--whole-files", str(one), str(two))
    assert cli.ok("consume", topic, "--offset", "4", "--until-end", "--format", "<%s>").out == "<1\n2><3\n>"


def test_where_to_start_and_when_to_stop(cli: Cli) -> None:
    topic = cli.new_topic("--partitions", "1")
    cli.ok("produce", topic, stdin="".join(f"{number}\n" for number in range(10)))

    def consumed(*options: str) -> list[str]:
        return cli.ok("consume", topic, *options).out.split()

    assert consumed("--offset", "7", "--until-end") == ["7", "8", "9"]
    assert consumed("--offset", "-2", "--until-end") == ["8", "9"]
    assert consumed("--offset", "-99", "--max", "2") == ["0", "1"]
    assert consumed("--offset", "2020-01-01", "--max", "1") == ["0"]
    assert consumed("--offset", "2100-01-01", "--until-end") == []
    assert consumed("--until-end") == []
    assert consumed("--from-beginning", "--timeout", "0.3") == [str(number) for number in range(10)]
    assert consumed("--from-beginning", "--timeout", "0") == [str(number) for number in range(10)]


def test_an_offset_past_the_end_is_an_error_and_one_before_the_start_a_warning(cli: Cli) -> None:
    topic = cli.new_topic("--partitions", "1")
    cli.ok("produce", topic, stdin="a\nb\nc\n")
    beyond = cli("consume", topic, "--offset", "9")
    assert (beyond.code, beyond.out, beyond.err.count("\n")) == (1, "", 1)
    assert "offset 9 of partition 0" in beyond.err
    cli.ok("delete-records", f"{topic}:0:2")
    before = cli("consume", topic, "--offset", "0", "--max", "1")
    assert (before.code, before.out) == (0, "c\n")
    assert before.err == "headwater: offsets 0 to 1 of partition 0 are gone; going on at 2\n"


def test_columns_of_the_console_consumer(cli: Cli) -> None:
    topic = cli.new_topic("--partitions", "1")
    cli.ok("produce", topic, "--key-separator", "=", "--header", "h=1", stdin="k=v\nplain\n")
    flags = ("--print-key", "--print-partition", "--print-offset", "--print-timestamp", "--print-headers")
    first, second = everything(cli, topic, *flags).splitlines()
    assert first.split("\t")[1:] == ["Partition:0", "Offset:0", "h:1", "k", "v"]
    assert first.startswith("CreateTime:1")
    assert second.split("\t")[1:] == ["Partition:0", "Offset:1", "h:1", "null", "plain"]


def test_a_follower_sees_lines_as_they_are_typed_and_ctrl_c_ends_it_with_0(cli: Cli) -> None:
    topic = cli.new_topic("--partitions", "2")
    with (
        cli.started("consume", topic, "--from-beginning") as consumer,
        cli.started("produce", topic) as producer,
    ):
        for line in ("first\n", "second\n"):
            producer.write(line)
            assert consumer.line() == line
        assert consumer.finish(signal.SIGINT) == Done(0, "", "")
        assert producer.finish() == Done(0, "", "")


def test_ctrl_c_ends_a_producer_once_its_lines_are_in(cli: Cli) -> None:
    topic = cli.new_topic("--partitions", "1")
    with cli.started("produce", topic) as producer:
        producer.write("kept\n")
        deadline = time.monotonic() + 20
        while cli.ok("offsets", topic).rows != [[topic, "0", "1"]]:
            assert time.monotonic() < deadline
        assert producer.finish(signal.SIGINT) == Done(130, "", "")


def test_a_reader_that_leaves_ends_the_consumer_quietly(cli: Cli) -> None:
    topic = cli.new_topic("--partitions", "1")
    cli.ok("produce", topic, stdin="".join(f"{number}\n" for number in range(100_000)))
    with cli.started("consume", topic, "--from-beginning") as consumer:
        assert consumer.line() == "0\n"
        consumer.stdout.close()
        assert consumer.process.wait(timeout=20) == 0
        assert consumer.process.stderr is not None
        assert consumer.process.stderr.read() == b""


def test_ctrl_c_ends_a_consumer_whose_reader_has_stopped_reading(cli: Cli) -> None:
    topic = cli.new_topic("--partitions", "1")
    cli.ok("produce", topic, stdin="".join(f"{number}\n" for number in range(100_000)))
    with cli.started("consume", topic, "--from-beginning") as consumer:
        assert consumer.line() == "0\n"
        consumer.process.send_signal(signal.SIGINT)
        assert consumer.process.wait(timeout=20) == 0


def test_a_record_too_large_is_refused_and_the_acknowledged_lines_are_counted(cli: Cli) -> None:
    topic = cli.new_topic("--partitions", "1", "--config", "max.message.bytes=5000")
    lines = b"".join(b"%d\n" % number for number in range(100)) + b"x" * 10_000 + b"\n"
    done = cli("produce", topic, "--batch-bytes", "1000", stdin=lines)
    assert (done.code, done.out) == (1, "")
    assert "max.message.bytes" in done.err
    assert done.err.endswith("100 of the 101 lines read were acknowledged\n")
    assert len(everything(cli, topic).splitlines()) == 100


def test_a_record_without_key_is_refused_on_a_compacted_topic(cli: Cli) -> None:
    topic = cli.new_topic("--partitions", "1", "--config", "cleanup.policy=compact")
    done = cli("produce", topic, stdin="no key\n")
    assert done.code == 1
    assert "key" in done.err
    assert done.err.endswith("; 0 of the 1 lines read were acknowledged\n")


def test_producing_to_a_partition_that_is_not_there_fails_before_any_line(cli: Cli) -> None:
    topic = cli.new_topic("--partitions", "1")
    done = cli("produce", topic, "--partition", "5", stdin="a\n")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert f"partition 5 of topic {topic}" in done.err


def test_a_broker_that_creates_topics_is_given_the_time_to(cli: Cli) -> None:
    topic = f"auto-{os.getpid()}-{time.monotonic_ns()}"
    cli.ok("produce", topic, stdin="hello\n")
    assert everything(cli, topic) == "hello\n"


def wait_until_written(data: Path, topic: str) -> None:
    deadline = time.monotonic() + 20
    while not any(path.stat().st_size for path in data.glob(f"{topic}-*/*.log")):
        assert time.monotonic() < deadline, "nothing was written"
        time.sleep(0.01)


def test_a_restart_in_the_middle_neither_loses_nor_doubles_nor_reorders(tmp_path: Path) -> None:
    lines = [f"{number % 5}:{number}" for number in range(30_000)]
    with HeadwaterProcess(tmp_path) as broker:
        cli = Cli(broker.bootstrap)
        topic = cli.new_topic("--partitions", "2")
        with cli.started("produce", topic, "--key-separator", ":", "--batch-bytes", "2000") as producer:
            for at in range(0, len(lines), 1000):
                producer.write("".join(f"{line}\n" for line in lines[at : at + 1000]))
                if at in (5000, 15000):
                    # The lines fit into the pipe: without this the restart may come before the first connection.
                    wait_until_written(broker.data_dir, topic)
                    broker.restart()
            assert producer.finish() == Done(0, "", "")
        found = everything(cli, topic, "--format", r"%k:%s\n").splitlines()
    assert Counter(found) == Counter(lines)
    for key in "01234":
        assert [line for line in found if line[0] == key] == [line for line in lines if line[0] == key]
