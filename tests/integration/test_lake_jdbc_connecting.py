"""Who asks a database and who reads its rows connect alike: same server, user and password, same demands on TLS."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from headwater.lake import Lake, LakeError
from peers.postgresql import HOST, USER, Postgresql, why_absent
from peers.presence import require
from peers.spark import lake as lake
from peers.spark import pyspark_leaves_sockets

pytestmark = pyspark_leaves_sockets


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """A server that lets nobody in without TLS, a certificate that it is known by, and one that it is not."""

    server: Postgresql
    certificate: Path
    other_certificate: Path

    def url(self, table: str, parameters: str) -> str:
        return f"jdbc:postgresql://{HOST}:{self.server.port}/postgres?{parameters}#{table}"


def make_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    make = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={HOST} -addext subjectAltName=IP:{HOST}"
    subprocess.run([*make.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    require(why_absent())
    require(None if shutil.which("openssl") else "no openssl to make a certificate")
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = make_certificate(folder, "server")
    other, _ = make_certificate(folder, "other")
    with Postgresql() as server:
        server.demand_tls(certificate, key)
        with server.connect() as connection:
            connection.execute("create table orders (id serial primary key)")
            connection.execute("insert into orders select from generate_series(1, 3)")
        yield Guarded(server=server, certificate=certificate, other_certificate=other)


def count(lake: Lake, table: str) -> int:
    return int(lake.sql(f"select count(*) as n from {table}").column("n")[0].as_py())


def test_a_certificate_is_demanded_by_both(lake: Lake, guarded: Guarded) -> None:
    secrets = f"user={USER}&password={guarded.server.password}&sslmode=verify-full"
    known = guarded.url("orders", f"{secrets}&sslrootcert={guarded.certificate}")
    assert lake.load(known, into="tls.known", source_options={"tasks": 2}).counts.rows == 3
    assert count(lake, "tls.known") == 3
    unknown = guarded.url("orders", f"{secrets}&sslrootcert={guarded.other_certificate}")
    with pytest.raises(LakeError, match="certificate verify failed"):
        lake.load(unknown, into="tls.unknown")
    with pytest.raises(LakeError, match=r"no pg_hba\.conf entry .* no encryption"):
        lake.load(guarded.url("orders", secrets.replace("verify-full", "disable")), into="tls.plain")


def test_what_only_the_environment_knows_is_known_to_both(
    lake: Lake, guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Spark's JVM was started without any of these.
    assert lake.spark is not None
    keys = tmp_path / "keys"
    keys.write_text(f"{HOST}:{guarded.server.port}:*:{USER}:{guarded.server.password}\n")
    keys.chmod(0o600)
    for name in ("PGPASSWORD", "PGSSLCERT"):
        assert name not in os.environ
    monkeypatch.setenv("PGPASSFILE", str(keys))
    monkeypatch.setenv("PGUSER", USER)
    monkeypatch.setenv("PGSSLMODE", "verify-ca")
    monkeypatch.setenv("PGSSLROOTCERT", str(guarded.certificate))
    assert lake.load(guarded.url("orders", ""), into="tls.environment").counts.rows == 3
    (load,) = lake.catalog.loads("tls.environment")
    assert guarded.server.password not in repr(load)
    # A server that is away is passed over by who asks, and who reads goes to the one that answered.
    several = guarded.url("orders", "").replace(HOST, f"{HOST}:1,{HOST}", 1)
    assert lake.load(several, into="tls.several", source_options={"tasks": 3}).counts.rows == 3
