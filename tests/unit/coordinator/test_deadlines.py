"""Deadlines: each name is due once, when it was last set to."""

from hypothesis import given
from hypothesis import strategies as st

from headwater.coordinator.deadlines import Deadlines


def test_what_is_due_comes_earliest_first_and_once() -> None:
    deadlines = Deadlines[str]()
    deadlines.set("late", 30)
    deadlines.set("early", 10)
    deadlines.set("middle", 20)
    assert deadlines.next_ms() == 10
    assert deadlines.due(20) == ["early", "middle"]
    assert deadlines.due(20) == []
    assert deadlines.next_ms() == 30


def test_a_deadline_that_was_moved_holds_at_its_new_time_only() -> None:
    deadlines = Deadlines[str]()
    deadlines.set("session", 10)
    deadlines.set("session", 20)
    assert deadlines.due(19) == []
    deadlines.set("session", 15)
    assert deadlines.next_ms() == 15
    assert deadlines.due(15) == ["session"]
    assert deadlines.due(100) == []


def test_a_cancelled_deadline_is_never_due() -> None:
    deadlines = Deadlines[str]()
    deadlines.set("join", 10)
    deadlines.cancel("join")
    assert deadlines.get("join") is None
    assert deadlines.next_ms() is None
    assert deadlines.due(100) == []


def test_a_name_that_is_set_again_after_being_cancelled_is_due_once() -> None:
    deadlines = Deadlines[str]()
    for at_ms in (10, 20, 30):
        deadlines.set("join", at_ms)
        deadlines.cancel("join")
    deadlines.set("join", 40)
    assert deadlines.due(39) == []
    assert deadlines.due(40) == ["join"]


def test_deadlines_that_are_taken_one_by_one_see_what_was_set_meanwhile() -> None:
    deadlines = Deadlines[str]()
    deadlines.set("first", 10)
    deadlines.set("second", 10)
    assert deadlines.take(10) == "first"
    deadlines.set("second", 50)
    assert deadlines.take(10) is None


_NAMES = st.sampled_from("abc")
_STEPS = st.one_of(
    st.tuples(st.just("set"), _NAMES, st.integers(0, 50)),
    st.tuples(st.just("cancel"), _NAMES, st.just(0)),
    st.tuples(st.just("due"), st.just(""), st.integers(0, 50)),
)


@given(st.lists(_STEPS, max_size=60))
def test_deadlines_are_what_a_plain_dict_would_be(steps: list[tuple[str, str, int]]) -> None:
    deadlines, model = Deadlines[str](), dict[str, int]()
    for what, name, at_ms in steps:
        if what == "set":
            deadlines.set(name, at_ms)
            model[name] = at_ms
        elif what == "cancel":
            deadlines.cancel(name)
            model.pop(name, None)
        else:
            due = deadlines.due(at_ms)
            assert sorted(due) == sorted(name for name, its_ms in model.items() if its_ms <= at_ms)
            assert [model[name] for name in due] == sorted(model[name] for name in due)
            for name in due:
                del model[name]
        assert deadlines.next_ms() == min(model.values(), default=None)
