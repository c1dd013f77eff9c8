"""What `headwater lake crawl`, `maintain` and `replay-rescued` print, and what they refuse."""

import json
from pathlib import Path

from typer.testing import CliRunner

from headwater.cli.lake import app
from headwater.cli.lake_maintain import maintenance_json, maintenance_rows
from headwater.cli.lake_replay import replay_json, replay_line
from headwater.lake import Lake
from headwater.lake.lake_file import read_lake_file
from headwater.lake.operations.maintenance import MaintenanceReport, StepReport
from headwater.lake.operations.replaying import ReplayReport
from headwater.lake.operations.snapshots import Figures


def folder_with_data(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "orders.json").write_text('{"id": 1}\n')
    return tmp_path / "in"


def crawl(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["crawl", *map(str, arguments)])
    return result.exit_code, result.output


def test_a_proposal_is_printed_or_written_and_never_over_a_file(tmp_path: Path) -> None:
    data, out = folder_with_data(tmp_path), tmp_path / "lake.toml"
    code, text = crawl(data)
    assert code == 0
    assert crawl(data, "--out", out) == (0, f"{out}: 1 load proposed\n")
    assert out.read_text() == text
    assert [job.label for job in read_lake_file(out).jobs] == ["in.in"]
    out.write_text("mine")
    code, words = crawl(data, "--out", out)
    assert (code, out.read_text()) == (1, "mine")
    assert "--force" in words
    assert crawl(data, "--out", out, "--force")[0] == 0
    assert out.read_text() == text


def test_a_proposal_for_machines(tmp_path: Path) -> None:
    data = folder_with_data(tmp_path)
    code, text = crawl(data, "--json")
    (load,) = json.loads(text)["loads"]
    assert (code, load["source"], load["into"], load["mode"]) == (0, f"files:{data}", "in.in", "append")


def test_a_place_that_is_none_is_a_usage_error(tmp_path: Path) -> None:
    code, words = crawl(tmp_path / "nowhere")
    assert code == 2
    assert "is no folder, no jdbc: URL and no HOST:PORT" in words


def test_care_for_what_may_be_in_use_is_refused(tmp_path: Path) -> None:
    with Lake(tmp_path):
        pass
    result = CliRunner().invoke(app, ["maintain", "--orphans-older-than", "1h", "--warehouse", str(tmp_path)])
    assert result.exit_code == 2
    assert "younger than a day" in result.output


def test_maintenance_tells_what_was_and_what_is() -> None:
    before = Figures(data_files=10, delete_files=1, bytes=20_480, manifests=10, snapshots=9)
    after = Figures(data_files=1, delete_files=0, bytes=2_048, manifests=11, snapshots=10)
    step = StepReport(step="compact", touched=10, before=before, after=after)
    report = MaintenanceReport(table="shop.orders", steps=[step], seconds=1.5)
    (row,) = maintenance_rows(report)
    assert row == [
        *("shop.orders", "compact", "10 files rewritten", "10 → 1", "1 → 0", "20.0 KiB → 2.0 KiB", "10 → 11", "9 → 10")
    ]
    (row,) = maintenance_rows(MaintenanceReport(table="shop.orders", steps=[step], seconds=1.5, dry_run=True))
    assert row[2] == "10 files to be rewritten"
    assert maintenance_json(report)["steps"][0]["after"]["data_files"] == 1


def test_a_replay_is_told_in_a_line() -> None:
    report = ReplayReport(table="shop.orders", values=2, records=1, left_values=0, left_records=1, snapshot_id=7)
    words = "2 values and 1 record put into columns; 0 values and 1 record still do not fit"
    assert replay_line(report) == f"shop.orders: {words}"
    assert replay_json(report)["values"] == 2
    nothing = ReplayReport(table="shop.orders", values=0, records=0, left_values=3, left_records=0)
    assert replay_line(nothing) == "shop.orders: nothing to replay; 3 values and 0 records still do not fit"
