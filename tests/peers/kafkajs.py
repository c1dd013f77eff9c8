"""kafkajs as a peer: a Node process that tells each of its steps as a line of JSON.

The package comes from `scripts/get_peers.py`. Standard library only.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from .telling import TellingProcess

KAFKAJS_VERSION = "2.2.4"
KAFKAJS_FOLDER = Path(__file__).resolve().parents[2] / ".peers" / f"kafkajs-{KAFKAJS_VERSION}"
KAFKAJS_MODULES = KAFKAJS_FOLDER / "node_modules"
_SCRIPT = Path(__file__).with_name("kafkajs_peer.js")
_PATIENCE_S = 60


def why_absent() -> str | None:
    """Why kafkajs cannot run here, or None when it can."""
    if shutil.which("node") is None:
        return "no Node: run scripts/get_peers.py"
    if not (KAFKAJS_MODULES / "kafkajs" / "package.json").exists():
        return f"no kafkajs {KAFKAJS_VERSION}: run scripts/get_peers.py"
    return None


def run_transactions(bootstrap: str, transactional_id: str, steps: list[dict[str, Any]]) -> list[str]:
    """Runs one transaction for each step, as the script describes them; what became of each."""
    asked = {"bootstrap": bootstrap, "transactionalId": transactional_id, "steps": steps}
    done = subprocess.run(
        _command("transactions", asked),
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
        check=False,
        env=_environment(),
    )
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, f"{told} {done.stderr}"
    return [event["event"] for event in told]


class KafkaJsMember(TellingProcess):
    """A member of a group."""

    def __init__(self, bootstrap: str, group: str, topic: str, client_id: str) -> None:
        self.partitions: list[int] = []
        self.values: list[str] = []
        asked = {"bootstrap": bootstrap, "group": group, "topic": topic, "clientId": client_id}
        super().__init__(_command("member", asked), environment=_environment())

    def heard(self, event: dict[str, Any]) -> None:
        """Keeps its share and what it has read."""
        if event["event"] == "joined":
            self.partitions = sorted(event["partitions"])
        elif event["event"] == "record":
            self.values.append(event["value"])

    def ask_to_end(self) -> None:
        """It leaves the group when its standard input is closed."""
        if self.process.stdin is not None:
            self.process.stdin.close()


def _command(name: str, asked: dict[str, Any]) -> list[str]:
    return [shutil.which("node") or "node", str(_SCRIPT), name, json.dumps(asked)]


def _environment() -> dict[str, str]:
    return {**os.environ, "NODE_PATH": str(KAFKAJS_MODULES), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
