"""Harmed JSON is read alike by both lanes, compiled and not. `make sanitize` does the same for longer, and watched."""

import os
from random import Random

from unit.lake.shapes.mutated_json import check_lanes

ROUNDS = 400
FIRST = Random().getrandbits(32) if os.environ.get("FRESH") else 0


def test_harmed_records_are_read_alike() -> None:
    for seed in range(FIRST, FIRST + ROUNDS):
        try:
            check_lanes(Random(seed))
        except Exception as error:
            raise AssertionError(f"with seed {seed}") from error
