"""The single broker's metadata: what was changed is there again, whatever ended the process."""

import errno
import threading
from pathlib import Path
from typing import Literal
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.cluster.changes import (
    BrokerConfigured,
    Change,
    LeaderEpochRaised,
    LogDirsUsed,
    PartitionsAdded,
    ProducerIdsReserved,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
    from_line,
    to_line,
)
from headwater.cluster.embedded import FILE_NAME, DamagedJournalError, EmbeddedStore
from headwater.cluster.image import ClusterImage, topic_name_problem
from headwater.log.filesystem import FileSystem
from headwater.testing import FaultyFileSystem
from headwater.testing.faulty_filesystem import Call, MachineStoppedError

NAMES = st.sampled_from(["a", "b", "c.d", "c_d"])
CONFIGS = st.dictionaries(st.sampled_from(["retention.ms", "cleanup.policy"]), st.text(max_size=5), max_size=2)
CHANGES: st.SearchStrategy[Change] = st.one_of(
    st.builds(TopicCreated, name=NAMES, topic_id=st.uuids(), partitions=st.integers(1, 9), configs=CONFIGS),
    st.builds(TopicDeleted, name=NAMES, topic_id=st.uuids()),
    st.builds(PartitionsAdded, name=NAMES, partitions=st.integers(1, 20)),
    st.builds(TopicConfigured, name=NAMES, configs=CONFIGS),
    st.builds(BrokerConfigured, broker=st.sampled_from(["", "0"]), configs=CONFIGS),
    st.builds(ProducerIdsReserved, next_producer_id=st.integers(0, 2**62)),
    st.builds(LeaderEpochRaised, leader_epoch=st.integers(0, 2**31 - 1)),
    st.builds(LogDirsUsed, directory_ids=st.lists(st.text(max_size=5), max_size=3).map(tuple)),
)


def reopened(folder: Path) -> ClusterImage:
    store = EmbeddedStore([folder], FileSystem())
    image = store.open()
    store.close()
    return image


@given(changes=st.lists(CHANGES, max_size=20))
def test_a_change_survives_its_line_and_an_image_its_changes(changes: list[Change]) -> None:
    image = ClusterImage()
    for change in changes:
        assert from_line(to_line(change)) == change
        image.apply(change)
    again = ClusterImage()
    for change in image.as_changes():
        again.apply(change)
    assert (again.topics, again.broker_configs, again.next_producer_id, again.leader_epoch) == (
        image.topics,
        image.broker_configs,
        image.next_producer_id,
        image.leader_epoch,
    )
    assert again.directory_ids == image.directory_ids


def test_what_was_appended_is_there_at_the_next_start(tmp_path: Path) -> None:
    store = EmbeddedStore([tmp_path], FileSystem())
    store.open()
    topic_id = uuid4()
    store.append(TopicCreated(name="orders", topic_id=topic_id, partitions=3, configs={"retention.ms": "5"}))
    store.append(PartitionsAdded(name="orders", partitions=4), ProducerIdsReserved(next_producer_id=1000))
    store.close()
    image = reopened(tmp_path)
    assert image.topics["orders"] == TopicCreated(
        name="orders", topic_id=topic_id, partitions=4, configs={"retention.ms": "5"}
    )
    assert image.next_producer_id == 1000


def test_a_change_is_on_the_device_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = EmbeddedStore([tmp_path], FileSystem())
    store.open()
    seen = []

    def sync(descriptor: int) -> None:
        if "refused" in (tmp_path / FILE_NAME).read_text():
            raise OSError(errno.EIO, "Input/output error")
        seen.append(("kept" in (tmp_path / FILE_NAME).read_text(), "kept" in store.image.topics))

    monkeypatch.setattr(store._fs, "sync", sync)
    store.append(TopicCreated(name="kept", topic_id=UUID(int=1), partitions=1))
    assert seen == [(True, False)]
    with pytest.raises(OSError, match="Input/output"):
        store.append(TopicCreated(name="refused", topic_id=UUID(int=2), partitions=1))
    assert set(store.image.topics) == {"kept"}
    store.close()
    assert set(reopened(tmp_path).topics) == {"kept"}


