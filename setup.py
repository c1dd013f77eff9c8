"""Compiles the hot loops. They are plain Python in Cython's pure mode: without a compiler they run as is."""

import os

from setuptools import Extension, setup

# Each of these runs uncompiled too; the tests import both forms.
COMPILED = (
    "headwater.client.consumer.fetch_lane",
    "headwater.client.consumer.records",
    "headwater.client.producer.accumulator",
    "headwater.client.producer.batch_building",
    "headwater.client.producer.gathering",
    "headwater.client.producer.handles",
    "headwater.client.producer.memory",
    "headwater.client.producer.partitioners",
    "headwater.client.producer.queues",
    "headwater.client.producer.sending",
    "headwater.client.receiving",
    "headwater.lake.shapes.json_column",
    "headwater.lake.shapes.json_columns",
    "headwater.lake.shapes.json_counting",
    "headwater.lake.shapes.json_reading",
    "headwater.log.cleaning.key_hash",
    "headwater.log.cleaning.offset_map",
    "headwater.log.cleaning.raw_records",
    "headwater.protocol.batches",
    "headwater.protocol.column_building",
    "headwater.protocol.entity_reading",
    "headwater.protocol.fetch_lane",
    "headwater.protocol.headers",
    "headwater.protocol.produce_lane",
    "headwater.protocol.record_checking",
    "headwater.protocol.record_decoding",
    "headwater.protocol.record_encoding",
    "headwater.protocol.record_reading",
    "headwater.protocol.record_writing",
    "headwater.protocol.wire",
)

_CORES = os.cpu_count() or 1


def extensions() -> list[Extension]:
    """The extension modules to build; none when HEADWATER_PURE=1 asks for plain Python."""
    if os.environ.get("HEADWATER_PURE") == "1":
        return []
    from Cython.Build import cythonize

    # `make sanitize` asks for other flags, and for some rooms only.
    flags = os.environ.get("HEADWATER_CFLAGS", "-O3").split()
    rooms = tuple(os.environ.get("HEADWATER_COMPILE", "headwater").split())
    modules = [
        Extension(name, [f"src/{name.replace('.', '/')}.py"], optional=True, extra_compile_args=flags)
        for name in COMPILED
        if name.startswith(rooms)
    ]
    directives = {"language_level": 3, "boundscheck": False, "wraparound": False, "cdivision": True}
    extensions: list[Extension] = cythonize(  # type: ignore[no-untyped-call]
        modules, build_dir="build/cython", compiler_directives=directives, quiet=True
    )
    return extensions


setup(ext_modules=extensions(), options={"build_ext": {"parallel": _CORES}})
