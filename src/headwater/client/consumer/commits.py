"""Committing offsets and asking for committed ones: requests, what answers mean, and when to try again.

The membership says in whose name; it is told of answers that concern it. `AutoCommit` decides when, without a clock.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Final, Protocol

from headwater.client.back_off import BackOff
from headwater.client.consumer.group_errors import CommitFailedError, FencedInstanceError, RebalanceInProgressError
from headwater.client.consumer.group_link import OFFSETS, GroupLink
from headwater.client.consumer.group_statistics import GroupStatistics
from headwater.client.consumer.listeners import call
from headwater.client.consumer.membership import CommitCallback, GroupMetadata, OffsetAndMetadata, Offsets
from headwater.client.consumer.offset_requests import commit_request, read_committed_offsets
from headwater.client.errors import ClientError, RefusedError, TimedOutError
from headwater.protocol.kafka_types import ErrorCode
from headwater.types import TopicPartition

from kio.schema.offset_commit.v9.response import OffsetCommitResponse  # isort: skip

logger = logging.getLogger(__name__)


class Verdict(Enum):
    """What becomes of a commit or a look-up after an answer."""

    DONE = auto()
    AGAIN = auto()
    REBALANCING = auto()
    OUT_OF_GROUP = auto()
    FENCED = auto()
    REFUSED = auto()


_VERDICTS: Final = {
    ErrorCode.none: Verdict.DONE,
    ErrorCode.coordinator_load_in_progress: Verdict.AGAIN,
    ErrorCode.coordinator_not_available: Verdict.AGAIN,
    ErrorCode.not_coordinator: Verdict.AGAIN,
    ErrorCode.request_timed_out: Verdict.AGAIN,
    ErrorCode.unknown_topic_or_partition: Verdict.AGAIN,
    ErrorCode.unstable_offset_commit: Verdict.AGAIN,
    ErrorCode.rebalance_in_progress: Verdict.REBALANCING,
    ErrorCode.unknown_member_id: Verdict.OUT_OF_GROUP,
    ErrorCode.illegal_generation: Verdict.OUT_OF_GROUP,
    ErrorCode.stale_member_epoch: Verdict.OUT_OF_GROUP,
    ErrorCode.fenced_instance_id: Verdict.FENCED,
}

_LOOK_UP_AGAIN: Final = frozenset(
    {code for code, verdict in _VERDICTS.items() if verdict is Verdict.AGAIN} - {ErrorCode.unknown_topic_or_partition}
    | {ErrorCode.stale_member_epoch, ErrorCode.unknown_member_id}
)
"""A look-up by a member whose epoch has just changed is right with the new one, or as nobody's."""


def verdict_on(code: ErrorCode) -> Verdict:
    """What an answer's code means for the request."""
    return _VERDICTS.get(code, Verdict.REFUSED)


class Committer(Protocol):
    """In whose name offsets are committed."""

    def commits_as(self) -> GroupMetadata:
        """Who we are, or `RebalanceInProgressError` or `CommitFailedError` when that is nobody just now."""

    def commit_answered(self, code: ErrorCode, sent: GroupMetadata) -> Verdict:
        """Takes in an answer that is not a success, and says what it means for the commit."""


