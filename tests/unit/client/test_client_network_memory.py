"""Memory is used again only when nobody looks at it any more, and little of it is kept."""

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.client.answer_memory import KEPT_BYTES, KEPT_PIECES, AnswerMemory

MIB = 1024 * 1024


@given(st.lists(st.tuples(st.integers(1, 3 * MIB), st.integers(0, 5)), max_size=40))
def test_what_somebody_looks_at_is_never_handed_out_again(steps: list[tuple[int, int]]) -> None:
    memory = AnswerMemory()
    held: list[tuple[memoryview, bytes]] = []
    for number, (size, let_go) in enumerate(steps):
        piece = memory.take(size)
        assert len(piece) >= size
        view = memoryview(piece)
        mark = number.to_bytes(4, "big")[-min(size, 4) :]
        view[: len(mark)] = mark
        held.append((view[: len(mark)], mark))
        del view
        del held[: let_go // 2]
        assert [bytes(seen) for seen, _ in held] == [mark for _, mark in held]


def test_a_slice_of_a_slice_is_a_look_too() -> None:
    memory = AnswerMemory()
    first = memory.take(MIB)
    last_bytes = memoryview(first).toreadonly()[10:][-1:]
    assert memory.take(MIB) is not first
    last_bytes.release()
    assert memory.take(MIB) is first


def test_a_little_more_fits_and_much_less_does_not_hold_on_to_large_memory() -> None:
    memory = AnswerMemory()
    first = memory.take(8 * MIB - 100_000)
    assert memory.take(8 * MIB) is first
    assert memory.take(MIB) is not first


@settings(deadline=None)  # fresh memory takes as long as the machine is busy
@given(st.lists(st.integers(1, 12), max_size=30))
def test_what_is_kept_is_bounded(sizes_mib: list[int]) -> None:
    memory = AnswerMemory()
    views = [memoryview(memory.take(size * MIB)) for size in sizes_mib]
    views.clear()
    assert len(memory._kept) <= KEPT_PIECES
    assert sum(map(len, memory._kept)) <= KEPT_BYTES


def test_an_answer_larger_than_all_that_may_be_kept_is_not() -> None:
    memory = AnswerMemory()
    assert len(memory.take(KEPT_BYTES + 1)) > KEPT_BYTES
    assert memory._kept == []
