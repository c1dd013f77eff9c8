"""Where headwater spends its time under one shape of load: cProfile in its process, hottest first.

    .venv/bin/python bench/profile_broker.py c
    .venv/bin/python bench/profile_broker.py a --seconds 10 --lines 40

Profiling slows Python calls, not system calls: read the shares, not the rates.
"""

import argparse
import pstats
import shutil
import sys
import tempfile
from pathlib import Path

import compiled
from servers import Headwater
from shapes import Load


def main() -> None:
    """Runs the shape and prints the profile."""
    parser = argparse.ArgumentParser(description="profile headwater under one shape of load")
    parser.add_argument("shape", choices=("a", "b", "c", "d"), help="as in broker.py; a and b run both ways")
    parser.add_argument("--value-bytes", type=int, choices=(100, 1024), default=1024, help="for a and b")
    parser.add_argument("--seconds", type=float, default=5.0, help="for c and d")
    parser.add_argument("--lines", type=int, default=30, help="how many functions to print")
    arguments = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="bench-profile-"))
    broker = Headwater(profile=work / "profile").start(work / "data")
    try:
        broker.wait_until_it_answers()
        load = Load(compiled.build())
        if arguments.shape in "ab":
            figures = load.bulk(broker, messages=1_000_000, value_bytes=arguments.value_bytes)
        elif arguments.shape == "c":
            figures = load.small_requests(broker, seconds=arguments.seconds)
        else:
            figures = load.end_to_end(broker, seconds=arguments.seconds)
        broker.stop()
        pstats.Stats(str(work / "profile"), stream=sys.stdout).sort_stats("tottime").print_stats(arguments.lines)
        print("while profiled: " + ", ".join(f"{name} {value:,.2f}" for name, value in figures.items()))
    finally:
        broker.kill()
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
