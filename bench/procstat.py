"""What Linux says about a broker's process and its children: CPU time, memory, open files."""

import os
from contextlib import suppress
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def _tree(pid: int) -> list[int]:
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += _tree(int(child))
    return found


def cpu_seconds(pid: int) -> float:
    """User and system time used so far, children that still run included."""
    ticks = 0
    for member in _tree(pid):
        # The command name may hold spaces; the fields after its closing bracket are fixed.
        fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS_PER_SECOND


def memory_bytes(pid: int) -> int:
    """Proportional set size: resident memory, pages shared with others counted by share."""
    total = 0
    for member in _tree(pid):
        for line in Path(f"/proc/{member}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def open_files(pid: int) -> int:
    """File descriptors in use."""
    return sum(len(os.listdir(f"/proc/{member}/fd")) for member in _tree(pid))


def tree_cpu_seconds(pid: int) -> float:
    """The same for a process whose children come and go: those that have ended are in it, and none is an error."""
    ticks = 0
    for text in _read_of_all(pid, "stat"):
        ticks += sum(int(field) for field in text.rpartition(")")[2].split()[11:15])
    return ticks / _TICKS_PER_SECOND


def resident_bytes(pid: int) -> int:
    """Resident memory of all of them, what they share counted for each: quickly read, so that it can be sampled."""
    return sum(int(text.split()[1]) * _PAGE_BYTES for text in _read_of_all(pid, "statm"))


def _read_of_all(pid: int, file: str) -> list[str]:
    """A file of the process and of all below it; what ends meanwhile is left out."""
    try:
        found = [Path(f"/proc/{pid}/{file}").read_text()]
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return []
    for thread in threads:
        # A thread that has ended has left its children to another one.
        with suppress(FileNotFoundError, ProcessLookupError):
            for child in (thread / "children").read_text().split():
                found += _read_of_all(int(child), file)
    return found
