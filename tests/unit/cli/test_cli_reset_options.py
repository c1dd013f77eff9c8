"""Options of reset-offsets, transactions and groups that make no sense are told apart before anything is asked."""

from pathlib import Path

import pytest

from headwater.cli.commands import app

RESET = ["groups", "reset-offsets", "billing"]
ABORT = ["transactions", "abort", "--topic", "orders", "--partition", "0"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([*RESET, "--all-topics"], "--to-earliest"),
        ([*RESET, "--all-topics", "--to-earliest", "--to-latest"], "say once where to"),
        ([*RESET, "--to-earliest"], "--all-topics"),
        ([*RESET, "--to-earliest", "--all-topics", "--topic", "orders"], "either"),
        ([*RESET, "--to-earliest", "--topic", "orders:x"], "TOPIC:PARTITION"),
        ([*RESET, "--to-offset", "-1", "--all-topics"], "--to-offset"),
        ([*RESET, "--to-datetime", "noon", "--all-topics"], "noon"),
        ([*RESET, "--by-duration", "1h", "--all-topics"], "PT30M"),
        ([*RESET, "--from-file", "/no/such/file"], "/no/such/file"),
        ([*RESET, "--to-latest", "--all-topics", "--export", "--json"], "choose one"),
        (["groups", "describe"], "--all"),
        (["groups", "describe", "billing", "--all"], "--all"),
        (["groups", "list", "--state", "asleep"], "stable"),
        (["groups", "delete", "billing"], "--yes"),
        (ABORT, "--start-offset"),
        ([*ABORT, "--start-offset", "1", "--producer-id", "1"], "--start-offset"),
        ([*ABORT, "--producer-id", "1", "--producer-epoch", "0"], "--coordinator-epoch"),
        (["transactions", "find-hanging", "--partition", "0"], "--topic"),
        (["transactions", "list", "--state", "asleep"], "ongoing"),
    ],
)
def test_wrong_use_is_exit_code_2_with_a_hint(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        app([*arguments, "--bootstrap", "127.0.0.1:1"], prog_name="headwater")
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out) == (2, "")
    assert says in printed.err


def test_a_plan_with_a_bad_line_names_the_file_and_the_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "plan.csv"
    plan.write_text("orders,0,1\norders,one,1\n")
    with pytest.raises(SystemExit) as ended:
        app([*RESET, "--from-file", str(plan), "--bootstrap", "127.0.0.1:1"], prog_name="headwater")
    assert ended.value.code == 2
    printed = " ".join(capsys.readouterr().err.split())
    assert "plan.csv: line 2 is not TOPIC,PARTITION,OFFSET" in printed
