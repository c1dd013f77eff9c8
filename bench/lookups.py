"""Look-ups by time: connections that ask for random timestamps, one after the other, and check every answer."""

import random
import select
import socket
import struct
import time
from array import array
from contextlib import ExitStack

import wire

_STALL_S = 20.0
_TIME = struct.Struct(">q")


class WrongAnswerError(RuntimeError):
    """An answer that names an error or the wrong record, or none at all."""


class _Asker:
    """One connection and the time it has asked for."""

    def __init__(self, port: int, topic: str, chance: random.Random, first_ms: int, records: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=_STALL_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._request = bytearray(wire.list_offsets_request(topic, 0, 0))
        self._time_position = len(self._request) - _TIME.size
        self._chance = chance
        self._first_ms = first_ms
        self._records = records
        self._wanted_offset = 0
        self.asked_ns = 0

    def ask(self) -> None:
        self._wanted_offset = self._chance.randrange(self._records)
        _TIME.pack_into(self._request, self._time_position, self._first_ms + self._wanted_offset)
        self.asked_ns = time.perf_counter_ns()
        self.socket.sendall(self._request)

    def take_answer(self) -> int:
        """The ns that the answer took, which must be the record of that very time."""
        found = wire.listed_offset(wire.read_frame(self.socket))
        taken_ns = time.perf_counter_ns() - self.asked_ns
        if found != self._wanted_offset:
            raise WrongAnswerError(f"offset {found} was answered where {self._wanted_offset} has the time asked for")
        return taken_ns


def run(
    port: int, topic: str, *, first_ms: int, records: int, connections: int, warm_s: float, run_s: float, seed: int
) -> tuple[float, "array[int]"]:
    """Look-ups a second, and what each took in ns, in order; those of the first `warm_s` do not count."""
    chance = random.Random(seed)
    latencies = array("q")
    with ExitStack() as stack:
        poller = stack.enter_context(select.epoll())
        askers: dict[int, _Asker] = {}
        for _ in range(connections):
            asker = _Asker(port, topic, chance, first_ms, records)
            stack.enter_context(asker.socket)
            askers[asker.socket.fileno()] = asker
            poller.register(asker.socket, select.EPOLLIN)
        begin = time.perf_counter() + warm_s
        for asker in askers.values():
            asker.ask()
        while (now := time.perf_counter()) < begin + run_s:
            ready = poller.poll(_STALL_S)
            if not ready:
                raise WrongAnswerError(f"no answer for {_STALL_S:.0f} s")
            for descriptor, _ in ready:
                taken_ns = askers[descriptor].take_answer()
                if now >= begin:
                    latencies.append(taken_ns)
                askers[descriptor].ask()
    return len(latencies) / (now - begin), array("q", sorted(latencies))
