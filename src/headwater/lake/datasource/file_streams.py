"""The bytes of files, and the lines in them, as raw batches: what the file is, where in it a record is, and the record.

A line belongs to the piece of a file in which it begins. `_row` of a line is the byte at which it begins, counted in
what the file holds once it is uncompressed: it is the same however the file is cut.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Final

import pyarrow as pa
from pyarrow import fs

from headwater.catalog.object_stores import S3Place, StoreAddressError, is_s3
from headwater.lake.datasource.columns import TIMESTAMP, VALUE
from headwater.lake.datasource.file_manifest import ManifestFile
from headwater.lake.datasource.file_names import compression_of
from headwater.lake.datasource.file_splits import FilePiece
from headwater.lake.errors import LakeError, LakeUsageError

ORIGIN_COLUMNS: Final = pa.schema([("_path", pa.string()), ("_modified", TIMESTAMP), ("_row", pa.int64())])
"""Where a record of a file comes from."""

FILE_COLUMNS: Final = pa.schema([*ORIGIN_COLUMNS, pa.field(VALUE, pa.binary())])
"""A record of a file as it is."""

BLOCK_BYTES: Final = 4 << 20
BATCH_ROWS: Final = 1 << 16
LONGEST_RECORD_BYTES: Final = 1 << 30
_BEYOND_BYTES: Final = 1 << 16
"""How much is read at a time to find the end of a piece's last line."""
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


def open_store(url: str) -> tuple[fs.FileSystem, str]:
    """The object store behind a URL, and the path in it."""
    try:
        if is_s3(url):
            place = S3Place.parse(url)
            return place.filesystem(), f"{place.bucket}/{place.path}".rstrip("/")
        store, path = fs.FileSystem.from_uri(url)
    except StoreAddressError as error:
        raise LakeUsageError(str(error)) from None
    except (pa.ArrowException, OSError) as error:
        # What pyarrow says may repeat the URL, and that may have keys in it.
        scheme, words = url.partition("://")[0], str(error).replace(url, "…")
        raise LakeUsageError(f"the {scheme} store of this source cannot be opened: {words}") from None
    return store, path


def store_for_others(url: str | None) -> str | None:
    """The URL with all that this process's environment says of the store: other machines need not be told."""
    return S3Place.parse(url).resolved().whole_url if url is not None and is_s3(url) else url


def modified_ns(found: fs.FileInfo, *, whole_seconds: bool) -> int:
    """When a file was changed. S3 stores may tell the fraction of a second in a list and not for a single object."""
    told: int = found.mtime_ns or 0
    return told - told % 1_000_000_000 if whole_seconds else told


class Files:
    """Opens the files of a manifest, where they are; and only as they were when the load was planned."""

    def __init__(self, store: str | None) -> None:
        self._system = fs.LocalFileSystem() if store is None else open_store(store)[0]
        self._is_local = store is None
        self._whole_seconds = store is not None and is_s3(store)

    @contextmanager
    def opened(self, file: ManifestFile, *, uncompressed: bool = True) -> Iterator[pa.NativeFile]:
        """A stream of the file; a `LakeError` names it when it was changed meanwhile, or cannot be read."""
        path = self.path(file)
        self._check(file, path)
        compression = compression_of(file.path) if uncompressed else None
        try:
            with self._system.open_input_file(path) as stream:
                yield stream if compression is None else pa.CompressedInputStream(stream, compression)
        except (OSError, pa.ArrowInvalid) as error:
            raise LakeError(f"{file.path} cannot be read: {error}. Mend it or move it away, and load again") from error
        self._check(file, path)

    def path(self, file: ManifestFile) -> str:
        """How the file system calls it."""
        return file.path if self._is_local else file.path.partition("://")[2]

    def _check(self, file: ManifestFile, path: str) -> None:
        there = self._system.get_file_info(path)
        is_from_ns = modified_ns(there, whole_seconds=self._whole_seconds)
        if (is_from_ns, there.size) != (file.modified_ns, file.size_bytes):
            became = "is gone" if there.type == fs.FileType.NotFound else "was changed"
            raise LakeError(file.path + words_of_change(became))


def words_of_change(became: str) -> str:
    """What is said of a file that is not what it was when the load was planned."""
    return (
        f" {became} while it was being loaded: load again. Files that are still being written can be left for later "
        "with settle_s"
    )


