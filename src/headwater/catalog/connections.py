"""The catalog's connections: uvicorn's, which end when nothing useful comes on them. Reads no request."""

import asyncio
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS: Final = 1_000
HEAD_TIMEOUT_S: Final = 30.0
"""In this time the head of a request must be complete, and whatever comes behind an answered one must end."""
ANSWER_TIMEOUT_S: Final = 30.0
"""In this time a client must take some of an answer that is more than the system's buffers hold."""
MOST_HEAD_BYTES: Final = 64 << 10


class BoundedConnection(H11Protocol):
    """One connection. uvicorn itself waits without end for the rest of a head, and for who does not read its answer."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._deadline: asyncio.TimerHandle | None = None
        self._progress: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Takes a connection, or closes it when there are too many."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
            return
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """Takes bytes."""
        super().data_received(data)
        is_answered = self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY
        if self.conn.their_state is h11.IDLE or is_answered:
            self._wait_for_head()
        else:
            self._stop_waiting()

    def pause_writing(self) -> None:
        """The client does not take its answer as fast as it is written."""
        super().pause_writing()
        self._await_progress()

    def resume_writing(self) -> None:
        """The client has taken most of it."""
        self._stop_awaiting_progress()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forgets the connection."""
        self._stop_waiting()
        self._stop_awaiting_progress()
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        if self._deadline is None and not self.transport.is_closing():
            self._deadline = self.loop.call_later(HEAD_TIMEOUT_S, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _await_progress(self) -> None:
        left_bytes = self.transport.get_write_buffer_size()
        self._progress = self.loop.call_later(ANSWER_TIMEOUT_S, self._look_at_progress, left_bytes)

    def _look_at_progress(self, left_bytes: int) -> None:
        if self.transport.get_write_buffer_size() < left_bytes:
            self._await_progress()
        else:
            self.transport.abort()

    def _stop_awaiting_progress(self) -> None:
        if self._progress is not None:
            self._progress.cancel()
            self._progress = None
