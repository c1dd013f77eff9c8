"""Which files are new, and what becomes of those that were loaded before and are different now. Pure.

A file is known by its path, the time of its last change, and its size. Names of earlier loads are not opened again.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

import pyarrow as pa
import pyarrow.compute as pc

from headwater.lake.errors import LakeError
from headwater.lake.sources.listing import FoundFile

Changed: TypeAlias = Literal["append", "replace", "ignore", "fail"]
"""What to do about a file that was loaded and has changed since. `append`: its records are loaded again, and the old
rows stay. `replace`: the old rows go in the same commit. `ignore`: the old rows stand. `fail`: nothing is loaded."""

CHANGED: Final[tuple[str, ...]] = get_args(Changed)
_NAMED: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChanges:
    """Files to load, in the order of their paths; those among them that were loaded before."""

    files: Sequence[FoundFile]
    changed: Sequence[str]


def file_changes(found: Iterable[FoundFile], known: pa.Table, policy: Changed, *, before_ns: int) -> FileChanges:
    """What of the files that are there is to be loaded.

    `known` has the newest entry of each path (`CatalogClient.known_files`). Files that were written to at `before_ns`
    or later are left for the next load, and so are empty ones: a writer may only have begun.
    """
    new, changed = _new_and_changed(
        (file for file in found if file.size_bytes != 0 and file.modified_ns < before_ns), known
    )
    if policy == "fail" and changed:
        raise LakeError(_words_of_failure(sorted(file.path for file in changed)))
    if policy == "ignore":
        changed = []
    files = sorted([*new, *changed], key=lambda file: file.path)
    return FileChanges(files=files, changed=sorted(file.path for file in changed))


def _new_and_changed(found: Iterable[FoundFile], known: pa.Table) -> tuple[list[FoundFile], list[FoundFile]]:
    """The files whose path is not known, and those whose time or size is another one."""
    # Columns, not objects: most files are as they were, and there may be 100,000 of them.
    there = _columns(found)
    place = pc.index_in(there.column("path"), known.column("path").cast(pa.binary()))
    same = pc.and_(
        pc.equal(there.column("modified_ns"), known.column("modified_ns").take(place)),
        pc.equal(there.column("size"), known.column("size").take(place)),
    )
    return _files(there.filter(pc.is_null(place))), _files(there.filter(pc.invert(same)))


def _columns(found: Iterable[FoundFile]) -> pa.Table:
    # Names of files need not be UTF-8, which a column of strings must be.
    paths: list[bytes] = []
    modified_ns: list[int] = []
    sizes: list[int] = []
    for file in found:
        paths.append(os.fsencode(file[0]))
        modified_ns.append(file[1])
        sizes.append(file[2])
    types = {"path": pa.binary(), "modified_ns": pa.int64(), "size": pa.int64()}
    columns = zip((paths, modified_ns, sizes), types.values(), strict=True)
    return pa.table([pa.array(values, type_) for values, type_ in columns], names=list(types))


def _files(table: pa.Table) -> list[FoundFile]:
    columns = (column.to_pylist() for column in table.columns)
    return [FoundFile(os.fsdecode(path), modified_ns, size) for path, modified_ns, size in zip(*columns, strict=True)]


def _words_of_failure(paths: Sequence[str]) -> str:
    names = ", ".join(paths[:_NAMED]) + (f" and {len(paths) - _NAMED:,} more" if len(paths) > _NAMED else "")
    return (
        f"{names} changed after being loaded, and changed = fail says not to go on: nothing was loaded. Put the files "
        "back, or load with changed = append, replace or ignore"
    )
