"""The assignors beside Java's own, on inputs that are new in every run; a failure prints the seed."""

import itertools
import random

import pytest

from peers.assignors import cases, java_results, our_result
from peers.presence import require_apache

pytestmark = pytest.mark.peer


def test_the_assignors_say_what_javas_say() -> None:
    require_apache()
    seed = random.randrange(2**32)
    tried = list(itertools.islice(cases(seed), 600))
    for case, result in zip(tried, java_results(tried), strict=True):
        assert our_result(case) == result, f"seed {seed}: {case}"
