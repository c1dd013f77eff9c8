"""A broker under millions of harmed frames, and what must hold: it lives, does not grow, and others are served.

For the tests (some thousand frames) and `make soak` (as many as you like).
"""

import mmap
import pickle
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import confluent_kafka

import headwater
from fuzz import messages_target
from headwater.admin import NewTopic
from headwater.protocol.apis import CREATE_PARTITIONS, CREATE_TOPICS
from integration.recorded_frames import recorded_frames
from peers.headwater import HeadwaterProcess
from peers.processes import dies_with_parent

SENDERS = 2
SESSION_TIMEOUT_MS = 10_000
GROWTH_BYTES = 64 << 20
"""What the broker may weigh more at the end than once it had seen half of them: caches that fill, and no more."""
LARGEST_BYTES = 256 << 20
ROOT = Path(__file__).resolve().parents[2]
# What harmed frames may leave behind on purpose is soon forgotten again, so that what still grows is a leak.
SETTINGS = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "group.max.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.consumer.max.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "5000",
    "transactional.id.expiration.ms": "30000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "5000",
    "transaction.max.timeout.ms": "10000",
    "producer.id.expiration.ms": "30000",
    "producer.id.expiration.check.interval.ms": "5000",
    "log.retention.bytes": str(32 << 20),
    "log.segment.bytes": str(8 << 20),
    "log.retention.check.interval.ms": "5000",
    "log.segment.delete.delay.ms": "1000",
}


class HostileFrames:
    """See the module's docstring."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._seed = seed
        self._broker = HeadwaterProcess(folder / "broker", SETTINGS)
        self.looked_at = 0
        self.grown_bytes = 0
        self._weights: list[int] = []

    def run(self, frames: int) -> None:
        """Sends so many; raises AssertionError when something does not hold."""
        seeds = self._folder / "seeds.pickle"
        # As often frames of real clients, whose topics exist, as those of all versions of everything.
        recorded, others = list(filter(_is_repeatable, recorded_frames())), messages_target.frames()
        seeds.write_bytes(pickle.dumps(recorded * (len(others) // len(recorded)) + others))
        with self._broker as broker, headwater.Admin(broker.bootstrap) as admin:
            for topic in ("fuzz", "kept"):
                admin.create_topic(topic, partitions=2)
            with _Member(broker.bootstrap) as member:
                senders = [self._start_sender(index, frames // SENDERS, seeds) for index in range(SENDERS)]
                while any(sender.poll() is None for sender in senders):
                    time.sleep(1)
                    self._weights.append(self._weight())
                    self._tidy(admin)
                self.looked_at = sum(self._result(sender) for sender in senders)
                member.check()
            assert "kept" in _topics(admin)
        self._check()

    def _start_sender(self, index: int, frames: int, seeds: Path) -> "subprocess.Popen[str]":
        numbers = [str(self._broker.port), str(frames), str(self._seed * SENDERS + index), str(seeds)]
        command = [sys.executable, "-m", "integration.hostile_senders", *numbers]
        return subprocess.Popen(dies_with_parent(command), cwd=ROOT / "tests", stdout=subprocess.PIPE, text=True)

    @staticmethod
    def _result(sender: "subprocess.Popen[str]") -> int:
        told, _ = sender.communicate()
        assert sender.returncode == 0, "a sender failed; see above"
        return int(told)

    def _weight(self) -> int:
        statm = Path(f"/proc/{self._broker.pid}/statm").read_text().split()
        assert statm[1] != "0", f"the broker died:\n{self._log()[-4000:]}"
        return int(statm[1]) * mmap.PAGESIZE

    def _log(self) -> str:
        return (self._folder / "broker" / "broker.log").read_text("utf-8", "replace")

    @staticmethod
    def _tidy(admin: headwater.Admin) -> None:
        """What harmed requests made on purpose goes, and what they deleted comes back."""
        found = {topic.name: len(topic.partitions) for topic in admin.list_topics()}
        made = {name for name, partitions in found.items() if name != "kept" and (name != "fuzz" or partitions > 16)}
        if made:
            admin.delete_topics(sorted(made))
        if "fuzz" not in found.keys() - made:
            admin.create_topics([NewTopic("fuzz", partitions=2)])

    def _check(self) -> None:
        log = self._log()
        assert "Traceback" not in log, log[log.index("Traceback") - 500 :][:4000]
        assert "this is a bug" not in log
        assert "RuntimeWarning" not in log, log[log.index("RuntimeWarning") - 500 :][:1500]
        half = self._weights[len(self._weights) // 2 :]
        self.grown_bytes = half[-1] - half[0]
        assert self.grown_bytes < GROWTH_BYTES, f"the broker grew by {self.grown_bytes:,} bytes: {half}"
        assert max(self._weights) < LARGEST_BYTES, f"the broker took {max(self._weights):,} bytes"


def _is_repeatable(frame: bytes) -> bool:
    """Whether a frame may be sent millions of times: one that makes partitions would make tens of thousands."""
    return struct.unpack_from(">h", frame)[0] not in (CREATE_TOPICS.key, CREATE_PARTITIONS.key)


def _topics(admin: headwater.Admin) -> set[str]:
    return {topic.name for topic in admin.list_topics()}


class _Member:
    """A member of a group that must never lose its place: librdkafka sends its heartbeats."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unharmed",
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": 500,
            }
        )
        self._assigned = 0
        self._ended = threading.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._poll)

    def __enter__(self) -> "_Member":
        self._consumer.subscribe(["kept"], on_assign=self._on_assign)
        self._thread.start()
        assert self._ready.wait(30), "the member got no partitions"
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._consumer.close()

    def check(self) -> None:
        """One assignment, and it is still the member's."""
        assert self._assigned == 1, f"the group was rebalanced {self._assigned - 1} times: a heartbeat was missed"

    def _on_assign(self, *_: object) -> None:
        self._assigned += 1
        self._ready.set()

    def _poll(self) -> None:
        while not self._ended.is_set():
            self._consumer.poll(0.2)
