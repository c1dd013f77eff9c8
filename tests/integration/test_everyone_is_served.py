"""Whatever one client asks for, the others are served meanwhile, and the broker does not grow.

Each API that is served gets large requests, with the same items repeated and with lists in lists, while another client
pings and a member of a group with a short session sends its heartbeats. How long the event loop was held is measured by
the broker's own watchdog, and from outside by the pings; in both, only time in which the broker ran counts.
"""

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest

from conformance.actions import create_topic, eventually
from conformance.wire import Wire
from headwater.protocol import apis
from headwater.protocol.apis import SERVED, Api
from integration.attacks import ATTACKS, COMPACTED, PARTITIONS, TOPIC
from integration.group_members import members
from integration.pinger import Pinger
from integration.raw_client import RawClient, batch_of, produce_body, produced
from integration.watched_broker import WatchedBroker

LONGEST_S = 0.1
MOST_MEMORY_KB = 300_000
ATTEMPTS = 3
"""A turn that a request makes long is long each time, one that a busy machine makes long is not."""
_PATIENCE_S = 30
_AT_ONCE = 100

SETTINGS = {
    "group.min.session.timeout.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "node.id": "1",
}


class Scene:
    """A broker with a client that pings and a member of a group."""

    def __init__(self, broker: WatchedBroker, pinger: Pinger, member: confluent_kafka.Consumer) -> None:
        self.broker = broker
        self._pinger = pinger
        self._member = member

    @contextlib.contextmanager
    def everyone_is_served(self) -> Iterator[None]:
        """No ping and no turn of the loop takes long meanwhile, the memory is bounded, the member stays."""
        # An earlier test may have cost it its session.
        eventually(lambda: self._member.poll(0.01) is None and self._member.assignment(), "the member")
        member_id = self._member.memberid()
        before_kb = self._memory_kb("RssAnon")
        # From here on VmHWM is the most that there was.
        Path(f"/proc/{self.broker.pid}/clear_refs").write_text("5")
        rest_kb = self._memory_kb("VmHWM") - before_kb
        self._pinger.worst()
        self.broker.worst_turns()
        yield
        turns, pings = self.broker.worst_turns(), self._pinger.worst()
        grown_kb = self._memory_kb("VmHWM") - rest_kb - before_kb
        assert self._member.poll(0) is None
        seen = f"turns {turns}, pings {pings}, {grown_kb} KiB more"
        assert turns["worst_held_s"] < LONGEST_S, seen
        assert pings["pings"], seen
        assert pings["worst_held_s"] < LONGEST_S, seen
        assert grown_kb < MOST_MEMORY_KB, seen
        assert self._member.memberid() == member_id, "the member has lost its session"

    def check(self, attack: Callable[[], None]) -> None:
        """That everyone is served during the attack, in one attempt at least."""
        for attempt in range(ATTEMPTS):
            try:
                with self.everyone_is_served():
                    attack()
                return
            except AssertionError:
                if attempt == ATTEMPTS - 1:
                    raise

    def _memory_kb(self, what: str) -> int:
        status = Path(f"/proc/{self.broker.pid}/status").read_text().splitlines()
        (line,) = (line for line in status if line.startswith(what))
        return int(line.split()[1])


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with WatchedBroker(tmp_path_factory.mktemp("served"), SETTINGS) as broker:
        with Wire(broker.bootstrap) as wire:
            create_topic(wire, name="pinged", partitions=1)
            create_topic(wire, name=TOPIC, partitions=PARTITIONS)
            create_topic(wire, name=COMPACTED, partitions=1, configs={"cleanup.policy": "compact"})
        with RawClient(broker.bootstrap) as client:
            for partition in range(PARTITIONS):
                assert produced(client.ask(produce_body(TOPIC, batch_of(b"x" * 100), partition=partition)))[0] == 0
        short = {"session_timeout_ms": 2_000, "heartbeat_interval_ms": 200}
        with (
            members(broker.bootstrap, "served", ["pinged"], partitions=1, **short) as (member,),
            Pinger(broker.bootstrap, broker.pid) as pinger,
        ):
            yield Scene(broker, pinger, member)


def attack(bootstrap: str, frames: list[bytes]) -> None:
    """Sends frames and reads what comes back; frames that are many are sent without waiting."""
    client = RawClient(bootstrap, timeout_s=_PATIENCE_S)
    for frame, group in itertools.groupby(frames):
        times = len(list(group))
        if times > _AT_ONCE:
            client.close()
            flood(bootstrap, frame, times)
            client = RawClient(bootstrap, timeout_s=_PATIENCE_S)
            continue
        for _ in range(times):
            try:
                answer = client.ask(frame)
            except ConnectionError:
                answer = None
            if answer is None:
                client.close()
                client = RawClient(bootstrap, timeout_s=_PATIENCE_S)
    client.close()


def flood(bootstrap: str, frame: bytes, times: int) -> None:
    """Sends one frame again and again without waiting for the answers, which are read meanwhile."""
    with RawClient(bootstrap, timeout_s=_PATIENCE_S) as client:
        stream = (len(frame).to_bytes(4, "big") + frame) * times

        def send() -> None:
            with contextlib.suppress(OSError):
                client.sock.sendall(stream)

        sending = threading.Thread(target=send)
        sending.start()
        for _ in range(times):
            if client.receive() is None:
                break
        sending.join()


def test_every_served_api_is_attacked() -> None:
    assert set(ATTACKS) == set(SERVED.values())


@pytest.mark.parametrize("api", SERVED.values(), ids=lambda api: api.name)
def test_everyone_is_served_while_one_client_sends(scene: Scene, api: Api) -> None:
    frames = ATTACKS[api]()
    scene.check(lambda: attack(scene.broker.bootstrap, frames))


def test_everyone_is_served_while_many_clients_send_without_end(scene: Scene) -> None:
    (frame, *_) = ATTACKS[apis.API_VERSIONS]()

    def attack_from_many() -> None:
        floods = [threading.Thread(target=flood, args=(scene.broker.bootstrap, frame, 800)) for _ in range(10)]
        for thread in floods:
            thread.start()
        for thread in floods:
            thread.join()

    scene.check(attack_from_many)
