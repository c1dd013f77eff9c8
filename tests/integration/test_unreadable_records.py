"""Records that cannot be read, in the log of a real broker: readers name them, and go on behind them if told to."""

import asyncio
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from headwater import Consumer, LocalBroker, Producer, TopicPartition, aio
from headwater.client.consumer.corrupt_batches import CorruptBatch
from headwater.client.errors import CorruptRecordError
from headwater.lake import LakeError
from headwater.lake.datasource.brokers import Brokers
from headwater.lake.datasource.splits import split_ranges
from headwater.lake.datasource.topic_offsets import TopicRange
from headwater.lake.datasource.topic_reader import read_range
from unreadable_topics import (
    KINDS,
    RECORDS,
    between_sound_ones,
    damaged,
    lost_offsets,
    readable_offsets,
    sound,
    write_topics,
)

from .cli_runner import HEADWATER, Cli

ALL = [*KINDS]
END = RECORDS * (2 * len(ALL) + 1)
PLACE = TopicPartition("all", 0)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    data = tmp_path_factory.mktemp("unreadable") / "data"
    write_topics(
        data, {"all": between_sound_ones(ALL), "first": [damaged(0), sound(3)], "last": [sound(0), damaged(3)]}
    )
    with LocalBroker(data=data) as broker:
        yield broker


def reader(broker: LocalBroker, topic: str = "all", **settings: Any) -> Consumer:
    settings = {"auto_offset_reset": "earliest", "decompressed_batch_max_bytes": 1 << 20, **settings}
    consumer = Consumer(broker.bootstrap, **settings)
    consumer.assign([TopicPartition(topic, 0)])
    return consumer


def rows_until(consumer: Consumer, end: int, place: TopicPartition = PLACE) -> list[int]:
    offsets: list[int] = []
    while consumer.position(place) < end:
        offsets += [record.offset for record in consumer.poll(1.0)]
    return offsets


def test_an_application_goes_on_by_seeking(broker: LocalBroker) -> None:
    offsets: list[int] = []
    errors: list[CorruptRecordError] = []
    with reader(broker) as consumer:
        while consumer.position(PLACE) < END:
            try:
                offsets += [record.offset for record in consumer.poll(1.0)]
            except CorruptRecordError as error:
                errors.append(error)
                consumer.seek(PLACE, error.batch.next_offset)
    assert offsets == readable_offsets(ALL)
    assert [[*range(error.offset, error.batch.next_offset)] for error in errors] == [
        [*lost_offsets(number, kind)] for number, kind in enumerate(ALL)
    ]
    assert "offset 3 of" not in str(errors[0])
    assert str(errors[0]).startswith(
        "record 3 of partition all-0 cannot be read: its batch, offsets 3 to 5: the checksum"
    )


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_rows_are_read_on_behind_what_is_skipped(broker: LocalBroker, isolation: str) -> None:
    skipped: list[CorruptBatch] = []
    options: dict[str, Any] = {
        "corrupt_records": "skip",
        "corrupt_records_listener": skipped.append,
        "isolation_level": isolation,
    }
    with reader(broker, **options) as consumer:
        assert rows_until(consumer, END) == readable_offsets(ALL)
        assert consumer.statistics.corrupt_batches == len(ALL)
        assert consumer.statistics.corrupt_bytes == sum(each.size_bytes for each in skipped)
    assert [[*range(each.first_offset, each.next_offset)] for each in skipped] == [
        [*lost_offsets(number, kind)] for number, kind in enumerate(ALL)
    ]
    assert [each.raw for each in skipped] == between_sound_ones(ALL)[1::2]


def test_one_record_after_the_other_and_small_fetches_are_no_different(broker: LocalBroker) -> None:
    wanted = readable_offsets(ALL)
    for size in (1, 300):
        with reader(broker, corrupt_records="skip", max_partition_fetch_bytes=size) as consumer:
            assert [next(consumer).offset for _ in wanted] == wanted
            assert consumer.statistics.corrupt_batches == len(ALL)


def test_tables_are_read_on_too(broker: LocalBroker) -> None:
    with reader(broker, corrupt_records="skip") as consumer:
        offsets: list[int] = []
        while consumer.position(PLACE) < END:
            offsets += consumer.poll_arrow(1.0)["offset"].to_pylist()
    assert offsets == readable_offsets(ALL)


def test_asyncio_skips_and_logs(broker: LocalBroker, caplog: pytest.LogCaptureFixture) -> None:
    async def read() -> list[int]:
        offsets: list[int] = []
        async with aio.Consumer(
            broker.bootstrap, auto_offset_reset="earliest", corrupt_records="skip", decompressed_batch_max_bytes=1 << 20
        ) as consumer:
            consumer.assign([PLACE])
            while await consumer.position(PLACE) < END:
                offsets += [record.offset for record in await consumer.poll(1.0)]
        return offsets

    assert asyncio.run(read()) == readable_offsets(ALL)
    told = [record.getMessage() for record in caplog.records if "skipped" in record.getMessage()]
    assert len(told) == len(ALL)
    assert told[0].startswith("skipped offsets 3 to 5 of partition all-0 (")
    assert "grows beyond the limit of 1048576 bytes" in told[-1]


@pytest.mark.parametrize(("topic", "end", "found"), [("first", 6, [3, 4, 5]), ("last", 6, [0, 1, 2])])
def test_the_first_and_the_last_batch_of_a_log_are_skipped_too(
    broker: LocalBroker, topic: str, end: int, found: list[int]
) -> None:
    with reader(broker, topic, corrupt_records="skip") as consumer:
        assert rows_until(consumer, end, TopicPartition(topic, 0)) == found


