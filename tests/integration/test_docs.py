"""What the docs show is true: their Python runs, their commands run, and print what is printed there."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from .cli_runner import HEADWATER, Cli

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
TESTING = ROOT / "docs" / "testing.md"
ARROW = ROOT / "docs" / "arrow.md"
ADMIN = ROOT / "docs" / "admin.md"
CLI = ROOT / "docs" / "cli.md"
CONFIGURATION = ROOT / "docs" / "configuration.md"
NOWHERE = Cli("127.0.0.1:1")

# What is another at every run. Columns move with it, so runs of blanks count as one.
VOLATILE = (
    (r"\x1b\[[0-9;]*m", ""),
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r"(?<![\w-])[\w-]{22}(?![\w-])", "ID"),
    (r"(?<=data in )\S+", "FOLDER"),
    (r"(?<=\s)/\S+", "FOLDER"),
    (r"\b[\d.,]+(?= (ms|records/s|MiB/s)\b)|(?<= in )[\d.]+(?= s\b)", "FIGURE"),
    (r"\b\d+(\.\d+)? [KMGT]?i?B\b", "SIZE"),
    (r"\b1[6-9]\d{11}\b", "TIME"),
    (r"(?<=\"seconds\": )[\d.e-]+", "SECONDS"),
    (r"\(Python [\d.]+\)", "(PYTHON)"),
    (r"[ \t]+", " "),
    (r" $", ""),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block of a document, the heading it stands under, and the comment before it."""

    heading: str
    comment: str
    language: str
    text: str


def blocks(document: Path) -> list[Block]:
    pattern = re.compile(r"^(?:<!-- (?P<comment>[^\n]*) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S)
    text = document.read_text("utf-8")
    headings = [(0, ""), *((found.start(), found[1]) for found in re.finditer(r"^##+ (.*)$", text, re.M))]
    return [
        Block(
            heading=max(heading for heading in headings if heading[0] <= found.start())[1],
            comment=found["comment"] or "",
            language=found["language"],
            text=found["text"],
        )
        for found in pattern.finditer(text)
    ]


def sections_with_python() -> list[object]:
    return [
        pytest.param(document, heading, id=f"{document.stem}: {heading}")
        for document in (README, TESTING, ARROW, ADMIN)
        for heading in dict.fromkeys(block.heading for block in blocks(document) if block.language == "python")
    ]


@pytest.mark.parametrize(("document", "heading"), sections_with_python())
def test_the_python_of_a_section_runs(document: Path, heading: str, tmp_path: Path) -> None:
    """A block that names its file in its first line is that file; files named test_ are run by pytest."""
    scripts = []
    for number, block in enumerate(blocks(document)):
        if (block.language, block.heading) != ("python", heading):
            continue
        named = re.match(r"# (\w+\.py)\n", block.text)
        file = tmp_path / (named[1] if named else f"script_{number}.py")
        file.write_text(block.text, "utf-8")
        if not named:
            scripts.append(file.name)
    commands = [[sys.executable, script] for script in scripts]
    if list(tmp_path.glob("test_*.py")):
        commands.append([sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "."])
    assert commands
    for command in commands:
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=90, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def broker(folder: Path) -> Iterator[str]:
    with NOWHERE.started("up", "--port", "0", "--data", str(folder)) as up:
        yield address_in(up.line())


def address_in(ready_line: str) -> str:
    return ready_line.removeprefix("headwater is ready at ").partition(",")[0]


def run_shell(script: str, bootstrap: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a script with the venv's commands, aimed at `bootstrap` instead of the default address."""
    environment = Cli(bootstrap).environment() | {
        "PATH": f"{Path(HEADWATER).parent}{os.pathsep}{os.environ['PATH']}",
    }
    return subprocess.run(
        ["sh", "-euc", script.replace("localhost:9092", bootstrap)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def test_the_shell_examples_of_the_readme_run(tmp_path: Path) -> None:
    shown = [block for block in blocks(README) if block.language == "sh"]
    assert "headwater up" in shown[1].text, "the broker that the examples need is not mentioned before them"
    runnable = [block for block in shown if block.comment.startswith("runs")]
    assert runnable
    outputs = []
    with broker(tmp_path / "data") as bootstrap:
        for block in runnable:
            if "kcat" in block.text and not shutil.which("kcat"):
                continue
            done = run_shell(block.text, bootstrap, tmp_path)
            assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
            outputs.append(done.stdout)
    assert "ann\tsix bottles" in outputs[0]
    assert all("two crates" in output for output in outputs[1:])


def test_every_command_has_an_example() -> None:
    from headwater.cli.commands import COMMANDS

    commands = [command for block in blocks(CLI) for command, _ in examples(block.text)]
    assert [name for name in COMMANDS if not any(f"headwater {name}" in command for command in commands)] == []


def examples(text: str) -> Iterator[tuple[str, str]]:
    """Each `$ command` of a console block, with the output that follows it."""
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def masked(text: str) -> str:
    for pattern, mask in VOLATILE:
        text = re.sub(pattern, mask, text, flags=re.M)
    return text.strip()


@pytest.mark.parametrize("document", [CLI, CONFIGURATION], ids=lambda path: path.name)
def test_commands_print_what_the_docs_say(document: Path, tmp_path: Path) -> None:
    """Each document has a broker of its own, which its first `headwater up` stands for."""
    with NOWHERE.started("up", "--port", "0", "--data", str(tmp_path / "data")) as up:
        ready = up.line()
        bootstrap = address_in(ready)
        for block in blocks(document):
            for command, output in examples(block.text) if block.language == "console" else ():
                if command == "headwater up":
                    printed = ready
                elif command == "headwater demo":
                    continue  # it has tests of its own
                else:
                    done = run_shell(command, bootstrap, tmp_path)
                    printed = done.stdout + done.stderr
                assert masked(printed) == masked(output), command


@pytest.mark.parametrize("document", [README, *sorted((ROOT / "docs").glob("*.md"))], ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text("utf-8"))
    assert [target for target in targets if not (document.parent / target).exists()] == []