class Commits:
    """Commits for one group, one after the other in the order in which they were asked for.

    `on_committed` hears of each that the group has taken; of an asynchronous one when its call-back does.
    """

    def __init__(
        self,
        link: GroupLink,
        committer: Committer,
        back_off: BackOff,
        timeout_s: float,
        *,
        statistics: GroupStatistics,
        on_committed: Callable[[Offsets], None],
    ) -> None:
        self._link = link
        self._committer = committer
        self._back_off = back_off
        self._timeout_s = timeout_s
        self._statistics = statistics
        self._on_committed = on_committed
        self._in_order = asyncio.Lock()
        self._pending: set[asyncio.Task[None]] = set()
        self._ended: deque[tuple[CommitCallback, Offsets, Exception | None]] = deque()

    async def commit(self, offsets: Offsets, timeout_s: float | None = None) -> None:
        """Commits, and tries again what may pass, until the deadline."""
        await self.run_callbacks()
        if self._pending:
            await asyncio.sleep(0)  # those that were asked for before get in line before
        deadline_s = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        failures = 0
        while True:
            failure = ClientError("its coordinator could not take the commit")
            try:
                async with self._in_order:
                    if await self._attempt(offsets) is Verdict.DONE:
                        self._tell_committed(offsets)
                        return
            except ClientError as error:
                if not self._link.client.may_pass(error):
                    raise
                failure = error
            failures += 1
            await self._pause(failures, deadline_s, failure)

    def commit_async(self, offsets: Offsets, callback: CommitCallback | None = None) -> None:
        """Sends one attempt, after those that were asked for before it."""
        task = asyncio.get_running_loop().create_task(self._commit_once(offsets, callback or _log_failure))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    async def run_callbacks(self) -> None:
        """Tells of the asynchronous commits that have ended since the last time."""
        while self._ended:
            callback, offsets, error = self._ended.popleft()
            if error is None:
                self._tell_committed(offsets)
            await call(callback, offsets, error)

    async def settle(self, timeout_s: float) -> None:
        """Waits for what is under way, and tells how it ended."""
        if self._pending:
            await asyncio.wait(self._pending, timeout=timeout_s)
        await self.run_callbacks()

    def cancel(self) -> None:
        """Gives up what is still under way."""
        for task in self._pending:
            task.cancel()

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None, member: Callable[[], GroupMetadata | None]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What is committed; `member` is named where the protocol wants that."""
        wanted = list(dict.fromkeys(partitions))
        deadline_s = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        failures = 0
        while wanted:
            failure: ClientError
            try:
                found = await read_committed_offsets(self._link, wanted, member())
            except ClientError as error:
                if not self._link.client.may_pass(error):
                    raise
                failure = error
            else:
                if not isinstance(found, ErrorCode):
                    return found
                self._link.forget_if_moved(found)
                failure = RefusedError(f"committed offsets of group {self._link.group_id}", found)
                if found not in _LOOK_UP_AGAIN:
                    raise failure
            failures += 1
            await self._pause(failures, deadline_s, failure)
        return {}

    async def _commit_once(self, offsets: Offsets, callback: CommitCallback) -> None:
        failure: Exception | None = None
        try:
            async with self._in_order:
                if await self._attempt(offsets) is not Verdict.DONE:
                    failure = TimedOutError(f"group {self._link.group_id} could not take the commit: commit again")
        except Exception as error:
            failure = error
        self._ended.append((callback, offsets, failure))

    async def _attempt(self, offsets: Offsets) -> Verdict:
        if not offsets:
            return Verdict.DONE
        sent = self._committer.commits_as()
        sent_s = time.monotonic()
        try:
            answer = await self._link.send(commit_request(sent, offsets), OffsetCommitResponse, lane=OFFSETS)
        except ClientError:
            self._statistics.commits_failed += 1
            raise
        refused = _first_refused(answer)
        self._statistics.commit_answered(time.monotonic() - sent_s, taken=refused is None)
        return Verdict.DONE if refused is None else self._refused(refused[0], sent, refused[1])

    def _tell_committed(self, offsets: Offsets) -> None:
        if offsets:
            self._on_committed(offsets)

    def _refused(self, code: ErrorCode, sent: GroupMetadata, partition: TopicPartition) -> Verdict:
        self._link.forget_if_moved(code)
        match self._committer.commit_answered(code, sent):
            case Verdict.REBALANCING:
                raise RebalanceInProgressError(self._link.group_id)
            case Verdict.OUT_OF_GROUP:
                raise CommitFailedError(self._link.group_id)
            case Verdict.FENCED:
                raise FencedInstanceError(self._link.group_id, sent.group_instance_id)
            case Verdict.REFUSED:
                raise RefusedError(f"offset of partition {partition} for group {self._link.group_id}", code)
            case verdict:
                return verdict

    async def _pause(self, failures: int, deadline_s: float, failure: ClientError) -> None:
        wait_s = self._back_off.delay_ms(failures, 0.5) / 1000
        if time.monotonic() + wait_s > deadline_s:
            raise TimedOutError(f"group {self._link.group_id}: gave up at the deadline: {failure}") from failure
        await asyncio.sleep(wait_s)


class AutoCommit:
    """When offsets are committed without being asked to. Sans-IO: times are passed in."""

    def __init__(self, interval_s: float, retry_s: float) -> None:
        self._interval_s = interval_s
        self._retry_s = retry_s
        self._next_s: float | None = None

    def due(self, now_s: float) -> bool:
        """Whether it is time; if so, the next time is one interval from now."""
        if self._next_s is None:
            self.restart(now_s)
            return False
        if now_s < self._next_s:
            return False
        self.restart(now_s)
        return True

    def restart(self, now_s: float) -> None:
        """Counts from now: a new assignment came."""
        self._next_s = now_s + self._interval_s

    def failed(self, now_s: float) -> None:
        """The last one failed and may succeed soon."""
        self._next_s = now_s + self._retry_s


def _first_refused(answer: OffsetCommitResponse) -> tuple[ErrorCode, TopicPartition] | None:
    for topic in answer.topics:
        for partition in topic.partitions:
            if partition.error_code is not ErrorCode.none:
                return partition.error_code, TopicPartition(topic.name, int(partition.partition_index))
    return None


def _log_failure(offsets: Offsets, error: Exception | None) -> None:
    if error is not None:
        logger.warning("an asynchronous commit of %d offsets failed: %s", len(offsets), error)
