"""What the tests do for seconds, for longer, in rounds: a log on a failing disk, a broker and a lake that are killed,
decoders that are fuzzed, a broker under hostile frames.

    make soak                                ten minutes, and no fewer than 200 kills
    make soak SECONDS=3600                   an hour
    make soak KIND=log SEED=1234 SECONDS=1   one round again: as a failed run printed it
    make soak KIND=fuzz SECONDS=36000        only the decoders, for a night
    make soak KIND=frames FRAMES=10000000    one round of so many hostile frames

A round on a failing disk that fails prints the shortest way to it. Any failure ends the run with exit code 1. When the
broker is killed, the seed decides the moments, but the machine has its say too.
"""

import argparse
import logging
import math
import random
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import seed as seeded
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES_A_ROUND = 100
STEPS_AN_EXAMPLE = 60
KILLS_A_ROUND = 25
HARMS_A_ROUND = 30
FUZZED_S = 10.0
"""How long each decoder is fuzzed in a round."""
FRAMES_A_ROUND = 200_000
LAKE_PATIENCE_S = 900.0
"""Two Sparks that start beside other work take minutes; what hangs still hangs after so long."""


def soak_log(seed: int) -> None:
    """A round of the machine that appends, truncates and deletes."""
    from unit.log.faults_machine import LogUnderFaults

    _run(LogUnderFaults, seed)


def soak_cleaning(seed: int) -> None:
    """A round of the machine that cleans."""
    from unit.log.cleaning_faults_machine import CleaningUnderFaults

    _run(CleaningUnderFaults, seed)


def _run(machine: type[RuleBasedStateMachine], seed: int) -> None:
    rounds = settings(
        max_examples=EXAMPLES_A_ROUND,
        stateful_step_count=STEPS_AN_EXAMPLE,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(seeded(seed)(machine), settings=rounds)


def soak_kills(seed: int) -> None:
    """A real broker under load, killed again and again."""
    from integration.killing import KillLoop

    with tempfile.TemporaryDirectory() as folder:
        loop = KillLoop(Path(folder), seed)
        loop.run(kills=KILLS_A_ROUND)
    print(f"  {loop.kills} kills, {loop.records:,} records, the slowest start took {max(loop.starts_s):.1f} s")


def soak_lake(seed: int) -> None:
    """Two loading jobs that race, and everything around them killed again and again."""
    from integration.lake_chaos import LakeChaos
    from peers.postgresql import Postgresql

    with tempfile.TemporaryDirectory() as folder, Postgresql() as postgresql:
        chaos = LakeChaos(Path(folder), postgresql, seed, patience_s=LAKE_PATIENCE_S)
        chaos.run(rounds=HARMS_A_ROUND)
    print(f"  {chaos.deaths} deaths of the catalog, {chaos.kills} of jobs, {chaos.produced:,} records")


def soak_fuzz(seed: int) -> None:
    """Every decoder of strangers' bytes."""
    from fuzz import harness

    for target in harness.TARGETS:
        print(f"  {harness.fuzz(target, seed=seed, seconds=FUZZED_S)}", flush=True)


def soak_frames(seed: int, frames: int = FRAMES_A_ROUND) -> None:
    """A real broker under harmed frames."""
    from integration.hostile_frames import HostileFrames

    with tempfile.TemporaryDirectory() as folder:
        fire = HostileFrames(Path(folder), seed)
        fire.run(frames=frames)
    print(f"  {fire.looked_at:,} hostile frames, the broker grew by {fire.grown_bytes / (1 << 20):.1f} MiB")


SOAKS = {
    "log": soak_log,
    "cleaning": soak_cleaning,
    "kills": soak_kills,
    "lake": soak_lake,
    "fuzz": soak_fuzz,
    "frames": soak_frames,
}
"""What runs; each takes a seed and raises when something is wrong."""
SHARES = {"log": 1, "cleaning": 1, "kills": 2, "lake": 2, "fuzz": 1, "frames": 1}
"""How the time is divided."""
SECONDS_A_KILL = 3
"""So many kills there are at least, however slow the machine is: 200 in ten minutes."""


class Soak:
    """Rounds of some kinds, as their shares of the time say, and no fewer of each than is due."""

    def __init__(self, kinds: Iterable[str], seconds: float, seed: int) -> None:
        self.rounds = dict.fromkeys(kinds, 0)
        self._spent_s = dict.fromkeys(self.rounds, 0.0)
        self._ends_s = time.monotonic() + seconds
        self._due = {"kills": math.ceil(seconds / SECONDS_A_KILL / KILLS_A_ROUND)}
        self._seed = seed

    def next_kind(self) -> str | None:
        """What to run now; None when it is enough."""
        if time.monotonic() < self._ends_s:
            return min(self.rounds, key=lambda kind: self._spent_s[kind] / SHARES[kind])
        return next((kind for kind, rounds in self.rounds.items() if rounds < self._due.get(kind, 1)), None)

    def run(self) -> None:
        """Everything; a failure says how to have it again."""
        while (kind := self.next_kind()) is not None:
            print(f"round {sum(self.rounds.values()) + 1}: {kind}, seed {self._seed}", flush=True)
            began_s = time.monotonic()
            try:
                SOAKS[kind](self._seed)
            except BaseException:
                print(f"failed: make soak KIND={kind} SEED={self._seed} SECONDS=1", flush=True)
                raise
            self._spent_s[kind] += time.monotonic() - began_s
            self.rounds[kind] += 1
            self._seed += 1


def main() -> int:
    """Rounds until the time is up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", choices=sorted(SOAKS), help="only this kind")
    parser.add_argument("--frames", type=int, help="one round of so many hostile frames, and nothing else")
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT / "tests"))
    # What recovery repairs is what is provoked here, thousands of times.
    logging.disable(logging.CRITICAL)
    seed = random.randrange(2**31) if arguments.seed is None else arguments.seed
    if arguments.frames:
        soak_frames(seed, arguments.frames)
        return 0
    soak = Soak([arguments.only] if arguments.only else SOAKS, arguments.seconds, seed)
    soak.run()
    told = ", ".join(f"{rounds} of {kind}" for kind, rounds in soak.rounds.items())
    print(f"nothing wrong in {sum(soak.rounds.values())} rounds: {told}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