def line_batches(files: Files, piece: FilePiece, *, keep_blank: bool) -> Iterator[pa.RecordBatch]:
    """The lines of a piece; blank ones are no records unless that is said."""
    with files.opened(piece.file) as stream:
        is_compressed = compression_of(piece.file.path) is not None
        end = LONGEST_POSITION if is_compressed else piece.end
        for start, text in _texts(stream, piece.start, end, piece.file.path):
            lines = text.split(b"\n")
            offsets = list(accumulate((len(line) + 1 for line in lines), initial=start))
            offsets.pop()
            if offsets[-1] >= end:
                count = next(place for place, offset in enumerate(offsets) if offset >= end)
                lines, offsets = lines[:count], offsets[:count]
            if b"\r" in text:
                lines = [line.removesuffix(b"\r") for line in lines]
            if start == 0 and lines:
                lines[0] = lines[0].removeprefix(_BYTE_ORDER_MARK)
            if not keep_blank and not all(map(bytes.strip, lines)):
                kept = [place for place, line in enumerate(lines) if line.strip()]
                lines, offsets = [lines[place] for place in kept], [offsets[place] for place in kept]
            for first in range(0, len(lines), BATCH_ROWS):
                yield raw_batch(piece.file, lines[first : first + BATCH_ROWS], offsets[first : first + BATCH_ROWS])


def whole_file(files: Files, piece: FilePiece) -> Iterator[pa.RecordBatch]:
    """A file as one record, as it is."""
    if piece.file.size_bytes > LONGEST_RECORD_BYTES:
        raise _too_long(piece.file.path)
    with files.opened(piece.file, uncompressed=False) as stream:
        yield raw_batch(piece.file, [stream.read()], [0])


def raw_batch(file: ManifestFile, values: list[bytes], rows: list[int]) -> pa.RecordBatch:
    """Records with what tells where they come from."""
    origin = origin_columns(file, pa.array(rows, pa.int64()))
    return pa.RecordBatch.from_arrays([*origin.values(), pa.array(values, pa.binary())], schema=FILE_COLUMNS)


def origin_columns(file: ManifestFile, rows: pa.Array) -> dict[str, pa.Array]:
    """The columns that tell where records of a file come from."""
    modified = pa.scalar(file.modified_ns // 1000, TIMESTAMP)
    return {"_path": pa.repeat(file.path, len(rows)), "_modified": pa.repeat(modified, len(rows)), "_row": rows}


LONGEST_POSITION: Final = (1 << 63) - 1


def _texts(stream: pa.NativeFile, start: int, end: int, path: str) -> Iterator[tuple[int, bytes]]:
    """Where it begins, and many lines with the newlines between them, up to the line in which the piece ends."""
    at, kept = start, []
    if start > 0:
        # Whether a line begins here, the byte before tells.
        stream.seek(start - 1)
        at, rest = _behind_newline(stream, start - 1, end)
        kept = [rest]
    kept_bytes = sum(map(len, kept))
    while at < end:
        left = end - at - kept_bytes
        block = stream.read(min(BLOCK_BYTES, left) if left > 0 else _BEYOND_BYTES)
        newline = block.rfind(b"\n")
        if newline < 0:
            kept.append(block)
            kept_bytes += len(block)
            if kept_bytes > LONGEST_RECORD_BYTES:
                raise _too_long(path)
            if not block:
                if kept_bytes:
                    yield at, b"".join(kept)
                return
            continue
        text = b"".join([*kept, block[:newline]])
        yield at, text
        at += len(text) + 1
        kept = [block[newline + 1 :]]
        kept_bytes = len(kept[0])


def _behind_newline(stream: pa.NativeFile, at: int, end: int) -> tuple[int, bytes]:
    """The position behind the next newline and what was read from there on; `end` or more if there is none before."""
    while at < end:
        block = stream.read(_BEYOND_BYTES)
        newline = block.find(b"\n")
        if newline >= 0:
            return at + newline + 1, block[newline + 1 :]
        if not block:
            return end, b""
        at += len(block)
    return at, b""


def _too_long(path: str) -> LakeError:
    return LakeError(f"{path} has a record of more than {LONGEST_RECORD_BYTES >> 20} MiB, which no table takes")
