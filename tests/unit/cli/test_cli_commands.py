"""Commands load when they are called and not before."""

import io
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.catalog.server import EmbeddedCatalog
from headwater.cli.commands import COMMANDS, app

HEADWATER = Path(sys.executable).with_name("headwater")


def loaded_modules(*arguments: str) -> set[str]:
    """What is imported by the time the command line has done its work."""
    script = (
        "import sys, atexit\n"
        "atexit.register(lambda: print(*sys.modules, sep='\\n'))\n"
        f"sys.argv = ['headwater', *{arguments!r}]\n"
        "from headwater.cli.main import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    return set(done.stdout.split())


def test_starting_a_broker_loads_neither_typer_nor_rich_nor_the_client(tmp_path: Path) -> None:
    locked = tmp_path / "file"
    locked.write_text("")  # a data dir that cannot be one, so that the broker refuses and ends
    modules = loaded_modules("up", "--port", "0", "--data", str(locked))
    assert "headwater.broker.app" in modules
    assert not {name for name in modules if name.split(".")[0] in ("typer", "click", "rich", "pydantic", "hypothesis")}
    assert not {name for name in modules if name.startswith("headwater.client")}


def test_a_command_loads_no_other() -> None:
    modules = loaded_modules("version")
    others = set(COMMANDS.values()) - {COMMANDS["version"]}
    assert not modules & others
    assert "headwater.client" not in modules


def test_a_lake_whose_catalog_is_elsewhere_needs_neither_its_server_nor_spark(tmp_path: Path) -> None:
    with EmbeddedCatalog(str(tmp_path / "catalog.db"), str(tmp_path)) as catalog:
        modules = loaded_modules("lake", "status", "--catalog", catalog.uri)
    assert "headwater.lake.operations.status" in modules
    assert not {name.split(".")[0] for name in modules} & {"pyspark", "pyiceberg", "sqlalchemy", "fastapi", "uvicorn"}


def test_a_lake_that_is_not_there_is_told_without_what_opens_one(tmp_path: Path) -> None:
    modules = loaded_modules("lake", "status", "--warehouse", str(tmp_path))
    assert "headwater.lake.lake" in modules
    assert not {name.split(".")[0] for name in modules} & {"pyspark", "pyiceberg", "sqlalchemy", "fastapi", "uvicorn"}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_in_plain_text_when_piped(command: str) -> None:
    done = subprocess.run([HEADWATER, command, "--help"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith(f"Usage: headwater {command}")
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["topics", "lst"], "list"),
        (["topics", "create"], "NAME"),
        (["up", "--prot", "1"], "--port"),
        (["topics", "list", "--bootstrap", "host:port"], "HOST:PORT"),
        (["produce", "t", "--compression", "rar"], "zstd"),
        (["produce", "t", "/no/such/file"], "/no/such/file"),
        (["consume", "t", "--offset", "somewhere"], "earliest"),
        (["consume", "t", "--format", "%x"], "%x"),
        (["consume", "t", "--json", "--print-key"], "choose one"),
        (["offsets", "t:x"], "TOPIC:PARTITION"),
        (["offsets", "t", "--time", "noon"], "noon"),
        (["delete-records", "t:0"], "TOPIC:PARTITION:OFFSET"),
        (["delete-records"], "nothing to delete"),
        (["configs", "alter", "topics", "t"], "--set"),
        (["topics", "delete", "t"], "--yes"),
    ],
)
def test_wrong_use_is_exit_code_2_with_a_hint(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with pytest.raises(SystemExit) as ended:
        app(arguments, prog_name="headwater")
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out) == (2, "")
    assert says in printed.err


def test_completion_knows_commands_and_options() -> None:
    def completed(words: str) -> list[str]:
        environment = {
            "_HEADWATER_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split())),
        }
        if not words.endswith(" "):
            environment["COMP_CWORD"] = str(len(words.split()) - 1)
        done = subprocess.run([HEADWATER], env=environment, capture_output=True, text=True, timeout=60, check=False)
        return done.stdout.split()

    assert completed("headwater to") == ["topics"]
    assert completed("headwater topics de") == ["describe", "delete"]
    assert completed("headwater up --po") == ["--port"]
