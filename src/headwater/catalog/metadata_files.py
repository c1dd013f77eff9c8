"""The metadata files of tables: read once, because they never change, and on the disk before a pointer names them."""

import gzip
import os
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from pyiceberg.io import FileIO, load_file_io

from headwater.catalog.any_metadata import AnyMetadata
from headwater.catalog.names import text_of
from headwater.catalog.places import local_path
from headwater.catalog.pyiceberg_gaps import metadata_json, parse_metadata

_MOST_CACHED: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTable:
    """A table as one of its metadata files says."""

    name: tuple[str, ...]
    location: str
    """Where the metadata file is."""
    metadata: AnyMetadata
    text: bytes
    """The metadata in JSON, as it stands in the file."""

    @property
    def dotted(self) -> str:
        """The name as people write it: `db.t`."""
        return text_of(self.name)


class MissingFileError(Exception):
    """A metadata file that the catalog points to, or that is to be registered, is not there."""

    def __init__(self, location: str) -> None:
        super().__init__(f"Failed to open input stream for file: {location}")


class MetadataFiles:
    """Reads and writes metadata files on a disk or an object store, and keeps the last ones in memory."""

    def __init__(self, io_properties: dict[str, str]) -> None:
        self._io_properties = io_properties
        self._parsed: OrderedDict[str, tuple[AnyMetadata, bytes]] = OrderedDict()
        self._lock = threading.Lock()
        self._ios: dict[str, FileIO] = {}

    def read(self, name: tuple[str, ...], location: str) -> StoredTable:
        """The table that the file at a location describes."""
        with self._lock:
            cached = self._parsed.get(location)
            if cached is not None:
                self._parsed.move_to_end(location)
        if cached is not None and self._is_gone(location):
            self.forget(location)
            raise MissingFileError(location)
        if cached is None:
            text = self._bytes_at(location)
            cached = parse_metadata(text), text
            self._remember(location, *cached)
        return StoredTable(name=name, location=location, metadata=cached[0], text=cached[1])

    def write(self, name: tuple[str, ...], location: str, metadata: AnyMetadata) -> StoredTable:
        """Writes a new file, which nobody reads before the catalog names it."""
        text = metadata_json(metadata)
        stored = gzip.compress(text) if _is_compressed(location) else text
        path = local_path(location)
        if path is not None:
            _write_durably(path, stored)
        else:
            with self._io(location).new_output(location).create() as stream:
                stream.write(stored)
        self._remember(location, metadata, text)
        return StoredTable(name=name, location=location, metadata=metadata, text=text)

    def drop(self, location: str) -> None:
        """Removes a file that lost its race, as well as it can be done."""
        self.forget(location)
        try:
            self._io(location).delete(location)
        except OSError:
            return

    def forget(self, location: str) -> None:
        """Keeps no longer in memory what no pointer names any more."""
        with self._lock:
            self._parsed.pop(location, None)

    def _is_gone(self, location: str) -> bool:
        """Whether a file that was read before is not there any more; object stores are not asked for each load."""
        path = local_path(location)
        return path is not None and not os.path.exists(path)

    def _bytes_at(self, location: str) -> bytes:
        path = local_path(location)
        try:
            if path is not None:
                with open(path, "rb") as file:
                    stored = file.read()
            else:
                with self._io(location).new_input(location).open() as stream:
                    stored = stream.read()
        except (FileNotFoundError, NotADirectoryError):
            raise MissingFileError(location) from None
        return gzip.decompress(stored) if _is_compressed(location) else stored

    def _remember(self, location: str, metadata: AnyMetadata, text: bytes) -> None:
        with self._lock:
            self._parsed[location] = (metadata, text)
            while len(self._parsed) > _MOST_CACHED:
                self._parsed.popitem(last=False)

    def _io(self, location: str) -> FileIO:
        scheme = location.partition(":")[0]
        if scheme not in self._ios:
            self._ios[scheme] = load_file_io(self._io_properties, location)
        return self._ios[scheme]


def _is_compressed(location: str) -> bool:
    return location.endswith((".gz.metadata.json", ".metadata.json.gz"))


def _write_durably(path: str, content: bytes) -> None:
    # A pointer to a file that a power failure emptied would lose the whole table, so both file and name reach the disk.
    folder = os.path.dirname(path)
    os.makedirs(folder, exist_ok=True)
    with open(path, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
