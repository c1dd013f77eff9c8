"""A network that misbehaves on request: a TCP proxy on loopback between a client and a broker.

It forwards whole Kafka frames and otherwise does nothing, until it is told to lose, cut, delay, hold back or fall
silent. It looks at no more than the first bytes of a frame: which API a request is of, and which request an answer
belongs to.

A client follows the address that the broker advertises, so the broker must advertise the proxy's:

    with FlakyProxy() as proxy:
        with LocalBroker(config={"advertised.listeners": f"PLAINTEXT://{proxy.address}"}) as broker:
            proxy.forward_to(broker.port)
            proxy.lose_answers("produce")
            ...  # the next Produce is written by the broker, and its client never hears of it
"""

import contextlib
import socket
import struct
import threading
import time
from collections import Counter
from types import TracebackType
from typing import Final, Literal, Self

from headwater.protocol.apis import SERVED

_KEYS: Final = {api.name: api.key for api in SERVED.values()}
_LATE_ANSWER_S: Final = 10.0
_Fault = Literal["lose request", "overtake request", "lose answer", "cut answer", "silence answer"]


class FlakyProxy:
    """A proxy on a free port of 127.0.0.1. APIs are named as in `headwater.protocol.apis`: "produce", "join_group".

    What is lost takes its connection with it, as TCP has it: the client sees a broken connection and must decide
    whether to try again. What is no Kafka frame ends its connection too. `lost` counts what was lost so far, so that
    a test can tell that its fault took place.
    """

    def __init__(self, target_port: int | None = None) -> None:
        self._target_port = target_port
        self._faults: Counter[tuple[_Fault, int]] = Counter()
        self._request_delay_s = 0.0
        self._answer_delay_s = 0.0
        self._links: set[_Link] = set()
        self._overtaken: dict[int, list[threading.Event]] = {}
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        """Where it listens."""
        self.lost = 0
        """How many requests and answers were lost as asked for, cut answers and those of silent connections too."""
        self.overtaken = 0
        """How many requests have reached the broker after one that was made later, as asked for."""

    @property
    def address(self) -> str:
        """`host:port`, for clients and for the broker's `advertised.listeners`."""
        return f"127.0.0.1:{self.port}"

    def forward_to(self, target_port: int) -> None:
        """Connections that come from now on lead to the broker at this port of 127.0.0.1."""
        self._target_port = target_port

    def lose_answers(self, api: str, times: int = 1) -> None:
        """The broker does what the next requests of this API ask for, but its answers get lost."""
        self._plan("lose answer", api, times)

    def lose_requests(self, api: str, times: int = 1) -> None:
        """The next requests of this API get lost before the broker sees them."""
        self._plan("lose request", api, times)

    def cut_answers(self, api: str, times: int = 1) -> None:
        """Half of each of the next answers of this API gets through, then the connection breaks."""
        self._plan("cut answer", api, times)

    def silence_answers(self, api: str, times: int = 1) -> None:
        """The next answers of this API get lost and their connections stay open, but nothing comes by them any more.

        So it looks to a client when a broker's machine loses its power.
        """
        self._plan("silence answer", api, times)

    def silence(self) -> None:
        """All connections that are open now stay open, but nothing comes or goes by them any more. New ones work."""
        with self._lock:
            for link in self._links:
                link.is_silent = True

    def overtake_requests(self, api: str, times: int = 1) -> None:
        """The next requests of this API reach the broker after one that the client makes later by another connection.

        The client sees its connection break and tries again; once that attempt, or any other request of this API, is
        answered, the broker gets the request that was held back.
        """
        self._plan("overtake request", api, times)

    def delay_answers(self, seconds: float) -> None:
        """Every answer takes so much longer; 0 ends that."""
        self._answer_delay_s = seconds

    def delay_requests(self, seconds: float) -> None:
        """Every request takes so much longer; 0 ends that."""
        self._request_delay_s = seconds

    def cut(self) -> None:
        """Breaks all connections that are open now. New ones may be made at once."""
        with self._lock:
            links = list(self._links)
        for link in links:
            link.cut()

    def start(self) -> Self:
        """Takes connections from now on."""
        threading.Thread(target=self._accept, name="flaky-proxy", daemon=True).start()
        return self

    def stop(self) -> None:
        """Breaks all connections and takes no more."""
        # Closing alone would leave the other thread in its call.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for key in list(self._overtaken):
            self._release(key)
        self.cut()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _plan(self, fault: _Fault, api: str, times: int) -> None:
        if api not in _KEYS:
            raise ValueError(f"{api!r} is no API of the broker: name one of {', '.join(sorted(_KEYS))}")
        with self._lock:
            self._faults[fault, _KEYS[api]] += times

    def _happens(self, fault: _Fault, key: int) -> bool:
        """Whether a fault is due now; then it is no longer."""
        with self._lock:
            if not self._faults[fault, key]:
                return False
            self._faults[fault, key] -= 1
            if fault != "overtake request":
                self.lost += 1
            return True

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(client,), name="flaky-proxy", daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        try:
            broker = socket.create_connection(("127.0.0.1", self._target_port or 0))
        except OSError:
            client.close()
            return
        with client, broker:
            link = _Link(client, broker)
            with self._lock:
                self._links.add(link)
            answers = threading.Thread(target=self._forward_answers, args=(link,), name="flaky-proxy", daemon=True)
            answers.start()
            self._forward_requests(link)
            answers.join()
            with self._lock:
                self._links.remove(link)

    def _forward_requests(self, link: "_Link") -> None:
        with link, contextlib.suppress(OSError, struct.error):
            while frame := _read_frame(link.client):
                key, _, correlation_id = struct.unpack_from(">hhi", frame, 4)
                if link.is_silent:
                    continue
                if self._happens("lose request", key):
                    return
                if self._happens("overtake request", key):
                    self._hold_back(link, key, frame)
                    return
                if self._request_delay_s:
                    time.sleep(self._request_delay_s)
                link.asked[correlation_id] = key
                link.broker.sendall(frame)

    def _hold_back(self, link: "_Link", key: int, frame: bytes) -> None:
        """Breaks the client's side, and forwards the request once a later one is answered."""
        later_answered = threading.Event()
        with self._lock:
            self._overtaken.setdefault(key, []).append(later_answered)
        link.is_silent = True
        link.client.shutdown(socket.SHUT_RDWR)
        later_answered.wait()
        link.broker.sendall(frame)
        if link.answer_dropped.wait(_LATE_ANSWER_S):
            self.overtaken += 1

    def _release(self, key: int) -> None:
        with self._lock:
            held = self._overtaken.pop(key, ())
        for later_answered in held:
            later_answered.set()

    def _forward_answers(self, link: "_Link") -> None:
        with link, contextlib.suppress(OSError, struct.error):
            while frame := _read_frame(link.broker):
                (correlation_id,) = struct.unpack_from(">i", frame, 4)
                key = link.asked.pop(correlation_id, -1)
                if link.is_silent:
                    if key == -1:
                        link.answer_dropped.set()
                    continue
                if self._happens("lose answer", key):
                    return
                if self._happens("silence answer", key):
                    link.is_silent = True
                    continue
                if self._answer_delay_s:
                    time.sleep(self._answer_delay_s)
                if self._happens("cut answer", key):
                    link.client.sendall(frame[: len(frame) // 2])
                    return
                link.client.sendall(frame)
                self._release(key)


class _Link:
    """A client's connection, the broker's that belongs to it, and which request asked for which API.

    As a context it is cut at the end: when one direction ends, so does the other.
    """

    def __init__(self, client: socket.socket, broker: socket.socket) -> None:
        self.client = client
        self.broker = broker
        self.asked: dict[int, int] = {}
        self.is_silent = False
        self.answer_dropped = threading.Event()
        """Set when the answer to a request that was held back has come."""
        for side in (client, broker):
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def cut(self) -> None:
        for side in (self.client, self.broker):
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()


def _read_frame(source: socket.socket) -> bytes:
    """The next frame with its length; empty when the connection has ended."""
    frame = bytearray()
    wanted = 4
    while len(frame) < wanted:
        part = source.recv(wanted - len(frame))
        if not part:
            return b""
        frame += part
        if wanted == 4 == len(frame):
            wanted += int.from_bytes(frame)
    return bytes(frame)
