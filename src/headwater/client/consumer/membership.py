"""The port between a consumer and its group: what `consumer.py` drives, whichever protocol the group speaks."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from headwater.client.consumer.listeners import RebalanceListener
from headwater.types import TopicPartition

NO_EPOCH: Final = -1


class OffsetAndMetadata(NamedTuple):
    """An offset to commit or committed: the next to read; the epoch of the record before it; words of the user's."""

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""


class GroupMetadata(NamedTuple):
    """Who a consumer is in its group, as a transaction that commits its offsets must name it."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class CommitCallback(Protocol):
    """Told how an asynchronous commit ended; plain or async."""

    def __call__(self, offsets: Offsets, error: Exception | None) -> Any:
        """Called by a later `poll`, `commit` or `close`, in the order of the commits."""


class Membership(Protocol):
    """A consumer's place in its group. Everything runs on one event loop.

    `poll` is the only thing that changes the assignment, besides `leave` and `close`; listeners run inside of it.
    Heartbeats go on in a task of their own between polls.
    """

    listener: RebalanceListener | None

    async def poll(self, timeout_s: float) -> None:
        """Joins or rejoins when needed, for at most `timeout_s`; runs listeners and call-backs; commits when due.

        What takes longer goes on by itself: the next poll takes it up. Raises what only the user can cure.
        """

    @property
    def poll_needed(self) -> bool:
        """Whether a poll would change something now; `wake`, given when it was made, was called when it began to."""

    async def commit(self, offsets: Offsets | None = None, timeout_s: float | None = None) -> None:
        """Commits these offsets, or all that was handed out before this poll; returns when the group has them."""

    def commit_async(self, offsets: Offsets | None = None, callback: CommitCallback | None = None) -> None:
        """Sends a commit and does not wait; it is not tried again, since a later one may be under way."""

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed, None where it has nothing; waits for transactions that commit there."""

    async def leave(self) -> None:
        """Gives everything up, as `unsubscribe` does: listeners hear of it, nothing is committed by itself."""

    async def close(self, timeout_s: float = 30.0) -> None:
        """Commits what may be, leaves (a static member keeps its place), and ends all tasks."""

    @property
    def metadata(self) -> GroupMetadata:
        """Who this consumer is now."""
