"""What a broker finds at its start; a start that is refused lets go of everything it had opened."""

from pathlib import Path

import pytest

from headwater.broker.services.storage import StartupError, Storage
from headwater.config import BrokerConfig
from open_descriptors import open_below


def config(*dirs: Path) -> BrokerConfig:
    return BrokerConfig.from_values({"log.dirs": ",".join(map(str, dirs))})


def test_a_refused_start_leaves_no_file_open(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    storage = Storage(config(first, second))
    storage.store.close()
    storage.log_dirs.close()
    for _ in range(5):
        with pytest.raises(StartupError, match="leaves out a dir of this broker"):
            Storage(config(first))
    assert open_below(tmp_path) == 0
    again = Storage(config(second, first))
    again.store.close()
    again.log_dirs.close()
