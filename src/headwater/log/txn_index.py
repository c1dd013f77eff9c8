"""The index of aborted transactions of a segment (`.txnindex`): who, from where, to where.

Most segments have none. Entries are Kafka's, 34 bytes each, big-endian: version 0, producer id, first offset,
last offset (that of the marker), last stable offset at the time. Written through at once, as aborts are rare, unless
the disk refuses.
"""

import contextlib
import struct
from typing import NamedTuple

from headwater.log.filesystem import CREATE, FileSystem

_ENTRY = struct.Struct(">hqqqq")


class AbortedTxn(NamedTuple):
    """A transaction that was aborted; readers of committed data skip what it wrote."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TxnIndex:
    """Aborted transactions whose marker is in one segment, in the order of their markers."""

    __slots__ = ("_entries", "_written", "fs", "path")

    def __init__(self, fs: FileSystem, path: str, *, exists: bool) -> None:
        self.fs = fs
        self.path = path
        self._entries: list[AbortedTxn] | None = None if exists else []
        self._written = 0

    @property
    def entries(self) -> list[AbortedTxn]:
        """All entries, read from the file when first asked for."""
        if self._entries is None:
            content = self.fs.read_file(self.path)
            whole = len(content) - len(content) % _ENTRY.size
            self._entries = [AbortedTxn(*fields[1:]) for fields in _ENTRY.iter_unpack(content[:whole])]
            self._written = len(self._entries)
        return self._entries

    @property
    def is_on_disk(self) -> bool:
        """Whether there is, or has to be, a file."""
        return self._entries is None or bool(self._entries)

    def append(self, txn: AbortedTxn) -> None:
        """Add a transaction; a disk that refuses it gets it with the next `write_pending`.

        Its marker is in the log already and cannot be taken back, and a crash has the entry rebuilt from it.
        """
        self.entries.append(txn)
        with contextlib.suppress(OSError):
            self.write_pending()

    def write_pending(self, *, sync: bool = False) -> None:
        """Bring the file up to date with the entries, and to the device with `sync`."""
        if self._entries is not None and self._written < len(self._entries):
            descriptor = self.fs.open(self.path, CREATE)
            try:
                rest = b"".join(_ENTRY.pack(0, *txn) for txn in self._entries[self._written :])
                self.fs.write_all(descriptor, rest, self._written * _ENTRY.size)
            finally:
                self.fs.close(descriptor)
            self._written = len(self._entries)
        if sync:
            self.fs.sync_file(self.path)

    def move_to(self, path: str) -> None:
        """The file lies elsewhere from now on, with entries that were on the disk before; the others are pending."""
        self.path = path
        if self._entries is not None:
            self._written = 0

    def overlapping(self, fetch_offset: int, upper_offset: int) -> tuple[list[AbortedTxn], bool]:
        """Transactions that overlap the offsets [fetch, upper); True when later segments have none."""
        found = []
        for txn in self.entries:
            if txn.last_offset >= fetch_offset and txn.first_offset < upper_offset:
                found.append(txn)
            if txn.last_stable_offset >= upper_offset:
                return found, True
        return found, False

    def reset(self) -> None:
        """Forget everything, to be filled anew."""
        self._entries = []
        self._written = 0
        self.fs.remove(self.path)

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose marker is at or beyond an offset."""
        if not self.is_on_disk:
            return
        kept = [txn for txn in self.entries if txn.last_offset < offset]
        descriptor = self.fs.open(self.path, CREATE)
        try:
            self.fs.truncate(descriptor, min(self._written, len(kept)) * _ENTRY.size)
        finally:
            self.fs.close(descriptor)
        self._entries = kept
        self._written = min(self._written, len(kept))
