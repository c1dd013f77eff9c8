"""Deletes the files of a table that was dropped: those that its metadata names and that lie below its own location.

Metadata is what somebody wrote: it may name any file. So a name alone is no reason to read or to delete.
"""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, TypeVar

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile

from headwater.catalog.locations import ForbiddenLocationError, place_of
from headwater.catalog.metadata_files import StoredTable

_Item = TypeVar("_Item")

_LOGGER: Final = logging.getLogger(__name__)


def purge_files(table: StoredTable, io: FileIO) -> None:
    """Deletes a table's own files. What cannot be read or deleted is left and told in the log."""
    is_own = below(table.metadata.location)
    seen: set[str] = set()

    def remove(location: str | None) -> None:
        if location is None or location in seen or not is_own(location):
            return
        seen.add(location)
        try:
            io.delete(location)
        except FileNotFoundError:
            return
        except (OSError, ForbiddenLocationError) as error:
            _LOGGER.warning("%s: %r stays: %s", table.dotted, location, error)

    for manifest in _manifests(table, io, is_own):
        for data_file in _data_files(table, manifest, io):
            remove(data_file)
        remove(manifest.manifest_path)
    metadata = table.metadata
    for snapshot in metadata.snapshots:
        remove(snapshot.manifest_list)
    for statistics in (*metadata.statistics, *metadata.partition_statistics):
        remove(statistics.statistics_path)
    for entry in metadata.metadata_log:
        remove(entry.metadata_file)
    remove(table.location)


def below(folder: str) -> Callable[[str], bool]:
    """Whether a location lies in a folder, wherever links on this machine lead."""
    place = place_of(folder)

    def is_own(location: str) -> bool:
        try:
            found = place_of(location)
        except ForbiddenLocationError:
            return False
        return place.holds(found) and found != place

    return is_own


def _manifests(table: StoredTable, io: FileIO, is_own: Callable[[str], bool]) -> Iterator[ManifestFile]:
    seen: set[str] = set()
    for snapshot in table.metadata.snapshots:
        if snapshot.manifest_list and is_own(snapshot.manifest_list):
            for manifest in _read(table, snapshot.manifest_list, partial(snapshot.manifests, io)):
                if manifest.manifest_path not in seen and is_own(manifest.manifest_path):
                    seen.add(manifest.manifest_path)
                    yield manifest


def _data_files(table: StoredTable, manifest: ManifestFile, io: FileIO) -> list[str]:
    entries = _read(table, manifest.manifest_path, lambda: manifest.fetch_manifest_entry(io, discard_deleted=False))
    return [entry.data_file.file_path for entry in entries]


def _read(table: StoredTable, location: str, read: Callable[[], list[_Item]]) -> list[_Item]:
    try:
        return read()
    except Exception as error:  # Whatever a reader makes of a file that may hold anything: the rest is deleted.
        _LOGGER.warning("%s: the files named by %r stay: %s", table.dotted, location, type(error).__name__)
        return []
