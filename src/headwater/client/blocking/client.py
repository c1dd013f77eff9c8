"""What the blocking clients have in common: an asyncio client on a thread of its own, and how both begin and end."""

import weakref
from collections.abc import Callable
from typing import Generic, Self, TypeVar

from headwater.client.blocking.io_thread import IoThread

C = TypeVar("C")


class BlockingClient(Generic[C]):
    """An asyncio client whose calls threads can wait for. Subclasses say what it is and how it is closed.

    The thread ends with `close`, with the end of the program, or when nobody holds the client any more.
    """

    _io: IoThread
    _client: C

    def _begin(self, kind: str, make: Callable[[IoThread], C], *, in_turns: bool = False) -> None:
        """Makes the asyncio client on the loop that it is to live on."""

        async def made() -> C:
            return make(self._io)

        self._io = IoThread(kind, in_turns=in_turns)
        # Not `self`, which would never be let go; and at the end of the program too.
        weakref.finalize(self, self._io.abandon)
        try:
            self._client = self._io.run(made())
        except BaseException:
            self._io.abandon()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the client and its thread."""
        raise NotImplementedError
