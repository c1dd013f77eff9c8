"""What becomes of a lake, and of the program around it, when its Spark ends."""

import signal
from dataclasses import replace
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


def test_what_java_took_at_its_start_cannot_be_changed_by_a_later_lake(folder: Path) -> None:
    quick = quick_spark()
    with running_lake(folder, quick) as lake:
        lake.sql("select 1")
        # Another lake that is open at the same time would share the session, and with it the catalog.
        with (
            running_lake(folder / "other", quick) as other,
            pytest.raises(LakeError, match="another lake has its Spark in this process"),
        ):
            other.sql("select 1")
        with (
            running_lake(folder, replace(quick, master="local[1]"), catalog=lake.uri, token=lake.token) as elsewhere,
            pytest.raises(LakeError, match=r"on local\[2\] already and cannot work on local\[1\] too"),
        ):
            elsewhere.sql("select 1")
        assert lake.sql("select 1 as one").to_pylist() == [{"one": 1}]
    larger = replace(quick, conf={**quick.conf, "spark.driver.memory": "1536m"})
    with (
        running_lake(folder, larger) as lake,
        pytest.raises(LakeError, match=r"spark.driver.memory is 1g and cannot become 1536m. Give the first lake"),
    ):
        lake.sql("select 1")
    with running_lake(folder, quick) as lake:
        assert lake.sql("select 1 as one").to_pylist() == [{"one": 1}]
