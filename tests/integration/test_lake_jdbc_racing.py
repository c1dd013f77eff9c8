"""Every committed row is loaded once, while transactions commit in any order and two loads race for it."""

import itertools
import random
import threading
from functools import partial
from typing import Any

import pytest

from background import in_background
from headwater.lake import Lake
from peers.postgresql import Postgresql
from peers.postgresql import postgresql as postgresql
from peers.spark import lake as lake
from peers.spark import pyspark_leaves_sockets

pytestmark = pyspark_leaves_sockets

WRITERS = 4
LOADS = 3


@pytest.mark.parametrize("track", ["id", "timestamp"])
def test_no_row_is_missed_or_loaded_twice(lake: Lake, postgresql: Postgresql, track: str) -> None:
    database = postgresql.new_database()
    options: dict[str, Any] = {"track": track, "tasks": 2}
    if track == "timestamp":
        # Times are drawn by the INSERT itself, as numbers are: open transactions are seen, so no lag is needed.
        options |= {"column": "at", "lag_s": 0}
    with postgresql.connect(database) as connection:
        connection.execute("create table t (id bigserial primary key, at timestamptz default clock_timestamp(), w int)")
    stopped = threading.Event()

    def write(number: int) -> None:
        chance = random.Random(number)
        with postgresql.connect(database, autocommit=False) as connection:
            for turn in itertools.count():
                if stopped.is_set():
                    return
                for _ in range(chance.randint(1, 3)):
                    connection.execute("insert into t (w) values (%s)", (number,))
                    stopped.wait(chance.choice((0, 0, 0.02, 0.2)))
                connection.commit() if turn % 5 else connection.rollback()

    def load(times: int) -> None:
        for _ in range(times):
            lake.load(postgresql.jdbc(database, "t"), into=f"r.{track}", source_options=options)

    try:
        writers = [in_background(partial(write, number)) for number in range(WRITERS)]
        loads = [in_background(partial(load, LOADS)) for _ in range(2)]
        for each in loads:
            each.result()
    finally:
        stopped.set()
    for writer in writers:
        writer.result()
    load(1)
    with postgresql.connect(database) as connection:
        (wanted,) = connection.execute("select count(*), sum(id)::bigint from t").fetchall()
        (gaps,) = connection.execute("select max(id) - count(*) from t").fetchall()
    found = lake.sql(f"select count(*) n, sum(id) s, count(distinct id) d from r.{track}").to_pylist()
    assert found == [{"n": wanted[0], "s": wanted[1], "d": wanted[0]}]
    assert gaps[0] > 0, "some transactions were rolled back"
