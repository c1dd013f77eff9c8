"""Leader epochs: rising with their offsets, and the answer to where an epoch ended."""

from pathlib import Path

import pytest

from headwater.log.filesystem import FileSystem
from headwater.log.leader_epochs import LeaderEpochs


@pytest.fixture
def epochs(tmp_path: Path) -> LeaderEpochs:
    epochs = LeaderEpochs(FileSystem(), str(tmp_path / "leader-epoch-checkpoint"))
    for epoch, offset in [(2, 10), (4, 20), (7, 30)]:
        epochs.assign(epoch, offset)
    return epochs


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        (-1, (-1, -1)),
        (0, (0, 10)),
        (1, (1, 10)),
        (2, (2, 20)),
        (3, (2, 20)),
        (4, (4, 30)),
        (6, (4, 30)),
        (7, (7, 99)),
        (8, (-1, -1)),
    ],
)
def test_where_an_epoch_ended(epochs: LeaderEpochs, epoch: int, answer: tuple[int, int]) -> None:
    assert epochs.end_offset(epoch, 99) == answer


def test_without_epochs_nothing_can_be_said(tmp_path: Path) -> None:
    assert LeaderEpochs(FileSystem(), str(tmp_path / "x")).end_offset(0, 5) == (-1, -1)


@pytest.mark.parametrize(
    ("epoch", "offset", "left"),
    [
        (7, 30, [(2, 10), (4, 20), (7, 30)]),
        (7, 35, [(2, 10), (4, 20), (7, 30)]),
        (8, 30, [(2, 10), (4, 20), (8, 30)]),
        (8, 25, [(2, 10), (4, 20), (8, 25)]),
        (8, 20, [(2, 10), (8, 20)]),
        (3, 40, [(2, 10), (3, 40)]),
        (9, 5, [(9, 5)]),
    ],
)
def test_a_new_epoch_makes_those_that_contradict_it_give_way(
    epochs: LeaderEpochs, epoch: int, offset: int, left: list[tuple[int, int]]
) -> None:
    epochs.assign(epoch, offset)
    assert epochs.entries == left
    again = LeaderEpochs(FileSystem(), epochs.path)
    again.load()
    assert again.entries == left
    assert again.latest == epochs.latest == left[-1][0]


def test_the_epoch_of_an_offset(epochs: LeaderEpochs) -> None:
    assert [epochs.epoch_of(offset) for offset in (9, 10, 19, 20, 30, 1000)] == [-1, 2, 2, 4, 7, 7]


@pytest.mark.parametrize(
    ("start", "left"),
    [
        (5, [(2, 10), (4, 20), (7, 30)]),
        (10, [(2, 10), (4, 20), (7, 30)]),
        (15, [(2, 15), (4, 20), (7, 30)]),
        (20, [(4, 20), (7, 30)]),
        (50, [(7, 50)]),
    ],
)
def test_the_start_moves_up(epochs: LeaderEpochs, start: int, left: list[tuple[int, int]]) -> None:
    epochs.truncate_from_start(start)
    assert epochs.entries == left


@pytest.mark.parametrize(("end", "left"), [(31, 3), (30, 2), (20, 1), (15, 1), (10, 0)])
def test_the_end_moves_down(epochs: LeaderEpochs, end: int, left: int) -> None:
    epochs.truncate_from_end(end)
    assert epochs.entries == [(2, 10), (4, 20), (7, 30)][:left]
    assert epochs.latest == [-1, 2, 4, 7][left]


def test_negative_epochs_are_refused(epochs: LeaderEpochs) -> None:
    with pytest.raises(ValueError, match="negative"):
        epochs.assign(-2, 5)
