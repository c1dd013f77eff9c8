"""The jars that Spark needs from Maven Central, fetched once by coordinates with the Ivy that pyspark ships.

They lie in `~/.cache/headwater/jars` (or where HEADWATER_JARS says). Who has no way out puts them there by hand. A jar
whose digest is pinned is looked at whenever it is used: Java runs what is in it.
"""

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headwater.lake.errors import LakeError
from headwater.lake.java import require_java
from headwater.private_files import make_private_dirs

_ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True)
class Coordinates:
    """Where a jar lies in a Maven repository."""

    group: str
    artifact: str
    version: str
    sha256: str | None = None
    """The digest that the jar must have; None takes whatever is there."""

    @property
    def file_name(self) -> str:
        """The jar's name in a folder."""
        return f"{self.artifact}-{self.version}.jar"

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"


ICEBERG: Final = Coordinates(
    "org.apache.iceberg",
    "iceberg-spark-runtime-4.1_2.13",
    "1.12.0",
    "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
)
ICEBERG_AWS: Final = Coordinates(
    "org.apache.iceberg",
    "iceberg-aws-bundle",
    ICEBERG.version,
    "dd7e49ffa4ac9b215bed846581991259e3aec9bb2fa08d6cec029c46cd66d957",
)
"""What Iceberg needs to speak to S3, AWS's library with it; wanted only where the warehouse lies there."""
POSTGRESQL: Final = Coordinates(
    "org.postgresql", "postgresql", "42.7.7", "157963d60ae66d607e09466e8c0cdf8087e9cb20d0159899ffca96bca2528460"
)


def jar_folder() -> Path:
    """Where fetched jars are kept."""
    return Path(os.environ.get("HEADWATER_JARS") or Path.home() / ".cache" / "headwater" / "jars")


def jars(wanted: Iterable[Coordinates]) -> list[Path]:
    """The files of these jars; what is not there yet is fetched. A LakeError names one that is another."""
    return [_jar(coordinates) for coordinates in wanted]


def _jar(coordinates: Coordinates) -> Path:
    path = jar_folder() / coordinates.file_name
    if path.exists():
        if _is_other(path, coordinates):
            raise LakeError(
                f"{path} is not the {coordinates} that headwater was tested with: its SHA-256 is not "
                f"{coordinates.sha256}. Remove the file, then it is fetched again (`headwater lake setup`)"
            )
        return path
    make_private_dirs(path.parent)
    last_words = ""
    for _ in range(_ATTEMPTS):
        # A folder of its own and a rename: two jobs that fetch at once never see half a jar.
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            last_words = _retrieve(coordinates, Path(scratch))
            fetched = Path(scratch) / coordinates.file_name
            if fetched.exists():
                if _is_other(fetched, coordinates):
                    raise LakeError(
                        f"what was fetched as {coordinates} is not what headwater was tested with: its SHA-256 is not "
                        f"{coordinates.sha256}. It was thrown away; look at what stands between this machine and "
                        f"Maven Central, or put {coordinates.file_name} into {path.parent} by hand"
                    )
                fetched.rename(path)
                return path
    raise LakeError(
        f"{coordinates} could not be fetched from Maven Central. Put {coordinates.file_name} into {path.parent} by "
        f"hand or look at the network. The last words of Ivy were: {last_words}"
    )


def _is_other(path: Path, coordinates: Coordinates) -> bool:
    if coordinates.sha256 is None:
        return False
    # A tenth of a second for all that a lake in S3 loads.
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() != coordinates.sha256


def _retrieve(coordinates: Coordinates, folder: Path) -> str:
    import pyspark

    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    command = [str(require_java()), "-jar", str(ivy), "-dependency", coordinates.group, coordinates.artifact]
    command += [coordinates.version, "-notransitive", "-retrieve", f"{folder}/[artifact]-[revision].[ext]"]
    # A module may publish its sources and documentation under the same name: only what runs is wanted.
    command += ["-types", "jar", "bundle"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    return " ".join((done.stdout + done.stderr).split()[-60:])
