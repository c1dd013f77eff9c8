"""What is on a device and what only in the memory before it: the state behind `FaultyFileSystem`.

Files are rows of sectors. A change is visible at once and reaches the device with a sync, or by chance: when the power
goes, every sector that waits is there or not, so is the new length, and so is every change of a name in a folder that
was not synced since. No operating system here, and no chance but the one that is passed in.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final, NamedTuple

_FATES: Final = ("none", "all", "some")
"""What becomes of the unsynced changes of one file or folder."""


class CachedFile:
    """The content of a file as everybody sees it, and as it is on the device."""

    def __init__(self, content: bytes, sector_bytes: int) -> None:
        self.visible = bytearray(content)
        self._device = bytearray(content)
        self._sector_bytes = sector_bytes
        self._waiting: set[int] = set()
        self._given_up: set[int] = set()

    def write(self, position: int, content: bytes) -> None:
        """Bytes were written at a position; a gap before them is filled with zeros."""
        end = position + len(content)
        self.visible.extend(bytes(max(position - len(self.visible), 0)))
        self.visible[position:end] = content
        self._touch(position, end)

    def resize(self, size: int) -> None:
        """The file was cut, or made longer with zeros."""
        self._touch(min(size, len(self.visible)), max(size, len(self.visible)))
        del self.visible[size:]
        self.visible.extend(bytes(size - len(self.visible)))

    def _touch(self, start: int, end: int) -> None:
        touched = range(start // self._sector_bytes, -(-end // self._sector_bytes))
        self._waiting.update(touched)
        self._given_up.difference_update(touched)

    def sync(self) -> None:
        """Everything that waits is on the device now; what an earlier sync gave up is not."""
        for sector in self._waiting:
            self._to_device(sector)
        self._cut_device(len(self.visible))
        self._waiting.clear()

    def fail_sync(self) -> None:
        """The device refused: the system takes the sectors for written and will not try them again."""
        self._given_up |= self._waiting
        self._waiting.clear()

    def forget_given_up(self) -> bool:
        """What a failed sync gave up is read from the device from now on; False when there is nothing."""
        for sector in self._given_up:
            start = sector * self._sector_bytes
            length = min(self._sector_bytes, len(self.visible) - start)
            if length > 0:
                self.visible[start : start + length] = self._device[start : start + length].ljust(length, b"\0")
        forgot = bool(self._given_up)
        self._given_up.clear()
        return forgot

    def lose_power(self, chance: Random) -> None:
        """Only what is on the device remains, and by chance some of what waited."""
        fate = chance.choice(_FATES)
        sizes = sorted((len(self._device), len(self.visible)))
        if fate == "all":
            size = len(self.visible)
        elif fate == "none":
            size = len(self._device)
        else:
            size = chance.choice([*sizes, chance.randint(*sizes)])
        for sector in sorted(self._waiting):
            if fate == "all" or (fate == "some" and chance.random() < 0.5):
                self._to_device(sector)
        self._cut_device(size)
        self.visible[:] = self._device
        self._waiting.clear()
        self._given_up.clear()

    def _to_device(self, sector: int) -> None:
        start = sector * self._sector_bytes
        content = self.visible[start : start + self._sector_bytes]
        self._device.extend(bytes(max(start - len(self._device), 0)))
        self._device[start : start + len(content)] = content

    def _cut_device(self, size: int) -> None:
        del self._device[size:]
        self._device.extend(bytes(size - len(self._device)))


class CachedFolder:
    """The names in a folder as everybody sees them, and as they are on the device."""

    def __init__(self) -> None:
        self.visible: dict[str, CachedFile | CachedFolder] = {}
        self.on_device: dict[str, CachedFile | CachedFolder] = {}


class Entry(NamedTuple):
    """What a name in a folder stands for from now on: a file, a folder, or None for nothing."""

    folder: CachedFolder
    name: str
    target: CachedFile | CachedFolder | None


class PageCache:
    """A tree of folders and files, and the changes of names that are not on the device yet."""

    def __init__(self) -> None:
        self.root = CachedFolder()
        self._waiting: list[tuple[Entry, ...]] = []

    def find(self, path: str) -> CachedFile | CachedFolder | None:
        """What is visible at a path below the root."""
        found: CachedFile | CachedFolder | None = self.root
        for name in path.split("/"):
            if name:
                found = found.visible.get(name) if isinstance(found, CachedFolder) else None
        return found

    def file(self, path: str) -> CachedFile:
        """The file at a path; FileNotFoundError when there is none."""
        found = self.find(path)
        if not isinstance(found, CachedFile):
            raise FileNotFoundError(path)
        return found

    def folder(self, path: str) -> CachedFolder:
        """The folder at a path; FileNotFoundError when there is none."""
        found = self.find(path)
        if not isinstance(found, CachedFolder):
            raise FileNotFoundError(path)
        return found

    def put(self, path: str, target: CachedFile | CachedFolder | None) -> None:
        """Let a path stand for something new, or for nothing."""
        self._change((self._entry(path, target),))

    def rename(self, source: str, target: str) -> None:
        """Give a file or folder another name, in one step."""
        moved = self.find(source)
        if moved is None:
            raise FileNotFoundError(source)
        self._change((self._entry(target, moved), self._entry(source, None)))

    def _entry(self, path: str, target: CachedFile | CachedFolder | None) -> Entry:
        parent, _, name = path.rpartition("/")
        return Entry(self.folder(parent), name, target)

    def _change(self, change: tuple[Entry, ...]) -> None:
        for entry in change:
            _set(entry.folder.visible, entry)
        self._waiting.append(change)

    def sync_folder(self, folder: CachedFolder) -> None:
        """The names in a folder are on the device now."""
        waiting = self._waiting
        self._waiting = []
        for change in waiting:
            if any(entry.folder is folder for entry in change):
                _bring_to_device(change)
            else:
                self._waiting.append(change)

    def lose_power(self, chance: Random, *, names_in_order: bool) -> None:
        """Only what is on the device remains, and by chance some of what waited."""
        if names_in_order:
            survived = self._waiting[: chance.choice((0, len(self._waiting), chance.randint(0, len(self._waiting))))]
        else:
            share = chance.choice((0.0, 1.0, chance.random()))
            survived = [change for change in self._waiting if chance.random() < share]
        for change in survived:
            _bring_to_device(change)
        self._waiting.clear()
        for _, folder in list(_walk(self.root, "", on_device=True)):
            if isinstance(folder, CachedFolder):
                folder.visible = dict(folder.on_device)
        for _, file in self.walk():
            if isinstance(file, CachedFile):
                file.lose_power(chance)

    def walk(self) -> Iterator[tuple[str, CachedFile | CachedFolder]]:
        """All visible folders and files with their paths, a folder before what is in it."""
        return _walk(self.root, "", on_device=False)


def _walk(folder: CachedFolder, path: str, *, on_device: bool) -> Iterator[tuple[str, CachedFile | CachedFolder]]:
    if not path:
        yield path, folder
    for name, entry in sorted((folder.on_device if on_device else folder.visible).items()):
        below = f"{path}/{name}" if path else name
        yield below, entry
        if isinstance(entry, CachedFolder):
            yield from _walk(entry, below, on_device=on_device)


def _bring_to_device(change: tuple[Entry, ...]) -> None:
    for entry in change:
        _set(entry.folder.on_device, entry)


def _set(names: dict[str, CachedFile | CachedFolder], entry: Entry) -> None:
    if entry.target is None:
        names.pop(entry.name, None)
    else:
        names[entry.name] = entry.target
