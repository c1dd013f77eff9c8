"""Jobs in rounds: one that fails stops no other, is told once, and is tried again after pauses that grow."""

from collections.abc import Callable

import pytest

from headwater.lake.errors import LakeError
from headwater.lake.jobs import Job
from headwater.lake.load.request import LoadReport, LoadRequest
from headwater.lake.operations.running import LONGEST_PAUSE_S, JobResult, Rounds, run_once

LoadFunction = Callable[[Job], LoadReport]


def job(name: str) -> Job:
    return Job(source=f"topic:{name}", request=LoadRequest(table=f"db.{name}"), name=name)


def loaded(job: Job, rows: int = 1) -> LoadReport:
    return LoadReport(table=job.request.table, source=job.source, news="news", load_id="a" if rows else None)


class Clock:
    """Time that passes only while somebody waits; it is time to stop at `end_s`."""

    def __init__(self, end_s: float) -> None:
        self.now_s = 0.0
        self.end_s = end_s

    def __call__(self) -> float:
        return self.now_s

    def wait(self, seconds: float) -> bool:
        self.now_s += seconds
        return self.now_s >= self.end_s


def rounds(names: str, load: LoadFunction, *, until_s: float, every_s: float = 10) -> tuple[list[JobResult], Clock]:
    clock = Clock(until_s)
    told: list[JobResult] = []
    jobs = [job(name) for name in names.split()]
    Rounds(jobs=jobs, load=load, every_s=every_s, wait=clock.wait, tell=told.append, clock=clock).run()
    return told, clock


def test_one_jobs_failure_does_not_stop_the_others() -> None:
    def load(each: Job) -> LoadReport:
        if each.name == "b":
            raise LakeError("b is broken: mend it")
        return loaded(each)

    results = list(run_once([job("a"), job("b"), job("c")], load))
    assert [(result.job.name, result.loaded, result.failure) for result in results] == [
        ("a", True, None),
        ("b", False, "b is broken: mend it"),
        ("c", True, None),
    ]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RuntimeError("Job aborted\nat org.apache.spark"), "RuntimeError: Job aborted"),
        (KeyError(), "KeyError"),
        (LakeError("the table is away"), "the table is away"),
    ],
)
def test_a_failure_is_one_line_whatever_was_raised(error: Exception, words: str) -> None:
    def load(_: Job) -> LoadReport:
        raise error

    assert [result.failure for result in run_once([job("a")], load)] == [words]


def test_no_job_begins_once_it_is_time_to_stop() -> None:
    begun: list[str | None] = []

    def load(each: Job) -> LoadReport:
        begun.append(each.name)
        return loaded(each)

    list(run_once([job("a"), job("b")], load, stopping=lambda: bool(begun)))
    assert begun == ["a"]


def test_rounds_begin_at_equal_distances_and_only_what_loaded_something_is_told() -> None:
    begun: list[tuple[str | None, float]] = []
    clock = Clock(25)

    def load(each: Job) -> LoadReport:
        begun.append((each.name, clock.now_s))
        clock.now_s += 3
        return loaded(each, rows=1 if each.name == "b" else 0)

    told: list[JobResult] = []
    Rounds(jobs=[job("a"), job("b")], load=load, every_s=10, wait=clock.wait, tell=told.append, clock=clock).run()
    assert begun == [("a", 0), ("b", 3), ("a", 10), ("b", 13), ("a", 20), ("b", 23)]
    assert [result.job.name for result in told] == ["b", "b", "b"]


def test_a_trouble_of_several_jobs_is_told_once_and_its_end_too() -> None:
    away_until_s = 100.0
    clock_box: list[Clock] = []

    def load(each: Job) -> LoadReport:
        if clock_box and clock_box[0].now_s < away_until_s:
            raise LakeError("the catalog does not answer")
        return loaded(each, rows=0)

    clock = Clock(400)
    told: list[JobResult] = []
    clock_box.append(clock)
    Rounds(
        jobs=[job("a"), job("b"), job("c")], load=load, every_s=10, wait=clock.wait, tell=told.append, clock=clock
    ).run()
    assert [(result.job.name, result.failure, result.again_in_s) for result in told] == [
        ("a", "the catalog does not answer", 10),
        ("a", None, None),
    ]
    assert told[1].failed_for_s is not None
    assert told[1].failed_for_s >= away_until_s


def test_pauses_grow_up_to_a_limit_and_other_jobs_keep_their_pace() -> None:
    tries: dict[str | None, list[float]] = {"good": [], "bad": []}
    clock = Clock(2000)

    def load(each: Job) -> LoadReport:
        tries[each.name].append(clock.now_s)
        if each.name == "bad":
            raise LakeError("never")
        return loaded(each)

    told: list[JobResult] = []
    Rounds(jobs=[job("good"), job("bad")], load=load, every_s=10, wait=clock.wait, tell=told.append, clock=clock).run()
    gaps = [later - earlier for earlier, later in zip(tries["bad"], tries["bad"][1:], strict=False)]
    assert gaps[:6] == [10, 20, 40, 80, 160, LONGEST_PAUSE_S]
    assert max(gaps) == LONGEST_PAUSE_S
    assert len(tries["good"]) == 200
    assert [result.failure for result in told if result.failure] == ["never"]


def test_another_trouble_of_the_same_job_is_told_again_and_success_begins_anew() -> None:
    troubles = iter(["one", "one", "two", None, "one"])

    def load(each: Job) -> LoadReport:
        trouble = next(troubles, None)
        if trouble is not None:
            raise LakeError(trouble)
        return loaded(each, rows=0)

    told, _ = rounds("a", load, until_s=500)
    assert [result.failure for result in told] == ["one", "two", None, "one", None]
    assert told[3].again_in_s == 10
