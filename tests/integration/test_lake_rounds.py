"""`headwater lake run --continuous` as a process: rounds go on while brokers are away, and it ends as it is told."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headwater import Producer
from headwater.lake.java import find_java
from integration.cli_runner import HEADWATER
from peers.headwater import HeadwaterProcess
from peers.presence import require
from peers.processes import dies_with_parent
from peers.spark import QUICK_START

_PATIENCE_S = 200
_SOON = 'options = { "kafka.default.api.timeout.ms" = "2000" }\n'
"""Brokers that are away are given up after two seconds, not after a minute."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[HeadwaterProcess]:
    require(None if find_java() else "no Java 17 or newer: run scripts/get_peers.py")
    with HeadwaterProcess(tmp_path / "broker", {"auto.create.topics.enable": "true"}) as broker:
        yield broker


class Rounds:
    """The command at work; what it prints is in two files."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        conf = "\n".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in QUICK_START.items())
        (folder / "lake.toml").write_text(
            f'[lake]\nwarehouse = "lake"\nmaster = "local[2]"\nbootstrap = "{bootstrap}"\n[lake.conf]\n{conf}\n'
            f'[[load]]\nsource = "topic:orders"\ninto = "shop.orders"\n{_SOON}'
            f'[[load]]\nsource = "topic:visits"\ninto = "shop.visits"\n{_SOON}'
        )
        self.folder = folder
        self._out, self._err = folder / "out", folder / "err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            command = [HEADWATER, "lake", "run", str(folder / "lake.toml"), "--continuous", "--every", "1s"]
            # The log of a Spark that died is kept: in the folder of the test.
            environment = os.environ | {"TMPDIR": str(folder)}
            self.process = subprocess.Popen(
                dies_with_parent(command), stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=folder, env=environment
            )

    @property
    def out(self) -> list[str]:
        return self._out.read_text().splitlines()

    @property
    def err(self) -> list[str]:
        return self._err.read_text().splitlines()

    def wait_until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not holds():
            assert self.process.poll() is None, (self.out, self.err)
            assert time.monotonic() < deadline, (self.out, self.err)
            time.sleep(0.05)

    def java_pid(self) -> int:
        """The process of Spark, a child of the command."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return next(int(pid) for pid in children if "java" in os.readlink(f"/proc/{pid}/exe"))


@pytest.fixture
def rounds(tmp_path: Path, broker: HeadwaterProcess) -> Iterator[Rounds]:
    produce(broker, "orders", 2)
    produce(broker, "visits", 3)
    rounds = Rounds(tmp_path, broker.bootstrap)
    try:
        yield rounds
    finally:
        rounds.process.kill()
        rounds.process.wait()


def produce(broker: HeadwaterProcess, topic: str, count: int) -> None:
    with Producer(broker.bootstrap) as producer:
        for number in range(count):
            producer.send(topic, json.dumps({"id": number}).encode(), partition=0)


@pytest.mark.timeout(600)
def test_rounds_outlive_their_brokers_and_end_at_ctrl_c(rounds: Rounds, broker: HeadwaterProcess) -> None:
    rounds.wait_until(lambda: sum("rows" in line for line in rounds.out) == 2)
    assert "topic:orders → shop.orders: 2 rows" in "\n".join(rounds.out)
    broker.stop()
    rounds.wait_until(lambda: bool(rounds.err))
    broker.start()
    produce(broker, "visits", 1)
    rounds.wait_until(lambda: "topic:visits → shop.visits: 1 row," in "\n".join(rounds.out))
    rounds.wait_until(lambda: any("works again after" in line for line in rounds.err))
    away = [line for line in rounds.err if "trying again" in line]
    assert len(away) == len(set(away))
    rounds.process.send_signal(signal.SIGINT)
    assert rounds.process.wait(_PATIENCE_S) == 0
    assert "headwater: stopping after the load in work; once more stops it at once" in rounds.err


@pytest.mark.timeout(600)
def test_the_command_does_not_go_on_without_its_spark(rounds: Rounds, broker: HeadwaterProcess) -> None:
    rounds.wait_until(lambda: sum("rows" in line for line in rounds.out) == 2)
    os.kill(rounds.java_pid(), signal.SIGKILL)
    assert rounds.process.wait(_PATIENCE_S) == 1
    assert "Spark has ended" in rounds.err[-1]
    assert list(rounds.folder.glob("headwater-spark-*.log"))
