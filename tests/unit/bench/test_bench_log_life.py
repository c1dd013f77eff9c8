"""The benchmark of a log's life: its logs are what its page says, and its shapes run on a real broker."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import log_life
import log_life_data as data
import lookups
import metrics
import report
from headwater.log.filesystem import FileSystem
from headwater.log.inspection.file_batches import read_batches
from headwater.protocol.records import Record, decode_records
from log_life_shapes import FEW, MANY, RECOVERED, RECOVERED_PARTITIONS, clean, make_template, wait_until_served
from servers import Headwater, Running


def records_of(prepared: data.PreparedLog) -> list[Record]:
    return [
        record
        for path in sorted(prepared.folder.glob("*.log"))
        for batch in read_batches(FileSystem(), str(path))
        for record in decode_records(batch.buffer, batch.header)
    ]


@pytest.mark.parametrize("compression", [0, 3])
def test_a_tenth_of_the_changes_are_the_newest_of_their_key(tmp_path: Path, compression: int) -> None:
    prepared = data.write_changes(tmp_path, size_bytes=2 << 20, compression=compression)
    records = records_of(prepared)
    assert len({record.key for record in records}) / len(records) == pytest.approx(0.1, rel=0.1)
    assert prepared.active_offset == prepared.end_offset == len(records)


def test_every_record_has_its_own_millisecond(tmp_path: Path) -> None:
    prepared = data.write_history(tmp_path, segments=3)
    assert len(list(prepared.folder.glob("*.log"))) == 3
    assert [record.timestamp_ms - prepared.first_ms for record in records_of(prepared)] == list(
        range(prepared.end_offset)
    )


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench") / "template"
    make_template(Headwater(settings=log_life.CLEANER), folder, cleanings=1)
    return folder


@pytest.fixture
def running() -> Iterator[list[Running]]:
    started: list[Running] = []
    yield started
    for broker in started:
        broker.kill()


def test_a_topic_is_cleaned_when_the_clock_starts_and_not_before(
    tmp_path: Path, template: Path, running: list[Running]
) -> None:
    prepared = data.write_changes(tmp_path, size_bytes=2 << 20, compression=0)
    folder = tmp_path / "data"
    data.copy_folder(template, folder)
    data.put_in(prepared, folder / "plain-0-0")
    running.append(Headwater(settings=log_life.CLEANER).start(folder))
    running[0].wait_until_led("plain", 1)
    assert data.cleaned_up_to(folder, "plain-0") == 0
    figures = clean(running[0], "plain", 0, prepared)
    assert figures["clean_plain"] > 0
    assert data.log_bytes(folder / "plain-0-0") < prepared.size_bytes / 3
    # The other broker gets the same bytes.
    assert data.log_bytes(prepared.folder) == prepared.size_bytes


def test_a_folder_without_its_mark_is_recovered_whole_and_answers_look_ups(
    tmp_path: Path, template: Path, running: list[Running]
) -> None:
    prepared = data.write_history(tmp_path, segments=20)
    folder = tmp_path / "data"
    data.copy_folder(template, folder)
    partitions = [f"{RECOVERED}-{number}" for number in range(RECOVERED_PARTITIONS)]
    for partition in [*partitions, f"{MANY}-0", f"{FEW}-0"]:
        data.put_in(prepared, folder / partition)
        # Only a recovery can tell what is in a log without indexes.
        for index in (folder / partition).glob("*index"):
            index.unlink()
    data.forget_clean_stop(folder)
    running.append(Headwater(settings=log_life.CLEANER).start(folder))
    seconds, cpu_seconds = wait_until_served(running[0], prepared.end_offset)
    assert 0 < cpu_seconds <= seconds * 4
    rate, latencies = lookups.run(
        running[0].port,
        MANY,
        first_ms=prepared.first_ms,
        records=prepared.end_offset,
        connections=2,
        warm_s=0,
        run_s=0.2,
        seed=1,
    )
    assert rate > 0
    assert len(latencies) > 0


def test_a_look_up_that_finds_the_wrong_record_is_no_figure(
    tmp_path: Path, template: Path, running: list[Running]
) -> None:
    prepared = data.write_history(tmp_path, segments=2)
    folder = tmp_path / "data"
    data.copy_folder(template, folder)
    data.put_in(prepared, folder / f"{MANY}-0")
    running.append(Headwater(settings=log_life.CLEANER).start(folder))
    running[0].wait_until_led(MANY, 1)
    with pytest.raises(lookups.WrongAnswerError):
        lookups.run(
            running[0].port,
            MANY,
            first_ms=prepared.first_ms + 1,
            records=prepared.end_offset - 1,
            connections=1,
            warm_s=0,
            run_s=5,
            seed=1,
        )


def test_the_page_has_a_place_for_every_figure(tmp_path: Path) -> None:
    samples = metrics.Samples(metrics.LOG_LIFE)
    for metric in metrics.LOG_LIFE:
        samples.add({metric.key: 2.0}, {metric.key: 1.0})
    summaries = samples.summaries(log_life.SHAPES)
    assert len(summaries) == len(metrics.LOG_LIFE)
    setting = report.Setting(names=("ours", "theirs"), versions=("1", "2"), rounds="one round", warming="none")
    report.write(tmp_path, report.LOG_LIFE, summaries, setting)
    page = (tmp_path / "log_life.md").read_text()
    assert all(f"| {metric.label} |" in page for metric in metrics.LOG_LIFE)
    assert (tmp_path / "log_life.png").stat().st_size > 0