def test_consume_stops_at_it_with_advice_or_goes_on(broker: LocalBroker) -> None:
    cli = Cli(broker.bootstrap)
    stopped = cli("consume", "all", "--from-beginning", "--until-end", "--format", r"%o\n")
    assert (stopped.code, stopped.out) == (1, "0\n1\n2\n")
    assert "cannot read offsets 3 to 5 of partition all-0" in stopped.err
    assert "--skip-corrupt goes on behind it, --offset 6 --partition 0 starts there" in stopped.err
    done = cli("consume", "all", "--from-beginning", "--until-end", "--format", r"%o\n", "--skip-corrupt")
    assert done.code == 3
    assert [int(line) for line in done.out.splitlines()] == readable_offsets(ALL)
    *each, last = done.err.splitlines()
    assert len(each) == len(ALL)
    assert each[0].startswith("headwater: skipped offsets 3 to 5 of partition all-0 (")
    lost = sum(len(lost_offsets(number, kind)) for number, kind in enumerate(ALL))
    assert last == f"headwater: skipped {lost} offsets in {len(ALL)} batches that could not be read"
    from_there = cli("consume", "first", "--offset", "3", "--until-end", "--skip-corrupt", "--json")
    assert (from_there.code, [json.loads(line)["offset"] for line in from_there.out.splitlines()]) == (0, [3, 4, 5])


def test_a_bomb_costs_no_more_memory_than_its_bound(broker: LocalBroker) -> None:
    """In a process of its own, which may take 300 MB more than Python and its modules have."""
    program = f"""
import resource, headwater
consumer = headwater.Consumer({broker.bootstrap!r}, corrupt_records="skip", decompressed_batch_max_bytes=16 << 20)
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (300 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
place = headwater.TopicPartition("all", 0)
consumer.assign([place])
consumer.seek(place, {END - 2 * RECORDS})
print([record.offset for record in consumer.poll(20.0)])
consumer.close()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == f"{[*range(END - RECORDS, END)]}\n", done.stderr


def test_pieces_of_a_partition_tell_of_each_batch_once(broker: LocalBroker) -> None:
    """However the offsets are cut, also in the middle of what cannot be read."""
    raws = between_sound_ones(ALL)[1::2]
    with Brokers(broker.bootstrap, {"decompressed.batch.max.bytes": 1 << 20}) as brokers:
        for split_bytes in (1, 1 << 30):
            whole = TopicRange(topic="all", partition=0, start=0, end=END, size_bytes=END * 100)
            skipped: list[CorruptBatch] = []
            offsets: list[int] = []
            for piece in split_ranges([whole], split_bytes):
                for found in read_range(brokers, piece, columns={"_offset"}, on_corrupt=skipped.append):
                    offsets += found["_offset"].to_pylist()
            assert offsets == readable_offsets(ALL)
            assert [each.raw for each in skipped] == raws
        # What a range begins in the middle of is told of, too: nobody else reads it.
        for start, kind in ((4, "checksum"), (END - RECORDS - 1, "bomb")):
            skipped = []
            part = TopicRange(topic="all", partition=0, start=start, end=END, size_bytes=1)
            list(read_range(brokers, part, columns={"_offset"}, on_corrupt=skipped.append))
            assert skipped[0].raw == raws[ALL.index(kind)]
        with pytest.raises(LakeError, match=r"cannot read offsets 3 to 5 of partition all-0 .*--skip-corrupt"):
            list(read_range(brokers, whole, columns={"_offset"}))


def test_a_terminal_obeys_no_record_and_a_pipe_gets_every_byte(broker: LocalBroker) -> None:
    hostile = b"\x1b]0;owned\x07\x1b[2J \xc2\x9b31m\r\xe2\x80\xae done\tso\n"
    with Producer(broker.bootstrap) as producer:
        producer.send("text", hostile, key=hostile, headers=[("\x1b[1m", hostile)])
        producer.send("bytes", hostile + b"\xff", key=hostile + b"\x9b", headers=[("\x1b[1m", hostile)])
    forms = (("text", "--json"), ("bytes", "--print-key", "--print-headers"), ("bytes",))
    for form in forms:
        given = ["consume", *form, "--from-beginning", "--until-end", "--bootstrap", broker.bootstrap]
        seen = _on_a_terminal(given)
        assert b"done" in seen
        assert not {*seen} & {0x1B, 0x07, 0x9B, 0xFF}
        assert "\u202e".encode() not in seen
        assert b"\xc2\x9b" not in seen
        if "--json" in form:
            assert json.loads(seen)["value"] == hostile.decode()
        elif form == ("bytes",):
            piped = subprocess.run([HEADWATER, *given], capture_output=True, check=True).stdout
            assert hostile in piped


def _on_a_terminal(arguments: list[str]) -> bytes:
    """What a terminal gets to see; it puts a carriage return before each line end itself."""
    ours, theirs = pty.openpty()
    try:
        done = subprocess.Popen([HEADWATER, *arguments], stdout=theirs, stderr=subprocess.PIPE)
        os.close(theirs)
        seen = b""
        while True:
            try:
                part = os.read(ours, 1 << 16)
            except OSError:
                break
            if not part:
                break
            seen += part
        assert done.wait(60) == 0, done.stderr
        assert done.stderr is not None
        done.stderr.close()
    finally:
        os.close(ours)
    return seen.replace(b"\r\n", b"\n")
