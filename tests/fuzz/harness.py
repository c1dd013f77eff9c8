"""Fuzzes one decoder: harmed seeds, one after the other, in a process of its own that a crash may end.

    python -m fuzz.harness records --rounds 2000          the inputs that `make test` tries
    python -m fuzz.harness records --seconds 600 --seed 7 others, for longer
    python -m fuzz.harness records --input FILE           one input again, as a failed run saved it

A target is a module `fuzz/NAME_target.py`: `seeds()` gives valid inputs, `one_input(data)` decodes one and raises only
when it found a fault. A fault is also an input that ends the process, takes seconds, or takes memory by the gigabyte.
"""

import argparse
import contextlib
import importlib
import mmap
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Final

from fuzz.mutations import LARGEST_INPUT_BYTES, harmed

HERE: Final = Path(__file__).parent
TARGETS: Final = tuple(sorted(path.name.removesuffix("_target.py") for path in HERE.glob("*_target.py")))
MEMORY_BYTES: Final = 1 << 30
"""So much address space an input may ask for; what believes a claimed length asks for more."""
GROWTH_BYTES: Final = 256 << 20
"""So much a run may keep, caches included."""
SLOW_S: Final = 2.0
"""CPU seconds that one input of at most a mebibyte may take: far above what an honest one needs."""
_LENGTH_BYTES: Final = 8


class TargetFailedError(Exception):
    """A target failed; the message says how to have the same input again."""


def fuzz(name: str, *, seed: int, rounds: int = 0, seconds: float = 0, limit_memory: bool = True) -> str:
    """Runs a target in a process of its own and returns its closing line; raises `TargetFailedError` with the input."""
    descriptor, path = tempfile.mkstemp(prefix=f"headwater-fuzz-{name}-", suffix=".input")
    os.ftruncate(descriptor, _LENGTH_BYTES + LARGEST_INPUT_BYTES)
    os.close(descriptor)
    saved = Path(path)
    command = [sys.executable, "-m", "fuzz.harness", name, "--seed", str(seed), "--current", path]
    command += ["--rounds", str(rounds), "--seconds", str(seconds), *([] if limit_memory else ["--unlimited"])]
    done = subprocess.run(command, cwd=HERE.parent, env=_environment(), capture_output=True, text=True, check=False)
    if done.returncode == 0:
        saved.unlink()
        return done.stdout.strip()
    current = saved.read_bytes()
    size = int.from_bytes(current[:_LENGTH_BYTES], "little")
    saved.write_bytes(current[_LENGTH_BYTES : _LENGTH_BYTES + size])
    raise TargetFailedError(
        f"{name} failed (exit code {done.returncode}) at an input of {size} bytes, kept in {path};\n"
        f"again: cd tests && {Path(sys.executable).name} -m fuzz.harness {name} --input {path}\n"
        f"{done.stdout[-2000:]}{done.stderr[-6000:]}"
    )


def _environment() -> dict[str, str]:
    # Modules that `make sanitize` has built come first.
    folders = [os.environ.get("PYTHONPATH", ""), str(HERE.parent), str(HERE.parent.parent / "bench")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders))}


def main() -> int:
    """Runs one target in this process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--input", type=Path, help="only this input")
    parser.add_argument("--current", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--unlimited", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    module = importlib.import_module(f"fuzz.{given.target}_target")
    one_input: Callable[[bytes], None] = module.one_input
    if given.input is not None:
        one_input(given.input.read_bytes())
        return 0
    seeds: list[bytes] = module.seeds()
    for each in seeds:  # also imports and caches what decoding needs, before memory is limited
        one_input(each)
    if not given.unlimited:
        limit = _address_space_bytes() + MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    with _current_input(given.current) as keep:
        tried = _run(one_input, seeds, keep, given.seed, given.rounds, given.seconds, watch=not given.unlimited)
    print(f"{given.target}: {tried:,} harmed inputs from seed {given.seed}: nothing was found")
    return 0


def _run(
    one_input: Callable[[bytes], None],
    seeds: list[bytes],
    keep: Callable[[bytes], None],
    seed: int,
    rounds: int,
    seconds: float,
    *,
    watch: bool,
) -> int:
    """Inputs until rounds and seconds are both over; `watch` looks at time and memory too."""
    chance = Random(seed)
    ends_s = time.monotonic() + seconds
    settled_bytes = 0
    tried = 0
    while tried < rounds or time.monotonic() < ends_s:
        data = harmed(chance.choice(seeds), chance.choice(seeds), chance)
        keep(data)
        began_s = time.thread_time()
        one_input(data)
        took_s = time.thread_time() - began_s
        if watch and took_s > SLOW_S:
            raise AssertionError(f"an input of {len(data):,} bytes took {took_s:.1f} s of CPU")
        tried += 1
        if tried == 1000:
            settled_bytes = _resident_bytes()
        if watch and settled_bytes and tried % 1000 == 0 and (kept := _resident_bytes() - settled_bytes) > GROWTH_BYTES:
            raise AssertionError(f"{tried:,} inputs left {kept:,} bytes of memory behind")
    return tried


@contextlib.contextmanager
def _current_input(path: Path | None) -> Iterator[Callable[[bytes], None]]:
    """Keeps the input in work in a file that outlives a crash of this process."""
    if path is None:
        yield lambda data: None
        return
    with path.open("r+b") as file, mmap.mmap(file.fileno(), _LENGTH_BYTES + LARGEST_INPUT_BYTES) as memory:

        def keep(data: bytes) -> None:
            memory[:_LENGTH_BYTES] = len(data).to_bytes(_LENGTH_BYTES, "little")
            memory[_LENGTH_BYTES : _LENGTH_BYTES + len(data)] = data

        yield keep


def _address_space_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


if __name__ == "__main__":
    sys.exit(main())
