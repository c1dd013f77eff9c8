"""Fetch sessions (KIP-227): a broker remembers what one consumer reads, so that a request names only what changed.

Sans-IO, one `FetchSession` for each broker. `plan` says what the next request has to hold, `answered` or `failed` how
it went; there is one request at a time. A session is dropped and begun anew whenever broker and client might not
agree on what it holds.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from headwater.protocol.kafka_types import ErrorCode
from headwater.types import TopicPartition

NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
"""Says that nothing more is asked for: the broker forgets the session."""
_LAST_EPOCH: Final = 2**31 - 1

SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
        ErrorCode.inconsistent_topic_id,
    }
)


class Wanted(NamedTuple):
    """What is asked of one partition. `topic_id` is None for a broker that knows topics by name only."""

    offset: int
    leader_epoch: int
    max_bytes: int
    topic_id: bytes | None = None


class FetchPlan(NamedTuple):
    """One request: the session it belongs to, what it asks for anew, and what leaves the session."""

    session_id: int
    epoch: int
    ask: Mapping[TopicPartition, Wanted]
    forget: Mapping[TopicPartition, Wanted]

    @property
    def full(self) -> bool:
        """Whether it names everything that is wanted."""
        return self.epoch == FIRST_EPOCH


class FetchSession:
    """The session with one broker. Without one yet, the next request asks for one.

    >>> session = FetchSession()
    >>> session.plan({TopicPartition("orders", 0): Wanted(7, -1, 1048576)}).full
    True
    """

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = FIRST_EPOCH
        self._holds: dict[TopicPartition, Wanted] = {}
        self._by_topic: dict[tuple[str | bytes, int], TopicPartition] = {}

    @property
    def established(self) -> bool:
        """Whether the broker has given the session a number and it is still in use."""
        return self._id != NO_SESSION and self._epoch != FIRST_EPOCH

    @property
    def id(self) -> int:
        """The number that the broker knows the session by, `NO_SESSION` if there is none to end."""
        return self._id

    def plan(self, wanted: Mapping[TopicPartition, Wanted]) -> FetchPlan:
        """What the next request has to hold so that the session holds exactly `wanted`."""
        if self._epoch != FIRST_EPOCH and self._naming_changes(wanted):
            self.failed()
        before, self._holds = self._holds, dict(wanted)
        self._by_topic = {(want.topic_id or p.topic, p.partition): p for p, want in wanted.items()}
        if self._epoch == FIRST_EPOCH:
            # A session that we know of is named so that the broker closes it, and gives us a new one.
            return FetchPlan(self._id, FIRST_EPOCH, self._holds, {})
        ask = {partition: want for partition, want in wanted.items() if before.get(partition) != want}
        forget = {
            partition: had
            for partition, had in before.items()
            if partition not in wanted or wanted[partition].topic_id != had.topic_id
        }
        return FetchPlan(self._id, self._epoch, ask, forget)

    def answered(self, error: ErrorCode, session_id: int) -> bool:
        """An answer came; False when the session broke over it and the whole request is to be repeated."""
        if error is ErrorCode.fetch_session_id_not_found:
            self._begin_anew(NO_SESSION)
        elif error is not ErrorCode.none:
            self.failed()
        elif session_id == NO_SESSION:
            self._begin_anew(NO_SESSION)
        else:
            self._id = session_id
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1
        return error not in SESSION_ERRORS

    def failed(self) -> None:
        """Whether the broker saw the last request is unknown, or what it holds is: close the session and begin anew."""
        self._begin_anew(self._id)

    def asked(self, topic: str | bytes, partition: int) -> tuple[TopicPartition, int] | None:
        """Which partition an answer means, by name or by topic id, and the offset it was asked from.

        None for a partition that is not in the session.
        """
        found = self._by_topic.get((topic, partition))
        return None if found is None else (found, self._holds[found].offset)

    def _begin_anew(self, session_id: int) -> None:
        self._id = session_id
        self._epoch = FIRST_EPOCH

    def _naming_changes(self, wanted: Mapping[TopicPartition, Wanted]) -> bool:
        """A session goes by topic names or by topic ids from beginning to end."""
        by_name = {want.topic_id is None for want in (*self._holds.values(), *wanted.values())}
        return len(by_name) > 1
