"""A column that cannot hold what comes is rewritten as string, if one asks for it: one commit, and nothing is lost."""

import json
from pathlib import Path
from typing import Any

import pytest

from headwater.lake import Lake, LakeUsageError
from headwater.lake.load.request import LoadReport
from headwater.lake.operations.snapshots import table_history
from headwater.lake.shapes import Policies
from peers.spark import lake as lake
from peers.spark import pyspark_leaves_sockets

pytestmark = pyspark_leaves_sockets

REWRITE = Policies(default="string", rewrite=True)


class Folder:
    """A folder of JSON files that is loaded into a table."""

    def __init__(self, lake: Lake, place: Path, table: str) -> None:
        self._lake = lake
        self._place = place
        self._table = table
        place.mkdir()

    @property
    def source(self) -> str:
        """Its id in the ledger."""
        return f"files:{self._place.as_uri()}"

    def load(self, *records: Any, **how: Any) -> LoadReport:
        """Loads a new file with these records."""
        number = len(list(self._place.iterdir()))
        (self._place / f"{number}.json").write_text("".join(json.dumps(record) + "\n" for record in records))
        return self._lake.load(f"files:{self._place}", into=self._table, **how)

    @property
    def position(self) -> Any:
        """How far it is loaded."""
        return self._lake.catalog.position(self._table, self.source)


def rows(lake: Lake, statement: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in lake.sql(statement).to_pylist()]


def test_values_become_the_texts_that_json_has(lake: Lake, tmp_path: Path) -> None:
    folder = Folder(lake, tmp_path / "texts", "shop.texts")
    first = {
        "id": 1,
        "whole": 5,
        "yes": True,
        "half": 1.5,
        "at": "2026-01-31T12:00:00.25Z",
        "day": "2026-01-31",
        "object": {"k": 1},
        "inside": {"b": 7, "c": "x"},
        "items": [{"p": 1}, {"p": None}, None],
        "nothing": 3,
    }
    folder.load(first, {"id": 2, "nothing": None})
    later = {
        "whole": "a lot",
        "yes": "maybe",
        "half": "some",
        "at": "soon",
        "day": "never",
        "object": "none",
        "inside": {"b": "seven"},
        "items": [{"p": "free"}],
        "nothing": "much",
    }
    plan = folder.load({"id": 3, **later}, policies=REWRITE, plan_only=True).plan
    assert plan is not None
    rewritten = [change.path for change in plan.changes if change.kind == "rewrite"]
    assert rewritten == ["whole", "yes", "half", "at", "day", "object", "inside.b", "items[].p", "nothing"]
    assert len(lake.catalog.loads("shop.texts")) == 1, "a plan changes nothing"

    report = folder.load(policies=REWRITE)
    assert (report.counts.rows, report.counts.rescued, report.attempts) == (1, 0, 1)
    columns = "id, whole, yes, half, at, day, object, inside.b, inside.c, items.p, nothing"
    assert rows(lake, f"select {columns} from shop.texts order by id") == [
        (1, "5", "true", "1.5", "2026-01-31T12:00:00.25Z", "2026-01-31", '{"k":1}', "7", "x", ["1", None, None], "3"),
        (2, *[None] * 10),
        (3, *["a lot", "maybe", "some", "soon", "never", "none", "seven", None], ["free"], "much"),
    ]


