"""`headwater log verify`: runs the check, shows how far it is, and tells the faults one a line."""

import os
from pathlib import Path

from headwater.cli.output import bytes_for_people, complain, counted, fail, print_json, say
from headwater.cli.progress import byte_progress
from headwater.log.filesystem import FileSystem
from headwater.log.inspection.verify import Verification
from headwater.log.inspection.verify_partition import Fault
from headwater.log.log_dirs import LOCK_FILE

_LOCKS = Path("/proc/locks")


def verify_folder(folder: Path, *, as_json: bool) -> bool:
    """Checks a folder and tells what is wrong; True when nothing is."""
    if not folder.is_dir():
        fail(f"{folder} is no folder: name a log dir or a partition's folder in one")
    fs, in_use = FileSystem(), _is_in_use(folder)
    if in_use:
        complain(f"{folder} is in use by a running broker: what is being written now is passed over")
    faults: list[Fault] = []
    with byte_progress(Verification(fs, str(folder)).total_bytes()) as show:
        done_bytes = 0

        def progress(size_bytes: int) -> None:
            nonlocal done_bytes
            done_bytes += size_bytes
            show(done_bytes)

        verification = Verification(fs, str(folder), in_use=in_use, progress=progress)
        try:
            for fault in verification.faults():
                faults.append(fault)
                if not as_json:
                    say(str(fault))
        except OSError as error:
            fail(f"cannot read {error.filename}: {error.strerror}")
    verified = verification.verified
    if as_json:
        print_json(
            {
                "folder": str(folder),
                "in_use": in_use,
                "partitions": verified.partitions,
                "segments": verified.segments,
                "batches": verified.batches,
                "size_bytes": verified.size_bytes,
                "faults": [{"file": path, "position": position, "fault": what} for path, position, what in faults],
            }
        )
    else:
        looked_at = ", ".join(
            (
                counted(verified.partitions, "partition"),
                counted(verified.segments, "segment"),
                f"{verified.batches:,} batch" + ("" if verified.batches == 1 else "es"),
                bytes_for_people(verified.size_bytes),
            )
        )
        say(f"{counted(len(faults), 'fault') if faults else 'No faults'} in {looked_at}.")
    return not faults


def _is_in_use(folder: Path) -> bool:
    """Whether a process has locked the log dir, by the system's own list: to try the lock would disturb a broker."""
    for candidate in (folder, folder.resolve().parent):
        try:
            status = os.stat(candidate / LOCK_FILE)
            locks = _LOCKS.read_text().split()
        except OSError:
            continue
        if f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}" in locks:
            return True
    return False
