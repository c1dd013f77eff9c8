"""Runs a real PostgreSQL for tests: a cluster of its own in a temporary folder, on a free port of the loopback."""

import contextlib
import itertools
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg
import pytest

from .presence import require
from .processes import dies_with_parent
from .readiness import free_port, tail

HOST = "127.0.0.1"
USER = "headwater"
_STARTUP_TIMEOUT_S = 60
_STOP_TIMEOUT_S = 60
# The server refuses to run as root; these users own nothing that it could harm.
_UNPRIVILEGED = ("postgres", "nobody")
# Nothing here outlives the tests, so nothing has to reach the disk.
_QUICK = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "unix_socket_directories=")


class PostgresqlNotReadyError(Exception):
    """PostgreSQL did not start; the message holds its last words."""


def why_absent() -> str | None:
    """Why PostgreSQL cannot run here; None when it can."""
    if find_binaries() is None:
        return "no PostgreSQL: run scripts/get_peers.py"
    if os.geteuid() == 0 and (shutil.which("setpriv") is None or _unprivileged() is None):
        return "PostgreSQL does not run as root, and there is no other user to run it as"
    return None


def find_binaries() -> Path | None:
    """The folder of `initdb` and `postgres`: the newest of Debian's, else the one on PATH."""
    debian = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if debian:
        return max(debian, key=lambda folder: float(folder.parent.name))
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found else None


class Postgresql:
    """A server for as long as the context lasts."""

    def __init__(self, *settings: str) -> None:
        self.port = free_port()
        self.password = secrets.token_hex(12)
        self._settings = settings
        self._numbers = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = Path()

    def __enter__(self) -> Self:
        # Not below pytest's folder, which is closed to other users.
        self._folder = Path(tempfile.mkdtemp(prefix="headwater-postgresql-"))
        try:
            self._initialise()
            self.start()
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Starts the server on what its folder holds."""
        settings = (*_QUICK, f"port={self.port}", f"listen_addresses={HOST}", *self._settings)
        options = [part for setting in settings for part in ("-c", setting)]
        log = self._folder / "log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                _as_owner([*self._command("postgres"), *options]), stdout=output, stderr=output, cwd=self._folder
            )
        deadline = time.monotonic() + _STARTUP_TIMEOUT_S
        while True:
            with contextlib.suppress(psycopg.OperationalError), self.connect():
                return
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise PostgresqlNotReadyError(f"PostgreSQL does not answer on port {self.port}:\n{tail(log)}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Ends the server; its folder stays for another start."""
        if self._process is not None:
            # At once: it waits for no session and saves nothing that it could not find again in its log.
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(_STOP_TIMEOUT_S)
            self._process = None

    def connect(self, database: str = "postgres", **options: Any) -> "psycopg.Connection[tuple[Any, ...]]":
        """A connection that commits each statement, unless told otherwise."""
        options.setdefault("autocommit", True)
        return psycopg.connect(
            host=HOST, port=self.port, user=USER, password=self.password, dbname=database, connect_timeout=10, **options
        )

    def demand_tls(self, certificate: Path, key: Path) -> None:
        """From now on the server shows this certificate, and lets nobody in without TLS."""
        data = self._folder / "data"
        for name, path in (("server.crt", certificate), ("server.key", key)):
            (data / name).write_bytes(path.read_bytes())
            (data / name).chmod(0o600)
            shutil.chown(data / name, data.stat().st_uid, data.stat().st_gid)
        rules = data / "pg_hba.conf"
        rules.write_text(rules.read_text().replace("\nhost ", "\nhostssl "))
        with self.connect() as connection:
            connection.execute("alter system set ssl = on")
            connection.execute("select pg_reload_conf()")
        deadline = time.monotonic() + _STARTUP_TIMEOUT_S
        while True:
            with contextlib.suppress(psycopg.OperationalError), self.connect(sslmode="require"):
                return
            if time.monotonic() > deadline:
                raise PostgresqlNotReadyError(f"PostgreSQL takes no TLS:\n{tail(self._folder / 'log')}")
            time.sleep(0.05)

    def new_database(self) -> str:
        """The name of a fresh database."""
        name = f"d{next(self._numbers)}"
        with self.connect() as connection:
            connection.execute(f"create database {name}")
        return name

    def jdbc(self, database: str, table: str) -> str:
        """A table as a source of a load."""
        return f"jdbc:postgresql://{HOST}:{self.port}/{database}?user={USER}&password={self.password}#{table}"

    def sqlalchemy(self, database: str) -> str:
        """A database as a catalog wants to be told of it."""
        return f"postgresql+psycopg://{USER}:{self.password}@{HOST}:{self.port}/{database}"

    def _initialise(self) -> None:
        password = self._folder / "password"
        password.write_text(self.password)
        if os.geteuid() == 0:
            owner = _unprivileged()
            assert owner is not None
            for path in (self._folder, password):
                os.chown(path, owner.pw_uid, owner.pw_gid)
        options = ["--username", USER, "--auth=scram-sha-256", "--pwfile", str(password)]
        options += ["--encoding=UTF8", "--locale=C", "--no-sync"]
        done = subprocess.run(
            _as_owner([*self._command("initdb"), *options]),
            capture_output=True,
            text=True,
            check=False,
            cwd=self._folder,
        )
        if done.returncode != 0:
            raise PostgresqlNotReadyError(f"initdb failed:\n{done.stdout}{done.stderr}")

    def _command(self, program: str) -> list[str]:
        binaries = find_binaries()
        assert binaries is not None
        return [str(binaries / program), "-D", str(self._folder / "data")]


def _unprivileged() -> pwd.struct_passwd | None:
    for name in _UNPRIVILEGED:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    return None


def _as_owner(command: Sequence[str]) -> list[str]:
    """The command as the user that may run it; the change of user comes first, as it would undo the wish to die."""
    wrapped = dies_with_parent(command)
    if os.geteuid() != 0:
        return wrapped
    owner = _unprivileged()
    assert owner is not None
    setpriv = wrapped[0]
    return [setpriv, f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}", "--clear-groups", "--", *wrapped]


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Postgresql]:
    """PostgreSQL, one for the whole run: use databases of your own."""
    require(why_absent())
    with Postgresql() as server:
        yield server