def test_all_else_stays_as_it_is(lake: Lake, tmp_path: Path) -> None:
    folder, other = Folder(lake, tmp_path / "kept", "shop.kept"), Folder(lake, tmp_path / "other", "shop.kept")
    how: dict[str, Any] = {"partition_by": ("bucket(4, id)",), "sort_by": ("id",), "target_file_bytes": 1 << 20}
    other.load({"id": 7, "n": 70}, **how)
    folder.load(*({"id": number, "n": number, "tags": ["a"]} for number in range(3)), **how)
    folder.load({"id": 3, "n": "rescued"}, **how)
    before, position = lake.catalog.table_state("shop.kept"), other.position
    assert before is not None

    folder.load({"id": 4, "n": "four"}, policies=REWRITE, **how)

    after = lake.catalog.table_state("shop.kept")
    assert after is not None
    for same in ("uuid", "location", "partition_spec", "sort_order", "properties"):
        assert getattr(after, same) == getattr(before, same), same
    assert after.schema.names == before.schema.names
    assert other.position == position
    assert other.load(policies=REWRITE).news == "nothing new"
    assert rows(lake, "select id, n, tags, _rescued['n'] from shop.kept order by id") == [
        *((number, str(number), ["a"], None) for number in range(3)),
        (3, None, None, '"rescued"'),
        (4, "four", None, None),
        (7, "70", None, None),
    ]
    load, rewrite, *_ = [each for each in lake.catalog.loads("shop.kept", folder.source) if each.state == "committed"]
    assert (load.mode, rewrite.mode, rewrite.rows) == ("append", "rewrite", 5)
    assert [
        (change.path, change.old_type, change.new_type, change.load_id)
        for change in lake.history("shop.kept")
        if change.kind == "rewrite"
    ] == [("n", "long", "string", rewrite.load_id)]
    parents = {each.snapshot_id: each.parent_id for each in table_history(lake.spark, "shop.kept").snapshots}
    assert parents[rewrite.snapshot_id or 0] == before.snapshot_id, "one commit"
    old = f"select sum(n), count(*) from shop.kept version as of {before.snapshot_id}"
    assert rows(lake, old) == [(73, 5)], "what it was before can be read as before"

    assert lake.replay_rescued("shop.kept").values == 1
    assert rows(lake, "select n, _rescued from shop.kept where id = 3") == [("rescued", None)]


def test_a_commit_that_comes_between_is_not_lost(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(lake, tmp_path / "between", "shop.between")
    folder.load({"id": 1, "n": 1})
    begin, others = lake.catalog.begin_load, ["insert into shop.between (id, n) values (2, 2)"]
    others.append("alter table shop.between add column more string")

    def begin_after_another(**load: Any) -> str:
        load_id = begin(**load)
        if load["mode"] == "rewrite" and others:
            lake.spark.sql(others.pop())
        return load_id

    monkeypatch.setattr(lake.catalog, "begin_load", begin_after_another)
    report = folder.load({"id": 3, "n": "three"}, policies=REWRITE)
    assert report.attempts == 3
    assert rows(lake, "select id, n, more from shop.between order by id") == [
        (1, "1", None),
        (2, "2", None),
        (3, "three", None),
    ]
    states = [(load.mode, load.state) for load in lake.catalog.loads("shop.between")]
    assert states[:4] == [
        ("append", "committed"),
        ("rewrite", "committed"),
        ("rewrite", "failed"),
        ("rewrite", "failed"),
    ]


@pytest.mark.parametrize("moment", ["begin_load", "evolve"])
def test_a_load_under_way_begins_again(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Its files would have numbers where the table has texts now. It has planned already, or also made its columns."""
    table = f"shop.under_way_{moment}"
    folder, other = Folder(lake, tmp_path / "mine", table), Folder(lake, tmp_path / "other", table)
    folder.load({"id": 1, "n": 1})
    real = getattr(lake.catalog, moment)

    def after_the_other(*given: Any, **named: Any) -> Any:
        monkeypatch.undo()
        if moment == "begin_load":
            other.load({"id": 2, "n": "two"}, policies=REWRITE)
            return real(*given, **named)
        answer = real(*given, **named)
        other.load({"id": 2, "n": "two"}, policies=REWRITE)
        return answer

    monkeypatch.setattr(lake.catalog, moment, after_the_other)
    report = folder.load({"id": 3, "n": 3}, policies=Policies(default="string"))
    assert report.attempts == 2
    assert rows(lake, f"select id, n from {table} order by id") == [(1, "1"), (2, "two"), (3, "3")]


def test_a_column_that_makes_the_partitions_is_left_alone(lake: Lake, tmp_path: Path) -> None:
    folder = Folder(lake, tmp_path / "days", "shop.days")
    folder.load({"id": 1, "at": "2026-01-31T12:00:00Z"}, partition_by=("day(at)",))
    before = lake.catalog.table_state("shop.days")
    with pytest.raises(LakeUsageError, match="partitioned"):
        folder.load({"id": 2, "at": "soon"}, policies=REWRITE, partition_by=())
    assert lake.catalog.table_state("shop.days") == before
