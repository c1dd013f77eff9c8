"""What a crash may leave of a move between log dirs, and which of two folders of a partition is the right one.

A copy that is complete gets the mark `moved-here` before it takes over under the partition's name. From then on it is
the one that is written to; the old folder loses its name a moment later, and then the mark goes. So of two folders of a
partition the one with the mark is right. What has a copy's name (`-future`) has not taken over; the old folder is right
then.
"""

import logging
from collections import defaultdict
from collections.abc import Sequence

from headwater.log.filesystem import FileSystem
from headwater.log.folder_names import doomed_folder, partition_of_folder
from headwater.log.log_dir import LogDir

_log = logging.getLogger(__name__)

MOVED_HERE = "moved-here"


def settle_moves(fs: FileSystem, folders: Sequence[tuple[LogDir, list[str]]]) -> list[str]:
    """Of partitions in several dirs, keep the one that a move has just completed; the others leave the lists of names.

    Returns the folders to be removed. Partitions in several dirs of which no single one has the mark stay as they are.
    """
    lying_in: dict[str, list[tuple[LogDir, list[str]]]] = defaultdict(list)
    for log_dir, names in folders:
        for name in names:
            lying_in[name].append((log_dir, names))
    doomed = []
    for name, places in lying_in.items():
        partition = partition_of_folder(name)
        if len(places) == 1 or partition is None:
            continue
        marked = [log_dir for log_dir, _ in places if fs.exists(log_dir.file(f"{name}/{MOVED_HERE}"))]
        if len(marked) != 1:
            continue
        for log_dir, names in places:
            if log_dir is not marked[0]:
                with log_dir.failing_at_start():
                    _log.info("%s was moved to %s: the folder in %s goes", name, marked[0].path, log_dir.path)
                    path = log_dir.file(doomed_folder(partition))
                    fs.rename(log_dir.file(name), path)
                    fs.sync_dir(log_dir.path)
                    doomed.append(path)
                names.remove(name)
    return doomed
