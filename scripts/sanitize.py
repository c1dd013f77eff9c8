"""Runs what reads strangers' bytes in C under the sanitizers of gcc: addresses, and what C leaves undefined.

    make sanitize                            the tests of the compiled readers, then five minutes of harmed input
    make sanitize SECONDS=3600 SEED=1234     for longer, beginning with another seed

The compiled modules are built in a copy of the sources, so that nothing of it is left among those that users run. A
finding ends the process that made it with a report; a difference between compiled and plain is printed with its seed.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parents[1]
SANITIZERS = "-fsanitize=address,undefined -fno-sanitize-recover=undefined"
FLAGS = f"{SANITIZERS} -fno-omit-frame-pointer -g -O1"
ROOMS = ("headwater.client", "headwater.lake.shapes", "headwater.log", "headwater.protocol")
FUZZED = ("fetch", "json", "messages", "records")
"""The targets in `tests/fuzz/` whose decoders are compiled."""
TESTS = (
    "tests/unit/lake/shapes",
    "tests/unit/protocol/test_entity_reading.py",
    "tests/unit/protocol/test_lanes.py",
    "tests/unit/protocol/test_records_hostile.py",
)
TOO_LARGE = "tests/unit/lake/shapes/test_large_records.py"
"""Each byte that Python has costs several here, and large records differ from small ones only in that."""


def main() -> None:
    """Builds, tests and fuzzes; exit code 1 if anything was found."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=300)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--only-fuzz", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.only_fuzz:
        _fuzz(given.seconds, given.seed)
        return
    with tempfile.TemporaryDirectory(prefix="headwater-sanitize-") as folder:
        _build(Path(folder))
        environment = _environment(Path(folder))
        again = [__file__, "--only-fuzz", "--seconds", str(given.seconds), "--seed", str(given.seed)]
        for command in (["-m", "pytest", "-q", "-p", "no:cacheprovider", "--deselect", TOO_LARGE, *TESTS], again):
            done = subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, check=False)
            if done.returncode:
                sys.exit(1)


def _build(folder: Path) -> None:
    sources = shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    print("building with sanitizers, which takes some minutes", flush=True)
    asked = {"HEADWATER_CFLAGS": FLAGS, "LDFLAGS": SANITIZERS, "HEADWATER_COMPILE": " ".join(ROOMS)}
    environment = {**os.environ, **asked}
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    subprocess.run(command, cwd=folder, env=environment, check=True)
    built = {path.name.partition(".")[0] for path in sources.rglob("*.so")}
    if not {"json_columns", "column_building", "entity_reading", "record_reading", "fetch_lane"} <= built:
        sys.exit("sanitize: not all was built: is there a gcc with libasan and libubsan?")


def _environment(folder: Path) -> dict[str, str]:
    libraries = [_library(name) for name in ("libasan.so", "libubsan.so")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(each) for each in (folder / "src", ROOT / "tests", ROOT / "bench")),
        "LD_PRELOAD": " ".join(libraries),
        # Python's own memory comes in pools, behind whose walls nobody sees a read too far.
        "PYTHONMALLOC": "malloc",
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def _library(name: str) -> str:
    found = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return found.stdout.strip()


def _fuzz(seconds: float, seed: int) -> None:
    share_s = seconds / (1 + len(FUZZED))
    _fuzz_lanes(share_s, seed)
    from fuzz import harness

    for target in FUZZED:
        # The sanitizers claim terabytes of address space for themselves.
        print(harness.fuzz(target, seed=seed, seconds=share_s, limit_memory=False), flush=True)


def _fuzz_lanes(seconds: float, seed: int) -> None:
    from headwater.lake.shapes import json_columns
    from unit.lake.shapes.mutated_json import check_lanes

    assert not Path(json_columns.__file__).is_relative_to(ROOT), "these are not the modules that were built for this"
    end = time.monotonic() + seconds
    first = seed
    while time.monotonic() < end:
        try:
            check_lanes(Random(seed))
        except Exception:
            print(f"with seed {seed}:", flush=True)
            raise
        seed += 1
    print(f"{seed - first:,} rounds of harmed JSON from seed {first}: nothing was found", flush=True)


if __name__ == "__main__":
    main()
