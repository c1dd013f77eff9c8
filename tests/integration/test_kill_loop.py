"""kill -9 again and again, under load and while it starts: a broker keeps what it acknowledged. `make soak` goes on.

The moments are chance; a failure names the seed to try again with: HEADWATER_SEED=<seed>.
"""

import os
import random
from pathlib import Path

import pytest

from integration.killing import KillLoop


@pytest.mark.timeout(120)
def test_ten_kills_lose_double_and_disorder_nothing_and_every_recovery_is_whole(tmp_path: Path) -> None:
    seed = int(os.environ.get("HEADWATER_SEED", random.SystemRandom().getrandbits(32)))
    print(f"HEADWATER_SEED={seed}")
    loop = KillLoop(tmp_path, seed)
    loop.run(kills=10)
    print(f"{loop.kills} kills, the slowest start took {max(loop.starts_s):.1f} s")
