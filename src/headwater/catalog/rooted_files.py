"""The catalog's files, opened by the catalog's own settings alone, and for pyiceberg only below the catalog's roots.

pyiceberg chooses how it opens a file by the location's scheme and by properties that come with a table: a manifest that
names `hdfs://elsewhere/` would make the catalog connect to it. Here a location decides nothing but which root it is in.
"""

import os
from typing import TYPE_CHECKING

from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from headwater.catalog.locations import Roots, place_of
from headwater.catalog.places import local_path

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


class CatalogFileIO(FileIO):
    """Files on this machine and in the catalog's S3 store, wherever the catalog's own database says."""

    def __init__(self, properties: dict[str, str]) -> None:
        super().__init__(properties)
        self._stores = PyArrowFileIO(properties)

    def new_input(self, location: str) -> InputFile:
        """A file to read."""
        return self._file(location)

    def new_output(self, location: str) -> OutputFile:
        """A file to write."""
        return self._file(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Removes a file; OSError when it cannot be removed."""
        named = location if isinstance(location, str) else location.location
        file = self._file(named)
        path = local_path(named)
        if path is not None:
            os.unlink(path)
        else:
            file._filesystem.delete_file(file._path)

    def check(self, location: str) -> None:
        """Raises ForbiddenLocationError for a location that is not opened."""
        place_of(location)

    def _file(self, location: str) -> PyArrowFile:
        self.check(location)
        path = local_path(location)
        if path is not None:
            return PyArrowFile(location, path, self._store("file"))
        # Nothing in a key is percent-encoded, and `#` and `?` are letters like others: urllib would cut there.
        key = location.partition("://")[2]
        return PyArrowFile(location, key, self._store("s3", key.partition("/")[0]))

    def _store(self, scheme: str, bucket: str | None = None) -> "FileSystem":
        return self._stores.fs_by_scheme(scheme, bucket)


class RootedFileIO(CatalogFileIO):
    """The same below some roots: for all that metadata, manifests and requests name."""

    def __init__(self, properties: dict[str, str], roots: Roots) -> None:
        super().__init__(properties)
        self._roots = roots

    def check(self, location: str) -> None:
        """Raises ForbiddenLocationError for a location outside the roots."""
        self._roots.check(location)
