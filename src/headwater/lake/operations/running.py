"""Runs jobs one after the other, once or in rounds. Takes the clock, the pause and the load as arguments.

A job that fails stops no other. In rounds it is tried again after pauses that grow, and what stops it is told once, not
at every try: a catalog that is away for an hour is one line, and another one when it is back.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from headwater.lake.jobs import Job
from headwater.lake.load.request import LoadReport

LONGEST_PAUSE_S: Final = 300.0
"""How long a job that fails again and again waits between two tries; `every_s` where that is longer."""

Load = Callable[[Job], LoadReport]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """What came of one job: a report, or the sentence that says why there is none."""

    job: Job
    report: LoadReport | None = None
    failure: str | None = None
    again_in_s: float | None = None
    """When a job that failed is tried again; None when it is not."""
    failed_for_s: float | None = None
    """How long the job had failed until it worked again just now."""

    @property
    def loaded(self) -> bool:
        """Whether there was something new."""
        return self.report is not None and self.report.load_id is not None


def run_once(jobs: Sequence[Job], load: Load, *, stopping: Callable[[], bool] = lambda: False) -> Iterator[JobResult]:
    """One result after the other; none any more once `stopping` says so."""
    for job in jobs:
        if stopping():
            return
        yield attempt(job, load)


def attempt(job: Job, load: Load) -> JobResult:
    """Loads one job; whatever goes wrong is in the result."""
    try:
        return JobResult(job=job, report=load(job))
    except Exception as error:
        return JobResult(job=job, failure=_sentence(error))


def _sentence(error: Exception) -> str:
    """One line. Our own errors are sentences; those of Spark say what happened first, and go on for pages."""
    words = (str(error).strip().splitlines() or [""])[0]
    ours = type(error).__module__.partition(".")[0] == __name__.partition(".")[0]
    return words if ours and words else f"{type(error).__name__}: {words}".removesuffix(": ")


@dataclass(slots=True)
class _Turns:
    """When a job's turn comes, and what stands in its way."""

    job: Job
    due_s: float
    failures: int = 0
    failing_since_s: float = 0.0
    trouble: str | None = None
    told: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """Jobs in a round every `every_s` seconds.

    `wait` waits for so many seconds and says whether it is time to stop; with 0 it only says so. `tell` is called for
    every load that loaded something, for a failure that is new, and when a job works again.
    """

    jobs: Sequence[Job]
    load: Load
    every_s: float
    wait: Callable[[float], bool]
    tell: Callable[[JobResult], None]
    clock: Callable[[], float] = time.monotonic

    def run(self) -> None:
        """Until `wait` says that it is time to stop."""
        turns = [_Turns(job=job, due_s=self.clock()) for job in self.jobs]
        while True:
            for each in turns:
                if self.wait(0):
                    return
                if each.due_s <= self.clock():
                    self._take(each, turns)
            if self.wait(max(0.0, min(each.due_s for each in turns) - self.clock())):
                return

    def _take(self, turn: _Turns, turns: Sequence[_Turns]) -> None:
        began_s = self.clock()
        result = attempt(turn.job, self.load)
        now_s = self.clock()
        if result.failure is None:
            self._went_well(turn, result, now_s)
            turn.due_s = max(now_s, began_s + self.every_s)
            return
        if turn.failures == 0:
            turn.failing_since_s = began_s
        pause_s = self._pause_s(turn.failures)
        turn.failures += 1
        turn.due_s = now_s + pause_s
        if result.failure != turn.trouble:
            # What several jobs suffer from, a catalog or broker that is away, is told by the first of them.
            told = any(each.told and each.trouble == result.failure for each in turns)
            turn.trouble = result.failure
            turn.told = not told
            if not told:
                self.tell(JobResult(job=turn.job, failure=result.failure, again_in_s=pause_s))

    def _went_well(self, turn: _Turns, result: JobResult, now_s: float) -> None:
        if turn.told:
            result = JobResult(job=turn.job, report=result.report, failed_for_s=now_s - turn.failing_since_s)
        if turn.told or result.loaded:
            self.tell(result)
        turn.failures, turn.trouble, turn.told = 0, None, False

    def _pause_s(self, failures: int) -> float:
        longest_s = max(LONGEST_PAUSE_S, self.every_s)
        return float(min(max(self.every_s, 1.0) * 2.0 ** min(failures, 30), longest_s))
