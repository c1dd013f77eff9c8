"""What others have named or written does nothing to the terminal, and cannot look like a line of ours."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.cli.commands import run_command
from headwater.cli.output import complain, for_terminal, print_fields, print_json, print_table, say
from headwater.client.errors import RefusedError
from headwater.protocol.errors import ErrorCode
from headwater.terminal_text import PrintableFormatter, printable
from unit.log.building import append, batch, open_log

EVIL = "a\x1b]0;owned\x07\x9b2J\r\nheadwater: all is well\u202e\ud800"
SAFE = r"a\x1b]0;owned\x07\x9b2J\r\nheadwater: all is well\u202e\ud800"


def test_plain_text_of_all_languages_stays_as_it_is() -> None:
    for text in ("orders", "Zürich", "日本", "\N{NO-BREAK SPACE}", "👩\N{ZERO WIDTH JOINER}🚀", "back\\slash"):
        assert printable(text) == text


def test_nothing_printed_holds_a_control_character(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"Deleted group {EVIL}.")
    print_table(["Group"], [[EVIL]])
    print_fields({"Group": EVIL})
    complain(EVIL.replace("\n", ""))
    print_json({"group": EVIL[:-1]})
    out, err = capsys.readouterr()
    for line in (*out.splitlines(), *err.splitlines()):
        assert line.isprintable(), line
    assert out.startswith(f"Deleted group {SAFE}.\nGroup\n{SAFE}\nGroup  {SAFE}\n")
    assert json.loads(out.partition("{")[1] + out.partition("{")[2]) == {"group": EVIL[:-1]}


def test_a_complaint_about_an_argument_obeys_nothing_in_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["headwater", "produce", "orders", "/no/\x1b]0;owned\x07"])
    with pytest.raises(SystemExit):
        run_command()
    complaint = capsys.readouterr().err
    assert r"/no/\x1b]0;owned\x07" in complaint
    assert "\x1b" not in complaint


def test_a_ruled_table_is_as_safe(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "200")
    print_table(["Group"], [[EVIL]])
    assert SAFE in capsys.readouterr().out
    assert for_terminal("a\x1b\n") == "a\\x1b\n"


def test_the_words_of_a_broker_are_escaped_in_the_errors_of_clients() -> None:
    assert str(RefusedError("topic x", ErrorCode.policy_violation, EVIL)) == f"topic x: {SAFE}"


def test_a_log_line_is_one_line_and_a_traceback_keeps_its_own() -> None:
    try:
        raise ValueError(EVIL)
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "f", 1, "client %s", (EVIL,), sys.exc_info())
    first, *traceback = PrintableFormatter("%(levelname)s: %(message)s").format(record).split("\n")
    assert first == f"ERROR: client {SAFE}"
    assert traceback[0].startswith("Traceback")
    assert traceback[-1] == "headwater: all is well\\u202e\\ud800"
    assert all(line.isprintable() for line in traceback)


def test_a_dump_is_escaped_on_a_terminal_and_as_it_is_in_a_pipe(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch([b"\x1b[2J\nbaseOffset: 7"]))
    log.close()
    command = [
        str(Path(sys.executable).with_name("headwater")),
        "log",
        "dump",
        "--print-data-log",
        log.segments[0].path,
    ]
    piped = subprocess.run(command, capture_output=True, check=True).stdout
    assert b"payload: \x1b[2J\nbaseOffset: 7" in piped
    ours, theirs = os.openpty()
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    try:
        while data := os.read(ours, 65536):
            shown += data
    except OSError:
        pass  # how Linux tells that the other end is closed
    finally:
        os.close(ours)
    assert process.wait() == 0
    assert rb"payload: \x1b[2J\nbaseOffset: 7" in shown
    assert b"\x1b" not in shown
