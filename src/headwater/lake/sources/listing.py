"""Which files are there: a folder, a file, a pattern, or a place in an object store. Opens none of them.

Names that begin with `.` or `_` are hidden, with all that lies below them, and so are copies under way (`._COPYING_`):
writers of data use such names for what is not data. `_day=2026-01-31` is data.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from glob import escape, has_magic, iglob
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

from headwater.catalog.object_stores import S3Place, StoreAddressError, is_s3
from headwater.lake.datasource import file_streams
from headwater.lake.errors import LakeError, LakeUsageError

_UNDER_WAY: Final = "._COPYING_"


class FoundFile(NamedTuple):
    """A file as the listing shows it: a path on this machine, or the URL of an object.

    A tuple, because it takes half as long to make as a frozen dataclass: there may be 100,000 of which ten are new.
    """

    path: str
    modified_ns: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where files are looked for.

    `base` is the folder from which on `key=value` folders are columns; `pattern` what is below it, if not all is meant.
    `store` is the URL by which an object store is opened, with what only the opener may know.
    """

    base: str
    pattern: str | None = None
    store: str | None = None

    @property
    def url(self) -> str:
        """The name of the place, which `parse_place` takes too: no user, no password, no settings of the store."""
        whole = self.base if self.pattern is None else f"{self.base.rstrip('/')}/{self.pattern}"
        return whole if self.store is not None else "file://" + whole.replace("%", "%25")


def parse_place(text: str) -> Place:
    """The place of a path, a pattern or a URL.

    >>> parse_place("/data/in/2026-*/*.json")
    Place(base='/data/in', pattern='2026-*/*.json', store=None)
    >>> parse_place("s3://bucket/in?region=eu-west-1").url
    's3://bucket/in'
    """
    if is_s3(text):
        return _in_s3(text)
    if "://" in text and not text.startswith("file://"):
        parts = urlsplit(text)
        bare = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", "")).rstrip("/")
        base, pattern = _apart(bare)
        # The pattern is ours to match: the store is opened at the folder above it.
        folder = parts.path if pattern is None else parts.path.rstrip("/")[: -len(pattern) - 1]
        return Place(base=base, pattern=pattern, store=urlunsplit((*parts[:2], folder, parts.query, "")))
    path = unquote(text.removeprefix("file://")) if text.startswith("file://") else os.path.expanduser(text)
    path = os.path.abspath(path)
    if os.path.lexists(path):
        return Place(base=path)
    base, pattern = _apart(path)
    return Place(base=base, pattern=pattern)


def _in_s3(text: str) -> Place:
    try:
        found = S3Place.parse(text)
    except StoreAddressError as error:
        raise LakeUsageError(str(error)) from None
    base, pattern = _apart(found.url)
    folder = found.path if pattern is None else found.path.removesuffix(pattern).rstrip("/")
    return Place(base=base, pattern=pattern, store=replace(found, path=folder).whole_url)


def store_settings(place: Place) -> dict[str, str]:
    """How the store of a place is reached, as its URL says it and as options of a source can say it. Never its keys."""
    return S3Place.parse(place.store).settings if place.store is not None and is_s3(place.store) else {}


def list_files(place: Place) -> Iterator[FoundFile]:
    """All files of a place that are not hidden, in no particular order."""
    try:
        if place.store is not None:
            yield from _in_store(place)
        elif place.pattern is None:
            yield from _at(place.base)
        else:
            yield from _matching(place)
    except PermissionError as error:
        raise LakeError(f"{error.filename} may not be listed by this user: {error.strerror}") from error
    except OSError as error:
        if place.store is None:
            raise
        raise LakeError(f"{place.url} cannot be listed: {error}. Look at its address and at the keys") from error


def is_hidden(name: str) -> bool:
    """Whether the name of a file or a folder says that it is no data."""
    if name.startswith("_"):
        return "=" not in name
    return name.startswith(".") or name.endswith(_UNDER_WAY)


def _apart(path: str) -> tuple[str, str | None]:
    """The folder down to the first part with a wildcard, and the rest."""
    parts = path.split("/")
    for place, part in enumerate(parts):
        if has_magic(part):
            return "/".join(parts[:place]) or "/", "/".join(parts[place:])
    return path, None


def _at(path: str) -> Iterator[FoundFile]:
    if os.path.isdir(path):
        yield from _below(path)
        return
    try:
        seen = os.stat(path)
    except FileNotFoundError:
        raise LakeUsageError(f"{path} is not there: name a folder, a file, or a pattern such as 'in/*.json'") from None
    yield FoundFile(path, seen.st_mtime_ns, seen.st_size)


def _below(top: str) -> Iterator[FoundFile]:
    """The files of a folder and of those in it."""
    # With each folder those by their true names from which links led there. No recursion: every file of a generator
    # within a generator is handed up through all of them.
    folders = [(top, frozenset({os.path.realpath(top)}))]
    while folders:
        folder, above = folders.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                if is_hidden(entry.name):
                    continue
                try:
                    if not entry.is_dir():
                        seen = entry.stat()
                        yield FoundFile(entry.path, seen.st_mtime_ns, seen.st_size)
                    elif not entry.is_symlink():
                        folders.append((entry.path, above))
                    elif (true := os.path.realpath(entry.path)) not in above and not _is_below(
                        os.path.realpath(folder), true
                    ):
                        folders.append((entry.path, above | {true}))
                except FileNotFoundError:
                    # It went away while we looked, or is a link to nowhere.
                    continue


def _is_below(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder.rstrip('/')}/")


def _matching(place: Place) -> Iterator[FoundFile]:
    wanted = f"{escape(place.base.rstrip('/'))}/{place.pattern}"
    seen: set[str] = set()
    for path in iglob(wanted, recursive=True):
        below = path[len(place.base.rstrip("/")) + 1 :]
        if any(is_hidden(part) for part in below.rstrip("/").split("/")):
            continue
        try:
            for found in _at(path.rstrip("/")):
                # `**` gives a folder and what is in it.
                if found.path not in seen:
                    seen.add(found.path)
                    yield found
        except LakeUsageError:
            continue


def _in_store(place: Place) -> Iterator[FoundFile]:
    from pyarrow.fs import FileSelector, FileType

    assert place.store is not None
    store, root = file_streams.open_store(place.store)
    scheme = place.store.partition("://")[0]
    whole_seconds = is_s3(place.store)
    there = store.get_file_info(root)
    if there.type == FileType.NotFound:
        if place.pattern is None:
            raise LakeUsageError(f"{place.url} is not there: name a folder, a file, or a pattern such as 'in/*.json'")
        return
    selected = [there] if there.type == FileType.File else store.get_file_info(FileSelector(root, recursive=True))
    for found in selected:
        below = found.path[len(root) :].strip("/")
        if found.type != FileType.File or any(is_hidden(part) for part in below.split("/") if part):
            continue
        if place.pattern is None or _matches(below.split("/"), place.pattern.split("/")):
            modified_ns = file_streams.modified_ns(found, whole_seconds=whole_seconds)
            yield FoundFile(f"{scheme}://{found.path}", modified_ns, found.size or 0)


def _matches(parts: Sequence[str], patterns: Sequence[str]) -> bool:
    """Whether a path fits a pattern, name by name; one that names a folder means all in it."""
    if not patterns:
        return True
    if patterns[0] == "**":
        return _matches(parts, patterns[1:]) or (bool(parts) and _matches(parts[1:], patterns))
    return bool(parts) and fnmatchcase(parts[0], patterns[0]) and _matches(parts[1:], patterns[1:])
