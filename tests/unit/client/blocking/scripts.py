"""Runs a few lines of Python as a process of its own: what happens to signals and forks there stays there."""

import subprocess
import sys
import textwrap


def run_script(source: str, *arguments: str, timeout_s: float = 30) -> "subprocess.CompletedProcess[str]":
    """Runs it to its end; `subprocess.TimeoutExpired` when it hangs."""
    # Newer Pythons warn of any fork beside threads; that it goes well here is what these tests are about.
    warnings = ["-W", "error", "-W", "ignore:This process:DeprecationWarning"]
    command = [sys.executable, *warnings, "-c", textwrap.dedent(source), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)


def output_of(source: str, *arguments: str, timeout_s: float = 30) -> str:
    """What a script prints that ends well and without a word on stderr."""
    done = run_script(source, *arguments, timeout_s=timeout_s)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout
