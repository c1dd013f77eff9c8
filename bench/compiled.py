"""Compiles the modules of the load generator into bench/build, once per change of their source."""

import contextlib
import hashlib
import io
import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parent
SOURCES = ("loadgen.py", "rdloop.py", "rdloop.pxd")


def build() -> Path | None:
    """The folder with the compiled modules, or None (with a warning) when they cannot be compiled here."""
    digest = hashlib.sha256(sys.version.encode())
    for name in SOURCES:
        digest.update((BENCH / name).read_bytes())
    folder = BENCH / "build" / f"compiled-{digest.hexdigest()[:12]}"
    if (folder / "done").exists():
        return folder
    noise = io.StringIO()
    try:
        with contextlib.redirect_stdout(noise), contextlib.redirect_stderr(noise):
            _compile(folder)
    # A compiler can fail in many ways, and every one of them has the same remedy.
    except (Exception, SystemExit) as error:
        print(f"warning: the load generator runs uncompiled and slower ({error}): a C compiler is needed")
        return None
    (folder / "done").touch()
    return folder


def _compile(folder: Path) -> None:
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension

    modules = [
        Extension(name.removesuffix(".py"), [str(BENCH / name)], extra_compile_args=["-O2"])
        for name in SOURCES
        if name.endswith(".py")
    ]
    directives = {"language_level": 3, "boundscheck": False, "wraparound": False, "cdivision": True}
    extensions = cythonize(  # type: ignore[no-untyped-call]
        modules, build_dir=str(folder / "c"), compiler_directives=directives, quiet=True, force=True
    )
    distribution = Distribution({"name": "bench", "ext_modules": extensions})
    command = distribution.get_command_obj("build_ext")
    command.build_lib = str(folder)
    command.build_temp = str(folder / "temp")
    command.ensure_finalized()
    command.run()
