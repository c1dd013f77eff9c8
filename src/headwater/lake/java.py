"""Finds the Java that Spark runs on, and puts one in place where it can. Nothing outside the lake needs Java."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from headwater.lake.errors import LakeError

OLDEST_VERSION: Final = 17

_DEBIAN_PACKAGE: Final = "default-jre-headless"


def find_java() -> Path | None:
    """The first `java` of version 17 or newer: JAVA_HOME's, PATH's, then those under /usr/lib/jvm."""
    for candidate in _candidates():
        if candidate.exists() and java_version(candidate) >= OLDEST_VERSION:
            return candidate
    return None


def require_java() -> Path:
    """The same; a LakeError that says what to do where there is none."""
    found = find_java()
    if found is None:
        raise LakeError(
            f"Spark needs Java {OLDEST_VERSION} or newer and none is here: `headwater lake setup` installs it where it "
            f"can (Debian, as root); or install one (Debian: apt-get install {_DEBIAN_PACKAGE}; macOS: brew install "
            "openjdk@17) and put it on PATH or into JAVA_HOME"
        )
    return found


def install_java() -> Path:
    """The Java that is here, else Debian's, if we may install it."""
    found = find_java()
    apt_get = shutil.which("apt-get")
    if found is None and apt_get is not None and os.geteuid() == 0:
        for step in (["update", "-q"], ["install", "-q", "-y", "--no-install-recommends", _DEBIAN_PACKAGE]):
            subprocess.run([apt_get, *step], check=False, capture_output=True)  # noqa: S603
    return require_java()


def java_version(java: Path) -> int:
    """The major version of this `java`, 0 when unknown. Its `release` file spares a start of the JVM."""
    release = java.resolve().parent.parent / "release"
    if release.exists():
        match = re.search(r'^JAVA_VERSION="(\d+)', release.read_text(), re.MULTILINE)
    else:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603
        match = re.search(r'version "(\d+)', said.stderr)
    return int(match.group(1)) if match else 0


def java_home(java: Path) -> Path:
    """The folder that JAVA_HOME names for this `java`."""
    return java.resolve().parent.parent


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield Path(on_path)
    yield from sorted(Path("/usr/lib/jvm").glob("*/bin/java"))
