"""A worker that is kept quick still finds modules in a zip file that has changed."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path


def test_a_zip_file_is_read_anew_only_when_it_has_changed(tmp_path: Path) -> None:
    # In a process of its own: what is kept quick there stays so.
    script = """
        import importlib, os, sys, zipfile, zipimport
        from headwater.lake.datasource.worker_upkeep import keep_quick

        def write(*names):
            with zipfile.ZipFile("modules.zip", "w") as file:
                for name in names:
                    file.writestr(f"{name}/__init__.py", "")
                    file.writestr(f"{name}/name.py", f"NAME = {name!r}")

        write("first")
        sys.path.insert(0, os.path.abspath("modules.zip"))
        import first.name
        keep_quick()
        importlib.invalidate_caches()
        reads = []
        read_directory = zipimport._read_directory
        zipimport._read_directory = lambda path: reads.append(path) or read_directory(path)
        importlib.invalidate_caches()
        assert reads == [], reads
        write("first", "second")
        importlib.invalidate_caches()
        import second.name
        assert second.name.NAME == "second" and reads, reads
        keep_quick()
        importlib.invalidate_caches()
    """
    worker = {**os.environ, "SPARK_REUSE_WORKER": "1"}
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], cwd=tmp_path, env=worker, check=True, timeout=60)
