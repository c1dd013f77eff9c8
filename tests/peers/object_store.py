"""Runs an S3 store for tests: moto's server, a process of its own on a free port of the loopback, with keys made up."""

import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pytest

from .processes import dies_with_parent, end
from .readiness import free_port, tail

if TYPE_CHECKING:
    from pyarrow.fs import S3FileSystem

HOST = "127.0.0.1"
REGION = "eu-west-1"
_STARTUP_TIMEOUT_S = 60
_SERVER = Path(__file__).with_name("object_store_server.py")


class ObjectStoreNotReadyError(Exception):
    """The store did not start; the message holds its last words."""


class ObjectStore:
    """An empty store with one bucket, as long as the context lasts. All in it is in memory."""

    bucket = "bucket"
    page = 20
    """The most objects of which it tells in one answer. S3 tells of a thousand: whoever lists more must ask again."""

    def __init__(self) -> None:
        self.endpoint = f"http://{HOST}:{free_port()}"
        self.secrets = {
            "AWS_ACCESS_KEY_ID": f"AKIA{secrets.token_hex(8).upper()}",
            "AWS_SECRET_ACCESS_KEY": secrets.token_hex(20),
            "AWS_SESSION_TOKEN": secrets.token_hex(32),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="headwater-store-")
        self._log = Path(self._folder.name) / "log"
        port = self.endpoint.rpartition(":")[2]
        command = dies_with_parent([sys.executable, str(_SERVER), str(self.page), "-H", HOST, "-p", port])
        # Its backend writes what is larger than a few KiB into files of its own, below the folder that goes with it.
        environment = {**os.environ, "TMPDIR": self._folder.name}
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
        deadline = time.monotonic() + _STARTUP_TIMEOUT_S
        while True:
            try:
                self.files(allow_bucket_creation=True).create_dir(self.bucket)
            except OSError as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    last_words = tail(self._log)  # the log goes with the folder
                    self.__exit__(None, None, None)
                    raise ObjectStoreNotReadyError(f"no answer at {self.endpoint}: {error}\n{last_words}") from None
                time.sleep(0.05)
            else:
                return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._process is not None:
            end(self._process)
            self._process = None
        self._folder.cleanup()

    @property
    def environment(self) -> Mapping[str, str]:
        """What people set to use such a store. Nobody is to look for keys or a region elsewhere."""
        return {
            **self.secrets,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def files(self, **options: Any) -> "S3FileSystem":
        """The store as somebody else sees it."""
        from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

        return S3FileSystem(
            access_key="somebody",
            secret_key="else",
            endpoint_override=self.endpoint,
            region=REGION,
            retry_strategy=AwsStandardS3RetryStrategy(max_attempts=1),
            **options,
        )

    def put(self, key: str, content: bytes | str) -> None:
        """Writes an object."""
        content = content.encode() if isinstance(content, str) else content
        with self.files().open_output_stream(f"{self.bucket}/{key}") as stream:
            stream.write(content)

    def read(self, key: str) -> bytes:
        """What an object holds."""
        with self.files().open_input_stream(f"{self.bucket}/{key}") as stream:
            content: bytes = stream.read()
        return content

    def requests(self) -> list[str]:
        """Its log so far, in which each request has a line."""
        return self._log.read_text().splitlines()

    def keys(self, prefix: str = "") -> list[str]:
        """The names of all objects that begin so, in their order.

        Marks of folders are none: pyarrow leaves an empty one where it has deleted the last file.
        """
        from pyarrow.fs import FileSelector

        found = self.files().get_file_info(FileSelector(self.bucket, recursive=True))
        names = [each.path.removeprefix(f"{self.bucket}/") for each in found if each.is_file]
        return sorted(name for name in names if name.startswith(prefix))


@pytest.fixture(scope="module")
def object_store() -> Iterator[ObjectStore]:
    """A store, and the environment of this process set to it, for the tests of one file."""
    with ObjectStore() as store, pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name, value in store.environment.items():
            patch.setenv(name, value)
        yield store
