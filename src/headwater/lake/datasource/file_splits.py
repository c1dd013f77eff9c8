"""Files cut into pieces and small ones put together, so that Spark's tasks have about the same to do. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from headwater.lake.datasource.file_manifest import Manifest, ManifestFile
from headwater.lake.datasource.file_names import compression_of

SMALLEST_SPLIT_BYTES: Final = 1 << 20
_OPENING_BYTES: Final = 1 << 18
"""What it costs to open a file, in bytes that could have been read meanwhile."""
_TASKS: Final = 8
"""So many tasks at least share the work, if it is worth it."""
_SPLITTABLE: Final = ("json", "text")
"""Formats in which a record ends where a line ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePiece:
    """The records of a file that begin at byte `start` or behind it, and before byte `end`."""

    file: ManifestFile
    start: int
    end: int

    @property
    def is_whole(self) -> bool:
        """Whether it is all of the file."""
        return self.start == 0 and self.end >= self.file.size_bytes


def file_splits(manifest: Manifest, split_bytes: int) -> list[tuple[FilePiece, ...]]:
    """What each task reads: pieces of about `split_bytes`, in the order of the files."""
    total = sum(max(file.size_bytes, _OPENING_BYTES) for file in manifest.files)
    target = min(split_bytes, max(SMALLEST_SPLIT_BYTES, -(-total // _TASKS)))
    return list(_packed((piece for file in manifest.files for piece in _pieces(manifest, file, target)), target))


def _pieces(manifest: Manifest, file: ManifestFile, target: int) -> Iterator[FilePiece]:
    splittable = manifest.format in _SPLITTABLE and compression_of(file.path) is None
    count = max(1, -(-file.size_bytes // target)) if splittable else 1
    cuts = [file.size_bytes * piece // count for piece in range(count + 1)]
    for start, end in pairwise(cuts):
        yield FilePiece(file=file, start=start, end=end)


def _packed(pieces: Iterable[FilePiece], target: int) -> Iterator[tuple[FilePiece, ...]]:
    pack: list[FilePiece] = []
    packed_bytes = 0
    for piece in pieces:
        cost_bytes = max(piece.end - piece.start, _OPENING_BYTES)
        if pack and packed_bytes + cost_bytes > target:
            yield tuple(pack)
            pack, packed_bytes = [], 0
        pack.append(piece)
        packed_bytes += cost_bytes
    if pack:
        yield tuple(pack)
