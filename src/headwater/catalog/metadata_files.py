"""The metadata files of tables: read once, because they never change, and on the disk before a pointer names them."""

import errno
import gzip
import os
import stat
import threading
import zlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from headwater.catalog.any_metadata import AnyMetadata
from headwater.catalog.locations import ForbiddenLocationError
from headwater.catalog.names import text_of
from headwater.catalog.places import local_path
from headwater.catalog.pyiceberg_gaps import metadata_json, parse_metadata
from headwater.catalog.request_json import UnsupportedFeatureError
from headwater.catalog.rooted_files import CatalogFileIO
from headwater.catalog.table_properties import RefusedPropertyError, without_refused
from headwater.private_files import make_private_dirs, opener

_MOST_CACHED: Final = 64
_LARGEST: Final = 256 << 20
"""The metadata of a table with 100,000 snapshots has less; a file that unpacks to more is none."""
_IN_THE_WAY: Final = (NotADirectoryError, IsADirectoryError, PermissionError, FileExistsError)
_NO_SUCH_PATH: Final = (errno.ENAMETOOLONG, errno.ELOOP)
"""What a path is told that no file can have."""


class UnreadableMetadataError(ValueError):
    """A file that is not the metadata of a table. The words never quote what is in it: it may be anybody's file."""


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
        self._parsed: OrderedDict[str, tuple[AnyMetadata, bytes]] = OrderedDict()
        self._lock = threading.Lock()
        self._io = CatalogFileIO(io_properties)

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
            cached = _parsed(location, self._bytes_at(location))
            self._remember(location, *cached)
        return StoredTable(name=name, location=location, metadata=cached[0], text=cached[1])

    def read_stranger(self, name: tuple[str, ...], location: str) -> StoredTable:
        """The same for a file of which nobody knows who wrote it: nothing in it is forgiven."""
        text = self._bytes_at(location)
        metadata, kept = _parsed(location, text)
        if kept is not text:
            raise RefusedPropertyError(
                f"{location!r} has properties that no table may have, because engines would run code or reach a host "
                "that they name: take them out of the file first"
            )
        self._remember(location, metadata, text)
        return StoredTable(name=name, location=location, metadata=metadata, text=text)

    def write(self, name: tuple[str, ...], location: str, metadata: AnyMetadata) -> StoredTable:
        """Writes a new file, which nobody reads before the catalog names it."""
        text = metadata_json(metadata)
        stored = gzip.compress(text) if _is_compressed(location) else text
        path = local_path(location)
        if path is not None:
            try:
                _write_durably(path, stored)
            except OSError as error:
                if not isinstance(error, _IN_THE_WAY) and error.errno not in _NO_SUCH_PATH:
                    raise
                raise ForbiddenLocationError(
                    f"the location {location!r} cannot be written to: {error.strerror}"
                ) from None
        else:
            with self._io.new_output(location).create() as stream:
                stream.write(stored)
        self._remember(location, metadata, text)
        return StoredTable(name=name, location=location, metadata=metadata, text=text)

    def drop(self, location: str) -> None:
        """Removes a file that lost its race, as well as it can be done."""
        self.forget(location)
        try:
            self._io.delete(location)
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
                stored = _read_regular(location, path)
            else:
                with self._io.new_input(location).open() as stream:
                    stored = stream.read(_LARGEST + 1)
        except (FileNotFoundError, NotADirectoryError):
            raise MissingFileError(location) from None
        except OSError as error:
            if error.errno not in _NO_SUCH_PATH:
                raise
            raise MissingFileError(location) from None
        if _is_compressed(location):
            stored = _unpacked(location, stored)
        if len(stored) > _LARGEST:
            raise UnreadableMetadataError(f"{location!r} has more than {_LARGEST >> 20} MiB: it is no table's metadata")
        return stored

    def _remember(self, location: str, metadata: AnyMetadata, text: bytes) -> None:
        with self._lock:
            self._parsed[location] = (metadata, text)
            while len(self._parsed) > _MOST_CACHED:
                self._parsed.popitem(last=False)


def _parsed(location: str, text: bytes) -> tuple[AnyMetadata, bytes]:
    try:
        metadata = parse_metadata(text)
    except UnsupportedFeatureError:
        raise
    except Exception:  # Parsers raise anything, and quote what they stumble over.
        raise UnreadableMetadataError(f"{location!r} is not the metadata of an Iceberg table") from None
    harmless = without_refused(metadata)
    return harmless, text if harmless is metadata else metadata_json(harmless)


def _read_regular(location: str, path: str) -> bytes:
    # Opening a pipe would wait for somebody who writes into it.
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise UnreadableMetadataError(f"{location!r} is no file")
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        return file.read(_LARGEST + 1)


def _unpacked(location: str, stored: bytes) -> bytes:
    try:
        return zlib.decompressobj(wbits=31).decompress(stored, _LARGEST + 1)
    except zlib.error:
        raise UnreadableMetadataError(f"{location!r} is no gzip file, although it is called so") from None


def is_metadata_name(location: str) -> bool:
    """Whether a file is called as Iceberg calls metadata files; no other is one."""
    return location.endswith((".metadata.json", ".metadata.json.gz"))


def _is_compressed(location: str) -> bool:
    return location.endswith((".gz.metadata.json", ".metadata.json.gz"))


def _write_durably(path: str, content: bytes) -> None:
    # A pointer to a file that a power failure emptied would lose the whole table, so both file and name reach the disk.
    folder = os.path.dirname(path)
    make_private_dirs(folder)
    with open(path, "xb", opener=opener) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
