"""Every decoder of strangers' bytes has a fuzz target, and some thousand harmed inputs find nothing in it.

`make soak KIND=fuzz` goes on with other inputs for as long as you like, `make sanitize` under gcc's sanitizers.
"""

import os
import tempfile
from pathlib import Path
from random import Random

import pytest

from fuzz import harness

ROUNDS = 2_000
SEED = Random().randrange(2**31) if os.environ.get("FRESH") else 0


def test_every_decoder_has_a_target() -> None:
    assert set(harness.TARGETS) == {"arrow", "fetch", "json", "messages", "records", "rest"}


@pytest.mark.parametrize("target", harness.TARGETS)
def test_harmed_inputs_end_in_the_documented_error(target: str) -> None:
    assert "nothing was found" in harness.fuzz(target, seed=SEED, rounds=ROUNDS)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("os.abort()", "exit code -6"),
        ("raise ValueError('misread')", "misread"),
        ("bytearray(8 << 30)", "MemoryError"),
        ("while time.thread_time() < 5: pass", "s of CPU"),
    ],
)
def test_the_harness_tells_of_a_fault_and_keeps_its_input(
    fault: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "fuzz"
    folder.mkdir()
    for name in ("__init__", "harness", "mutations"):
        (folder / f"{name}.py").symlink_to(harness.HERE / f"{name}.py")
    (folder / "faulty_target.py").write_text(
        f"import os, time\ndef seeds(): return [b'good']\ndef one_input(data):\n  if data != b'good':\n    {fault}\n"
    )
    monkeypatch.setattr(harness, "HERE", folder)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(harness.TargetFailedError, match=told):
        harness.fuzz("faulty", seed=0, rounds=10)
    (kept,) = tmp_path.glob("*.input")
    assert kept.read_bytes() not in (b"", b"good")
