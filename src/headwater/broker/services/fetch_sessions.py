"""Fetch sessions (KIP-227): a client names its partitions once and then sends and gets only what changes.

Rules, as in Kafka:
- Epoch -1 asks for a fetch without a session (and ends the one it names), epoch 0 for a new session; a full cache
  answers such a request without one.
- Every other epoch must be the one after the last; it wraps from 2**31-1 to 1.
- An incremental answer holds only partitions with records, an error, or a changed high watermark or log start.
- A partition that gave records goes to the back of the row, so that none starves behind a busy one.
- A partition that is named several times is answered once, by what was said of it last.

Beyond Kafka's rules all sessions together hold a bounded number of partitions: a request that would exceed it is
answered without a session, and a session that would grow beyond it ends, as one does that had to make room.
"""

import random
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from headwater.protocol.errors import ApiError, ErrorCode
from headwater.protocol.fetch_lane import FetchPartition, FetchRequest, PartitionResult

_FINAL_EPOCH: Final = -1
_INITIAL_EPOCH: Final = 0
_EVICTABLE_AFTER_S: Final = 120.0
_MOST_PARTITIONS: Final = 500_000
"""Of all sessions together. One takes about 250 bytes."""

Key = tuple[str | bytes, int]


@dataclass(slots=True)
class CachedPartition:
    """What a session remembers of a partition: the client's wish and what it was last told."""

    wanted: FetchPartition
    high_watermark: int = -1
    log_start_offset: int = -1

    def must_tell(self, result: PartitionResult) -> bool:
        """Whether `result` holds news for the client; remembers it as told."""
        news = bool(result.records_size) or result.error_code != 0 or result.diverging_epoch is not None
        if result.high_watermark != self.high_watermark or result.log_start_offset != self.log_start_offset:
            news = True
        # An error is repeated until it is over, and what follows it is news again.
        self.high_watermark = -1 if result.error_code else result.high_watermark
        self.log_start_offset = result.log_start_offset
        return news


@dataclass(slots=True)
class Session:
    """One client's session."""

    session_id: int
    by_topic_id: bool
    epoch: int = 1
    last_used_s: float = 0.0
    partitions: "OrderedDict[Key, CachedPartition]" = field(default_factory=OrderedDict)

    def update(self, request: FetchRequest) -> None:
        """Takes in the partitions that the client added, changed or forgot."""
        for topic, wanted in flatten(request):
            cached = self.partitions.get((topic, wanted.partition))
            if cached is None:
                self.partitions[topic, wanted.partition] = CachedPartition(wanted)
            else:
                cached.wanted = wanted
        for topic, indexes in request.forgotten:
            for index in indexes:
                self.partitions.pop((topic, index), None)


class FetchContext:
    """How one Fetch is to be answered: which partitions, and what of the results the client needs."""

    __slots__ = ("_session", "full", "session_id", "wanted")

    def __init__(self, wanted: list[tuple[str | bytes, FetchPartition]], session: Session | None, full: bool) -> None:
        self.wanted = wanted
        self.session_id = 0 if session is None else session.session_id
        self.full = full
        self._session = session

    def select(self, results: list[tuple[str | bytes, PartitionResult]]) -> list[tuple[str | bytes, PartitionResult]]:
        """The results to send; the session is told what goes out."""
        if self._session is None:
            return results
        selected = []
        partitions = self._session.partitions
        for topic, result in results:
            cached = partitions.get((topic, result.partition))
            if cached is None:
                continue
            news = cached.must_tell(result)
            if news or self.full:
                selected.append((topic, result))
            if result.records_size:
                partitions.move_to_end((topic, result.partition))
        return selected


class FetchSessions:
    """The cache of sessions, bounded by `max.incremental.fetch.session.cache.slots`."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._sessions: OrderedDict[int, Session] = OrderedDict()
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def context(self, request: FetchRequest, by_topic_id: bool, now_s: float) -> FetchContext:
        """The context of a request; ApiError for a session that is unknown or out of step."""
        if request.session_epoch in (_FINAL_EPOCH, _INITIAL_EPOCH):
            if request.session_id in self._sessions:
                self._end(self._sessions[request.session_id])
            wanted = list({(topic, each.partition): (topic, each) for topic, each in flatten(request)}.values())
            if request.session_epoch == _FINAL_EPOCH or not wanted:
                return FetchContext(wanted, None, full=True)
            return FetchContext(wanted, self._new_session(request, len(wanted), by_topic_id, now_s), full=True)
        session = self._sessions.get(request.session_id)
        if session is None:
            raise ApiError(ErrorCode.fetch_session_id_not_found, f"no fetch session {request.session_id}")
        if session.epoch != request.session_epoch:
            raise ApiError(ErrorCode.invalid_fetch_session_epoch, f"the session is at epoch {session.epoch}")
        if session.by_topic_id != by_topic_id:
            raise ApiError(ErrorCode.fetch_session_topic_id_error, "the session names its topics the other way")
        before = len(session.partitions)
        session.update(request)
        self._partitions += len(session.partitions) - before
        if self._partitions > _MOST_PARTITIONS:
            self._end(session)
            raise ApiError(ErrorCode.fetch_session_id_not_found, "the sessions hold too many partitions")
        session.epoch = session.epoch % 0x7FFFFFFF + 1
        session.last_used_s = now_s
        self._sessions.move_to_end(session.session_id)
        wanted = [(topic, cached.wanted) for (topic, _), cached in session.partitions.items()]
        if not session.partitions:
            self._end(session)
            return FetchContext(wanted, None, full=True)
        return FetchContext(wanted, session, full=False)

    def _new_session(self, request: FetchRequest, partitions: int, by_topic_id: bool, now_s: float) -> Session | None:
        while len(self._sessions) >= self._slots or self._partitions + partitions > _MOST_PARTITIONS:
            if not self._evict_one(now_s):
                return None
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = random.randrange(1, 0x7FFFFFFF)  # noqa: S311 -- as in Kafka, it only keeps mix-ups apart
        session = Session(session_id, by_topic_id, last_used_s=now_s)
        session.update(request)
        self._sessions[session_id] = session
        self._partitions += len(session.partitions)
        return session

    def _end(self, session: Session) -> None:
        del self._sessions[session.session_id]
        self._partitions -= len(session.partitions)

    def _evict_one(self, now_s: float) -> bool:
        """Makes room by dropping the session that was unused for longest, if for long enough."""
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_s - oldest.last_used_s < _EVICTABLE_AFTER_S:
            return False
        self._end(oldest)
        return True


def flatten(request: FetchRequest) -> Iterable[tuple[str | bytes, FetchPartition]]:
    """The partitions of a request with their topics."""
    for topic, partitions in request.topics:
        for wanted in partitions:
            yield topic, wanted
