"""The only module of the log that touches the operating system.

Everything else is given a `FileSystem` and works with the descriptors and paths it hands out, so that a
faulty twin (lost writes, torn writes, a full disk) can take its place. Nothing here knows what the files
mean.
"""

import contextlib
import fcntl
import os
import shutil

from headwater.private_files import FILE_MODE, make_private_dirs, others_may_look_into

READ_WRITE = os.O_RDWR | os.O_CLOEXEC
CREATE = READ_WRITE | os.O_CREAT
TRUNCATE = os.O_TRUNC
READ_ONLY = os.O_RDONLY | os.O_CLOEXEC


class FileSystem:
    """The files of this machine.

    The calls of the hot path are the system calls themselves, without a Python frame around them.
    """

    pread = staticmethod(os.pread)
    pwrite = staticmethod(os.pwrite)
    close = staticmethod(os.close)
    truncate = staticmethod(os.ftruncate)
    rename = staticmethod(os.replace)

    def open(self, path: str, flags: int = CREATE) -> int:
        """Open a file, by default for reading and writing, creating it when absent, for nobody else to read."""
        return os.open(path, flags, FILE_MODE)

    def size(self, descriptor: int) -> int:
        """Bytes in an open file."""
        return os.fstat(descriptor).st_size

    def size_of(self, path: str) -> int:
        """Bytes in the file at `path`."""
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        """When the file at `path` was last written, in milliseconds since 1970."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Let the file at `path` count as last written then."""
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def sync(self, descriptor: int) -> None:
        """Return when the content of the file, and its length, are on the device."""
        os.fdatasync(descriptor)

    def sync_file(self, path: str) -> None:
        """Bring the file at `path` to the device; a file that is gone needs none."""
        try:
            descriptor = os.open(path, READ_ONLY)
        except FileNotFoundError:
            return
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync_dir(self, path: str) -> None:
        """Bring the names in a folder to the device: files made, renamed or removed in it."""
        descriptor = os.open(path, READ_ONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def absolute(self, path: str) -> str:
        """`path` from the root on, whatever folder the process is in."""
        return os.path.abspath(path)

    def exists(self, path: str) -> bool:
        """Whether there is anything at `path`."""
        return os.path.exists(path)

    def list_dir(self, path: str) -> list[str]:
        """Names in a folder, in no order."""
        return os.listdir(path)

    def list_folders(self, path: str) -> list[str]:
        """Names of the folders in a folder, in no order."""
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if entry.is_dir()]

    def make_dirs(self, path: str) -> None:
        """Make a folder and those above it, for nobody else to look into; one that is there already is fine."""
        make_private_dirs(path)

    def others_may_look_into(self, path: str) -> bool:
        """Whether other users of this machine may look into the folder at `path`."""
        return others_may_look_into(path)

    def remove(self, path: str) -> None:
        """Remove a file; one that is gone already is fine."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def remove_tree(self, path: str) -> None:
        """Remove a folder with everything in it; one that is gone already is fine."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    def read_file(self, path: str) -> bytes:
        """The whole content of a file."""
        descriptor = self.open(path, READ_ONLY)
        try:
            size = self.size(descriptor)
            content = self.pread(descriptor, size, 0)
            while len(content) < size and (more := self.pread(descriptor, size - len(content), len(content))):
                content += more
            return content
        finally:
            self.close(descriptor)

    def replace_file(self, path: str, content: bytes, *, durable: bool = True) -> None:
        """Put `content` in the place of the file at `path` in one step: there is the old or the new, always.

        With `durable` it also outlives a loss of power when this returns.
        """
        temporary = path + ".tmp"
        descriptor = self.open(temporary, CREATE | TRUNCATE)
        try:
            self.write_all(descriptor, content, 0)
            if durable:
                self.sync(descriptor)
        finally:
            self.close(descriptor)
        self.rename(temporary, path)
        if durable:
            self.sync_dir(os.path.dirname(path))

    def write_all(self, descriptor: int, content: bytes | bytearray | memoryview, position: int) -> None:
        """Write all of `content` at `position`, in as many calls as it takes."""
        view = memoryview(content)
        while view:
            written = self.pwrite(descriptor, view, position)
            view = view[written:]
            position += written

    def lock(self, path: str) -> int | None:
        """Hold the lock file at `path` until the result is closed; None when another process holds it."""
        descriptor = self.open(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return None
        return descriptor
