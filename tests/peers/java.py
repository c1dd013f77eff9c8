"""Finds a Java that Apache Kafka 4.x can run on. Looks only: it installs nothing."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

OLDEST_VERSION = 17


def find_java() -> Path | None:
    """The first `java` of version 17 or newer: JAVA_HOME's, PATH's, then those under /usr/lib/jvm."""
    for candidate in _candidates():
        if candidate.exists() and java_version(candidate) >= OLDEST_VERSION:
            return candidate
    return None


def java_version(java: Path) -> int:
    """The major version of this `java`, 0 when unknown. Its `release` file spares a start of the JVM."""
    release = java.resolve().parent.parent / "release"
    if release.exists():
        match = re.search(r'^JAVA_VERSION="(\d+)', release.read_text(), re.MULTILINE)
    else:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
        match = re.search(r'version "(\d+)', said.stderr)
    return int(match.group(1)) if match else 0


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield Path(on_path)
    yield from sorted(Path("/usr/lib/jvm").glob("*/bin/java"))
