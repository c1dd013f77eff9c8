"""The way to a group's coordinator: looked up when needed, kept, and looked up anew when it is gone or has moved.

A JoinGroup may wait in the broker for minutes, and answers come in order: joining and heartbeats go by one lane,
offsets and good-byes by another.
"""

from typing import Any, Final, TypeVar

from headwater.client.client import Client
from headwater.client.connection import Connection
from headwater.client.coordinators import Coordinated
from headwater.client.errors import CannotConnectError, ConnectionLostError, TimedOutError
from headwater.protocol.kafka_types import ErrorCode

R = TypeVar("R")

MEMBERSHIP: Final = "group"
OFFSETS: Final = "offsets"
MOVED: Final = frozenset({ErrorCode.not_coordinator, ErrorCode.coordinator_not_available})


class GroupLink:
    """Sends requests to the coordinator of one group. One attempt each: who asks knows whether to ask again."""

    def __init__(self, client: Client, group_id: str) -> None:
        self.client = client
        self.group_id = group_id

    def forget(self) -> None:
        """The coordinator is gone or has moved: the next request looks for it."""
        self.client.forget_coordinator(Coordinated.GROUP, self.group_id)

    def forget_if_moved(self, code: ErrorCode) -> None:
        """Looks for the coordinator anew after an answer that says that it is another one."""
        if code in MOVED:
            self.forget()

    async def connection(self, lane: str) -> Connection:
        """A connection to the coordinator."""
        coordinator = await self.client.coordinator(Coordinated.GROUP, self.group_id)
        try:
            return await self.client.connection(coordinator.broker, lane=lane)
        except CannotConnectError:
            self.forget()
            raise

    async def send(
        self, request: Any, answer_type: type[R], *, lane: str = MEMBERSHIP, timeout_s: float | None = None
    ) -> R:
        """Sends one request and waits for its answer."""
        connection = await self.connection(lane)
        try:
            return await connection.send(request, answer_type, timeout_s=timeout_s or self.client.timeout_s)
        except (ConnectionLostError, TimedOutError):
            self.forget()
            raise
