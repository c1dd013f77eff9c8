"""What becomes of a lake, and of the program around it, when its Spark ends."""

import signal
from pathlib import Path

import pytest

from headwater.lake import LakeError
from peers.spark import end_java, pyspark_leaves_sockets, quick_spark, running_lake

pytestmark = pyspark_leaves_sockets


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "arrived").mkdir()
    (tmp_path / "arrived" / "a.json").write_text('{"id": 1}\n')
    return tmp_path


def test_the_next_lake_starts_a_spark_where_one_has_died(folder: Path) -> None:
    source = f"files:{folder / 'arrived'}"
    with running_lake(folder, quick_spark()) as lake:
        assert lake.load(source, into="shop.orders").counts.rows == 1
        (folder / "arrived" / "b.json").write_text('{"id": 2}\n')
        end_java()
        with pytest.raises(LakeError, match="Spark has ended; its last words are in"):
            lake.load(source, into="shop.orders")
    with running_lake(folder, quick_spark()) as lake:
        assert lake.load(source, into="shop.orders").counts.rows == 1
        assert lake.sql("select sum(id) from shop.orders").to_pylist() == [{"sum(id)": 3}]


def test_ctrl_c_is_the_programs_own_again_when_the_lake_is_closed(folder: Path) -> None:
    with running_lake(folder, quick_spark()) as lake:
        lake.sql("select 1")
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
