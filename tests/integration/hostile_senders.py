"""Sends harmed frames to a broker over many connections, as fast as it answers them: a process of its own.

    python -m integration.hostile_senders PORT FRAMES SEED SEEDS_FILE

It prints how many frames were answered or refused; a frame that gets neither within its patience fails the run.
"""

import asyncio
import pickle
import struct
import sys
from pathlib import Path
from random import Random

import uvloop

from fuzz.mutations import harmed

CONNECTIONS = 16
FRAMES_A_CONNECTION = 8
LONGEST_FRAME_BYTES = 64 * 1024
PATIENCE_S = 0.25
"""Answers that others wait for, a rebalance say, may take longer: the connection is then given up."""
_LENGTH = struct.Struct(">i")


class _Answers(asyncio.Protocol):
    """Counts the answers on one connection."""

    def __init__(self) -> None:
        self.count = 0
        self.closed = False
        self.wanted = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._data = bytearray()

    def data_received(self, data: bytes) -> None:
        stream = self._data
        stream += data
        at = 0
        while len(stream) - at >= 4:
            stop = at + 4 + _LENGTH.unpack_from(stream, at)[0]
            assert stop > at, "the broker sent a negative length"
            if stop > len(stream):
                break
            self.count += 1
            at = stop
        del stream[:at]
        if self.count >= self.wanted:
            self._finish()

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        self._finish()

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


class Sender:
    """Frames from a seed, sent until enough of them were looked at by the broker."""

    def __init__(self, port: int, frames: int, seed: int, seeds: list[bytes]) -> None:
        self._port = port
        self._left = frames
        self._chance = Random(seed)
        self._seeds = seeds
        self.looked_at = 0

    async def run(self) -> None:
        """All connections, until it is enough."""
        await asyncio.gather(*(self._keep_sending() for _ in range(CONNECTIONS)))

    async def _keep_sending(self) -> None:
        loop = asyncio.get_running_loop()
        while self._left > 0:
            frames = [self._frame() for _ in range(FRAMES_A_CONNECTION)]
            transport, answers = await loop.create_connection(_Answers, "127.0.0.1", self._port)
            answers.wanted = len(frames)
            transport.write(b"".join(frames))
            try:
                await asyncio.wait_for(asyncio.shield(answers.done), PATIENCE_S)
            except TimeoutError:
                answers.closed = False
            # The frame that closed the connection was looked at too; those behind it were not.
            looked_at = answers.count + (answers.closed and answers.count < len(frames))
            self.looked_at += looked_at
            self._left -= max(looked_at, 1)
            transport.abort()

    def _frame(self) -> bytes:
        chance = self._chance
        seed = chance.choice(self._seeds)
        frame = harmed(seed, chance.choice(self._seeds), chance)[:LONGEST_FRAME_BYTES]
        if len(frame) >= 4 and chance.random() < 0.9:
            frame = seed[:4] + frame[4:]  # else most would be refused for an API that is not served
        size = len(frame) if chance.random() < 0.99 else chance.choice((-1, 0, 2**31 - 1, len(frame) + 1))
        return _LENGTH.pack(size) + frame


def main() -> None:
    """Runs in a process of its own."""
    port, frames, seed = (int(each) for each in sys.argv[1:4])
    seeds: list[bytes] = pickle.loads(Path(sys.argv[4]).read_bytes())
    sender = Sender(port, frames, seed, seeds)
    uvloop.run(sender.run())
    print(sender.looked_at)


if __name__ == "__main__":
    main()
