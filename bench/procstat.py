"""What Linux says about a broker's process and its children: CPU time, memory, open files."""

import os
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


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
