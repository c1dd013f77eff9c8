"""Whoever is killed at whatever moment: every record, line and row is in its table exactly once."""

from pathlib import Path

import pytest

from headwater.lake.java import find_java
from integration.lake_chaos import LakeChaos
from peers.postgresql import Postgresql
from peers.postgresql import postgresql as postgresql
from peers.presence import require

ROUNDS = 10


@pytest.mark.timeout(600)
def test_two_jobs_race_and_everything_is_killed(tmp_path: Path, postgresql: Postgresql) -> None:
    require(None if find_java() else "no Java 17 or newer: run scripts/get_peers.py")
    chaos = LakeChaos(tmp_path, postgresql, seed=7)
    chaos.run(ROUNDS)
    assert chaos.deaths >= ROUNDS // 2
    assert chaos.kills >= ROUNDS // 3
