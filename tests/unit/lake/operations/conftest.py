"""A lake without Spark and a broker, for questions that need no Spark."""

from collections.abc import Iterator

import pytest

from headwater import LocalBroker
from headwater.lake import Lake


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with Lake(tmp_path_factory.mktemp("lake")) as lake:
        yield lake


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker() as broker:
        yield broker
