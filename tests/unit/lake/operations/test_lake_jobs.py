"""A lake.toml is checked before anything runs, and an error names the place and the right name."""

from pathlib import Path

import pytest

from headwater.lake.errors import LakeUsageError
from headwater.lake.jobs import LakeFile, chosen
from headwater.lake.lake_file import parse_lake_file, read_lake_file
from headwater.lake.shapes import Policies

FOLDER = Path("/srv/shop")

WHOLE = """
[lake]
warehouse = "lake"
catalog = "http://localhost:8181"
master = "local[4]"
bootstrap = "broker:9092"
conf = { "spark.driver.memory" = "2g", "spark.speculation" = true, "spark.task.cpus" = 1 }

[[load]]
source = "topic:orders"
into = "shop.orders"
name = "orders"
mode = "dedup"
key = ["id", "shop"]
newest_by = "changed"
window = "7d"
event_time = "at"
partition_by = ["day(at)", "shop"]
sort_by = "id"
target_file_size = "64MiB"
on_conflict = ["string", "price=columns"]
rewrite = true
options = { starting = "latest" }

[[load]]
source = "files:incoming"
into = "shop.visits"
bootstrap = "other:9092"
partition_by = "none"
"""


def parse(text: str) -> LakeFile:
    return parse_lake_file(text, folder=FOLDER)


def load_with(line: str) -> str:
    return f'[[load]]\nsource = "topic:orders"\ninto = "shop.orders"\n{line}\n'


def test_every_option_of_a_load_can_be_written_in_the_file() -> None:
    job = parse(WHOLE).jobs[0]
    request = job.request
    assert (job.source, job.name, job.bootstrap, job.source_options) == (
        "topic:orders",
        "orders",
        "broker:9092",
        {"starting": "latest"},
    )
    assert (request.table, request.mode, request.key) == ("shop.orders", "dedup", ("id", "shop"))
    assert (request.newest_by, request.window_s, request.event_time) == ("changed", 7 * 86400, "at")
    assert (request.partition_by, request.sort_by) == (("day(at)", "shop"), ("id",))
    assert request.target_file_bytes == 64 << 20
    assert request.policies == Policies(default="string", fields={"price": "columns"}, rewrite=True)


def test_what_cannot_be_read_may_be_skipped() -> None:
    skipping = load_with('skip_corrupt = true\noptions = { starting = "latest" }')
    assert parse(skipping).jobs[0].source_options == {"starting": "latest", "corrupt_records": "skip"}
    assert parse(load_with("skip_corrupt = false")).jobs[0].source_options == {}
    with pytest.raises(LakeUsageError, match="corrupt_records"):
        parse(load_with("skip_corrupt = true").replace("topic:orders", "files:in"))


def test_the_lake_of_the_file_is_told_too_and_loads_inherit_its_brokers_unless_they_name_others() -> None:
    lake = parse(WHOLE)
    assert (lake.catalog, lake.master) == ("http://localhost:8181", "local[4]")
    assert lake.conf == {"spark.driver.memory": "2g", "spark.speculation": "true", "spark.task.cpus": "1"}
    assert [job.bootstrap for job in lake.jobs] == ["broker:9092", "other:9092"]
    assert lake.jobs[1].request.partition_by == ()


def test_paths_are_relative_to_the_folder_of_the_file_and_urls_are_not() -> None:
    lake = parse(WHOLE)
    assert (lake.warehouse, lake.jobs[1].source) == ("/srv/shop/lake", "files:/srv/shop/incoming")
    away = parse(
        '[lake]\nwarehouse = "s3://b/w"\ncatalog = "sqlite:///c.db"\n'
        + load_with("").replace("topic:orders", "files:s3://b/in")
    )
    assert (away.warehouse, away.jobs[0].source) == ("s3://b/w", "files:s3://b/in")
    assert away.catalog == "sqlite:////srv/shop/c.db"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (load_with('modes = "append"'), "[[load]] 1 (shop.orders) has no key 'modes'; did you mean mode?"),
        (load_with('newest-by = "x"'), "did you mean newest_by?"),
        (load_with('colour = "red"'), "its keys are source, into"),
        (load_with("key = 5"), "[[load]] 1 (shop.orders): key must be a text or a list of texts, not 5"),
        (load_with('key = ["a", 1]'), "key must be a text or a list of texts"),
        (load_with('rewrite = "yes"'), "rewrite must be true or false, not 'yes'"),
        (load_with('mode = "upsrt"'), "[[load]] 1 (shop.orders): mode: 'upsrt' is no mode"),
        (load_with('mode = "upsrt"'), "did you mean upsert?"),
        (load_with('window = "a week"'), "window: 'a week' is no time: write 30s, 5m, 12h or 7d"),
        (load_with('target_file_size = "big"'), "target_file_size: 'big' is no size"),
        (load_with('on_conflict = "strings"'), "[[load]] 1 (shop.orders): 'strings' is no policy"),
        (load_with('options = ["a"]'), "options must be a table of names and plain values"),
        (load_with('options = { startng = "latest" }'), "(shop.orders): topics have no option 'startng'; did you mean"),
        ('[[load]]\nsource = "topik:a"\ninto = "a.b"', "[[load]] 1 (a.b): 'topik:a' is no source"),
        ('[[load]]\ninto = "a.b"', '[[load]] 1 (a.b) has no source: add source = "topic:orders"'),
        ('[[load]]\nsource = "topic:a"', '[[load]] 1 has no into: add into = "shop.orders"'),
        ('[[load]]\nsource = "topic:a"\ninto = "b"', "into = 'b' is not the name of a table"),
        ('[load]\nsource = "topic:a"', "[[load]], with two brackets"),
        ("[lake]\n", "there is no [[load]] in it"),
        ('[[loads]]\nsource = "a"', "there is no [loads]; did you mean load?"),
        ('[lake]\nwarehous = "x"\n' + load_with(""), "[lake] has no key 'warehous'; did you mean warehouse?"),
        (load_with("") + load_with('mode = "append"'), "[[load]] 1 and 2 both load topic:orders into shop.orders"),
        ("[[load]\n", "this is no TOML"),
    ],
)
def test_a_mistake_is_told_with_its_place_and_the_right_name(text: str, words: str) -> None:
    with pytest.raises(LakeUsageError) as raised:
        parse(text)
    assert words in str(raised.value)


def test_errors_begin_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "lake.toml"
    with pytest.raises(LakeUsageError, match="there is no file"):
        read_lake_file(path)
    path.write_text(load_with("key = 5"))
    with pytest.raises(LakeUsageError) as raised:
        read_lake_file(path)
    assert str(raised.value).startswith(f"{path}: [[load]] 1")


def test_only_some_loads_are_chosen_by_name_or_table() -> None:
    jobs = parse(WHOLE).jobs
    assert chosen(jobs, []) == jobs
    assert chosen(jobs, ["orders"]) == chosen(jobs, ["shop.orders"]) == jobs[:1]
    with pytest.raises(LakeUsageError, match="no load is called 'order'; did you mean orders"):
        chosen(jobs, ["order"])
