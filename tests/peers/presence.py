"""What a test does when a peer is absent: skip with the reason, or fail where all are promised."""

import os
import shutil

import pytest

from . import apache, kafkajs


def require_apache() -> None:
    """Goes on only where Apache Kafka and its tools can run."""
    require(apache.why_absent())


def require_kcat() -> str:
    """The path of kcat; goes on only where there is one."""
    path = shutil.which("kcat")
    require(None if path else "no kcat: run scripts/get_peers.py")
    return path or ""


def require_kafkajs() -> None:
    """Goes on only where kafkajs can run."""
    require(kafkajs.why_absent())


def require(why_absent: str | None) -> None:
    """Skips the test when there is a reason; HEADWATER_REQUIRE_PEERS=1 makes that a failure."""
    if why_absent is None:
        return
    if os.environ.get("HEADWATER_REQUIRE_PEERS") == "1":
        pytest.fail(f"a peer is absent although HEADWATER_REQUIRE_PEERS=1: {why_absent}")
    pytest.skip(why_absent)
