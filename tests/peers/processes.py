"""Starts and ends the processes of peers so that none outlives the tests, however those end."""

import shutil
import signal
import subprocess
from collections.abc import Sequence

_STOP_TIMEOUT_S = 30


def dies_with_parent(command: Sequence[str]) -> list[str]:
    """The command, wrapped where that is possible so that the kernel kills it when the tests die.

    More exactly, when the thread dies that started it: start no peer in a thread that ends before it.
    """
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--", *command] if setpriv else list(command)


def end(process: subprocess.Popen[bytes]) -> int:
    """Asks with SIGTERM, waits, and kills what does not listen. Returns the exit code."""
    process.send_signal(signal.SIGTERM)
    try:
        return process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def kill(process: subprocess.Popen[bytes]) -> int:
    """Ends the process at once (SIGKILL)."""
    process.kill()
    return process.wait()