@pytest.mark.parametrize(("call", "number"), [("pwrite", errno.ENOSPC), ("sync", errno.EIO)])
def test_a_full_disk_is_told_from_a_change_that_may_be_half_kept(
    tmp_path: Path, call: Literal["pwrite", "sync"], number: int
) -> None:
    fs = FaultyFileSystem(str(tmp_path))
    store = EmbeddedStore([tmp_path], fs)
    store.open()
    fs.fail(call, errno.ENOSPC)
    with pytest.raises(OSError, match="No space left") as caught:
        store.append(TopicCreated(name="refused", topic_id=UUID(int=2), partitions=1))
    assert caught.value.errno == number
    store.close()
    assert not reopened(tmp_path).topics


def test_a_torn_last_line_is_dropped_and_written_over(tmp_path: Path) -> None:
    store = EmbeddedStore([tmp_path], FileSystem())
    store.open()
    store.append(TopicCreated(name="whole", topic_id=UUID(int=1), partitions=1))
    store.append(TopicCreated(name="torn", topic_id=UUID(int=2), partitions=1))
    store.close()
    journal = tmp_path / FILE_NAME
    data = journal.read_bytes()
    first_line_end = data.index(b"\n") + 1
    for cut in range(first_line_end, len(data)):
        journal.write_bytes(data[:cut])
        assert set(reopened(tmp_path).topics) == {"whole"}
        assert journal.read_bytes() == data[:first_line_end]


def test_damage_before_the_last_line_stops_the_start_with_its_place(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text('{"change":"topic-created"}\n{"change":"producer-ids-reserved"}\n')
    with pytest.raises(DamagedJournalError, match=r"line 1: .*move it away"):
        reopened(tmp_path)


def test_a_long_journal_is_rewritten_short_with_the_same_meaning(tmp_path: Path) -> None:
    store = EmbeddedStore([tmp_path], FileSystem())
    store.open()
    store.append(TopicCreated(name="kept", topic_id=UUID(int=1), partitions=1))
    store.append(*(ProducerIdsReserved(next_producer_id=number) for number in range(1200)))
    store.rewrite_if_long()
    store.append(TopicConfigured(name="kept", configs={"cleanup.policy": "compact"}))
    store.close()
    assert len((tmp_path / FILE_NAME).read_text().splitlines()) == 5
    image = reopened(tmp_path)
    assert image.topics["kept"].configs == {"cleanup.policy": "compact"}
    assert image.next_producer_id == 1199


@pytest.mark.parametrize("name", ["orders", "a", "A.b_c-9", "x" * 249, "..."])
def test_good_topic_names(name: str) -> None:
    assert topic_name_problem(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "naïve", "a\n"])
def test_bad_topic_names_come_with_a_reason(name: str) -> None:
    assert topic_name_problem(name)


def test_names_that_metrics_cannot_tell_apart_collide() -> None:
    image = ClusterImage()
    image.apply(TopicCreated(name="a.b_c", topic_id=UUID(int=1), partitions=1))
    assert image.colliding_topic("a_b.c") == "a.b_c"
    assert image.colliding_topic("a.b_c") is None
    assert image.colliding_topic("abc") is None


def test_the_journal_is_found_in_whichever_folder_has_it(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    for folder in (first, second):
        folder.mkdir()
    store = EmbeddedStore([second, first], FileSystem())
    store.open()
    store.append(ProducerIdsReserved(next_producer_id=7))
    store.close()
    again = EmbeddedStore([first, second], FileSystem())
    assert again.open().next_producer_id == 7
    again.close()
    (first / FILE_NAME).touch()
    with pytest.raises(DamagedJournalError, match="two metadata journals"):
        EmbeddedStore([first, second], FileSystem())


def long_store(fs: FaultyFileSystem) -> EmbeddedStore:
    """A journal of many lines that mean little, with a deletion of which something may be left and one all gone."""
    store = EmbeddedStore([Path(fs.folder)], fs)
    store.open()
    store.append(TopicCreated(name="kept", topic_id=UUID(int=1), partitions=1))
    store.append(*(ProducerIdsReserved(next_producer_id=number) for number in range(1200)))
    store.append(*(TopicDeleted(name="kept", topic_id=UUID(int=number)) for number in (8, 9)))
    store.append(TopicCreated(name="kept", topic_id=UUID(int=2), partitions=3))
    store.forget_deleted([UUID(int=8)])
    return store


@pytest.mark.parametrize("ends", ["kill", "lose_power"])
def test_a_rewrite_that_ends_at_any_step_loses_nothing(ends: str) -> None:
    steps, whole = 0, False
    while not whole:
        for seed in range(3):
            fs = FaultyFileSystem(seed=seed)
            store = long_store(fs)
            fs.stop_after(steps)
            known = ProducerIdsReserved(next_producer_id=0)
            try:
                store.rewrite_if_long()
                for number in (2000, 2001):
                    store.append(ProducerIdsReserved(next_producer_id=number))
                    known = ProducerIdsReserved(next_producer_id=number)
                whole = True
            except MachineStoppedError:
                pass
            fs = getattr(fs, ends)()
            again = EmbeddedStore([Path(fs.folder)], fs)
            image = again.open()
            assert image.topics == {"kept": TopicCreated(name="kept", topic_id=UUID(int=2), partitions=3)}
            assert UUID(int=9) in image.deleted_ids
            assert image.next_producer_id >= max(1199, known.next_producer_id)
            again.append(ProducerIdsReserved(next_producer_id=3000))
            again.close()
            assert sorted(path.name for path in Path(fs.folder).iterdir()) == [FILE_NAME]
            fs = fs.lose_power()
            assert EmbeddedStore([Path(fs.folder)], fs).open().next_producer_id == 3000
        steps += 1
    assert steps > 5


@pytest.mark.parametrize("call", ["open", "pwrite", "sync", "rename", "sync_dir"])
def test_a_rewrite_that_fails_leaves_a_journal_that_is_whole_or_says_that_it_is_lost(call: Call) -> None:
    fs = FaultyFileSystem()
    store = long_store(fs)
    fs.fail(call, errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        store.rewrite_if_long()
    assert store.is_closed == (call == "sync_dir")
    if store.is_closed:
        with pytest.raises(OSError, match="is closed"):
            store.append(ProducerIdsReserved(next_producer_id=7000))
    else:
        store.append(ProducerIdsReserved(next_producer_id=5000))
        assert not store.is_long, "it is not tried again at every look"
    store.close()
    fs = fs.lose_power()
    image = EmbeddedStore([Path(fs.folder)], fs).open()
    assert image.next_producer_id == (1199 if call == "sync_dir" else 5000)
    assert set(image.topics) == {"kept"}


def test_changes_that_come_in_while_it_is_rewritten_are_kept(tmp_path: Path) -> None:
    store = EmbeddedStore([tmp_path], FileSystem())
    store.open()
    over = threading.Event()

    def rewrite() -> None:
        while not over.is_set():
            store.rewrite_if_long()

    thread = threading.Thread(target=rewrite)
    thread.start()
    for number in range(1, 120):
        store.append(*(ProducerIdsReserved(next_producer_id=100 * number + each) for each in range(100)))
    over.set()
    thread.join()
    store.rewrite_if_long()
    store.close()
    assert len((tmp_path / FILE_NAME).read_bytes().splitlines()) < 2000
    assert reopened(tmp_path).next_producer_id == 100 * 119 + 99
