"""The jars that Spark needs from Maven Central, fetched once by coordinates with the Ivy that pyspark ships.

They lie in `~/.cache/headwater/jars` (or where HEADWATER_JARS says). Who has no way out puts them there by hand.
"""

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

    @property
    def file_name(self) -> str:
        """The jar's name in a folder."""
        return f"{self.artifact}-{self.version}.jar"

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"


ICEBERG: Final = Coordinates("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.12.0")
ICEBERG_AWS: Final = Coordinates("org.apache.iceberg", "iceberg-aws-bundle", ICEBERG.version)
"""What Iceberg needs to speak to S3, AWS's library with it; wanted only where the warehouse lies there."""
POSTGRESQL: Final = Coordinates("org.postgresql", "postgresql", "42.7.7")


def jar_folder() -> Path:
    """Where fetched jars are kept."""
    return Path(os.environ.get("HEADWATER_JARS") or Path.home() / ".cache" / "headwater" / "jars")


def jars(wanted: Iterable[Coordinates]) -> list[Path]:
    """The files of these jars; what is not there yet is fetched."""
    return [_jar(coordinates) for coordinates in wanted]


def _jar(coordinates: Coordinates) -> Path:
    path = jar_folder() / coordinates.file_name
    if path.exists():
        return path
    make_private_dirs(path.parent)
    last_words = ""
    for _ in range(_ATTEMPTS):
        # A folder of its own and a rename: two jobs that fetch at once never see half a jar.
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            last_words = _retrieve(coordinates, Path(scratch))
            fetched = Path(scratch) / coordinates.file_name
            if fetched.exists():
                fetched.rename(path)
                return path
    raise LakeError(
        f"{coordinates} could not be fetched from Maven Central. Put {coordinates.file_name} into {path.parent} by "
        f"hand or look at the network. The last words of Ivy were: {last_words}"
    )


def _retrieve(coordinates: Coordinates, folder: Path) -> str:
    import pyspark

    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    command = [str(require_java()), "-jar", str(ivy), "-dependency", coordinates.group, coordinates.artifact]
    command += [coordinates.version, "-notransitive", "-retrieve", f"{folder}/[artifact]-[revision].[ext]"]
    # A module may publish its sources and documentation under the same name: only what runs is wanted.
    command += ["-types", "jar", "bundle"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    return " ".join((done.stdout + done.stderr).split()[-60:])
