"""Commits of one session in several threads: who puts properties into the session is alone with it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Event, Thread

import pytest

from headwater.lake.load.session_properties import Turns

SOON_S = 0.05
LONG_S = 30


@contextmanager
def in_thread(turn: AbstractContextManager[None]) -> Iterator[tuple[Event, Event]]:
    """Whether another thread has got its turn, and what ends it."""
    has_turn, end = Event(), Event()

    def take() -> None:
        with turn:
            has_turn.set()
            end.wait(LONG_S)

    thread = Thread(target=take)
    thread.start()
    try:
        yield has_turn, end
    finally:
        end.set()
        thread.join(LONG_S)


def test_one_alone_keeps_all_others_out() -> None:
    turns = Turns()
    for other in (turns.alone, turns.beside_others):
        with in_thread(turns.alone()) as (first, end):
            assert first.wait(LONG_S)
            with in_thread(other()) as (second, _):
                assert not second.wait(SOON_S)
                end.set()
                assert second.wait(LONG_S)


def test_others_go_beside_each_other_and_whoever_wants_to_be_alone_waits_for_them() -> None:
    turns = Turns()
    with in_thread(turns.beside_others()) as (first, end), in_thread(turns.beside_others()) as (second, end_too):
        assert first.wait(LONG_S)
        assert second.wait(LONG_S)
        with in_thread(turns.alone()) as (alone, end_alone):
            assert not alone.wait(SOON_S)
            # Nor does it wait for ever where others come one after the other.
            with in_thread(turns.beside_others()) as (late, _):
                end.set()
                end_too.set()
                assert alone.wait(LONG_S)
                assert not late.is_set()
                end_alone.set()
                assert late.wait(LONG_S)


def test_a_failure_gives_the_turn_back() -> None:
    turns = Turns()
    for turn in (turns.alone, turns.beside_others):
        with pytest.raises(ZeroDivisionError), turn():
            raise ZeroDivisionError
    with turns.alone():
        pass
