"""Membership in a group of the consumer protocol (KIP-848): the coordinator assigns, heartbeats carry everything.

What answers mean is `ConsumerMember`'s business. The heartbeat task talks to the coordinator; `poll` brings about what
it wants: commits and gives up what must go, takes what came, and lets the next heartbeat say so.
"""

import asyncio
import logging
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable

from headwater.client.client import Client, duration
from headwater.client.consumer.commits import Verdict, verdict_on
from headwater.client.consumer.consumer_member import (
    IN_GROUP,
    LEAVE_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    Assignment,
    Beat,
    ConsumerMember,
    State,
    Wanted,
)
from headwater.client.consumer.group_errors import (
    CommitFailedError,
    FencedInstanceError,
    RebalanceInProgressError,
    refusal,
)
from headwater.client.consumer.group_link import MEMBERSHIP, OFFSETS
from headwater.client.consumer.group_membership import GroupMembership, now_s
from headwater.client.consumer.group_statistics import GroupStatistics
from headwater.client.consumer.group_topics import TopicNames
from headwater.client.consumer.membership import GroupMetadata, Offsets
from headwater.client.consumer.settings import ConsumerSettings
from headwater.client.consumer.subscription import SubscriptionState
from headwater.client.errors import ClientError, UnsupportedError
from headwater.protocol.kafka_types import ErrorCode, TopicName, i32
from headwater.types import TopicPartition

from kio.schema.consumer_group_heartbeat.v1.request import (  # isort: skip
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from kio.schema.consumer_group_heartbeat.v1.response import (  # isort: skip
    ConsumerGroupHeartbeatResponse,
)
from kio.schema.types import GroupId  # isort: skip

logger = logging.getLogger(__name__)

_HEARTBEAT_KEY = 68
_FIRST_WITH_PATTERNS = 1
_FIRST_INTERVAL_S = 5.0
"""Until the coordinator says how often it wants to hear of us."""
_NO_CHANGE_S = -0.001


class ConsumerMembership(GroupMembership):
    """A consumer's place in a group of the consumer protocol; see `Membership`."""

    def __init__(
        self,
        client: Client,
        subscription: SubscriptionState,
        settings: ConsumerSettings,
        wake: Callable[[], None],
        *,
        statistics: GroupStatistics,
        on_committed: Callable[[Offsets], None],
    ) -> None:
        super().__init__(client, subscription, settings, wake, statistics=statistics, on_committed=on_committed)
        self._heartbeats.interval_s = _FIRST_INTERVAL_S
        self._heartbeats.session_s = 0.0  # the coordinator keeps the session, and says when it has ended
        self._member = ConsumerMember(urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="))
        self._names = TopicNames(client)
        self._changed = asyncio.Event()
        self._patterns_by_coordinator = True
        self._refusal: ClientError | None = None
        """Why the membership has failed for good; every poll raises it."""

    @property
    def metadata(self) -> GroupMetadata:
        """Who this consumer is now; its generation is its member epoch."""
        return GroupMetadata(
            self.group_id, self._member.epoch, self._member.member_id, self._settings.group_instance_id
        )

    @property
    def poll_needed(self) -> bool:
        """Whether there is a failure to hear of, or something to give up or to take."""
        return self._failure is not None or self._member.state not in (State.JOINING, State.STABLE, State.ACKNOWLEDGING)

    def commits_as(self) -> GroupMetadata:
        """The member, while it is one; anybody, while partitions are assigned by hand."""
        if not self._subscription.subscribed:
            return GroupMetadata(self.group_id)
        if self._member.state is State.JOINING:
            raise RebalanceInProgressError(self.group_id)
        if self._member.state not in IN_GROUP:
            raise CommitFailedError(self.group_id)
        return self.metadata

    def commit_answered(self, code: ErrorCode, sent: GroupMetadata) -> Verdict:
        """A stale epoch is cured by the next heartbeat, which is sent at once; so is what it says of our membership."""
        verdict = verdict_on(code)
        if verdict is Verdict.OUT_OF_GROUP and self._member.state in IN_GROUP:
            self._hurry()
            if code is ErrorCode.stale_member_epoch:
                return Verdict.AGAIN
        return verdict

    async def leave(self) -> None:
        """Tells listeners and the group; a static member says that it may be back."""
        in_group = self._member.state in IN_GROUP
        if self._subscription.subscribed and (owned := list(self._subscription.assigned)):
            await (self._teller.revoked(owned) if in_group else self._teller.lost(owned))
            self._subscription.assign_from_group(())
        # Only now: listeners may take their time, and their partitions are to be theirs until they are done.
        await self._stop_beating()
        self._member.left()
        self._refusal = None
        self._watched_topics = frozenset()
        if in_group:
            await self._say_goodbye()
        self._teller.raise_failure()

    def _asks_as(self) -> GroupMetadata | None:
        joined = self._subscription.subscribed and self._member.state in IN_GROUP - {State.JOINING}
        return self.metadata if joined else None

    async def _take_part(self, deadline_s: float) -> None:
        while True:
            if self._refusal is not None:
                raise self._refusal
            self._changed.clear()
            state = self._member.state
            if state in (State.OUT, State.FENCED, State.STALE):
                await self._begin()
            elif state is State.RECONCILING:
                await self._reconcile(deadline_s)
            elif self._member.has_news(self._wanted()):
                self._hurry()
            over = self._member.state not in (State.JOINING, State.RECONCILING) or self._subscription.assigned
            if over or now_s() >= deadline_s or self._failure is not None:
                return
            if self._member.state is State.JOINING:
                await self._wait_for_change(deadline_s)

    async def _begin(self) -> None:
        lost = list(self._subscription.assigned)
        await self._teller.lost(lost)
        self._subscription.assign_from_group(())
        self._member.join()
        self._statistics.rebalance_begins(now_s())
        self._heartbeats.begin(now_s())
        self._hurry()

    async def _reconcile(self, deadline_s: float) -> None:
        """Brings about the target: commits, gives up, takes, and has it acknowledged."""
        target = self._member.target
        named = await self._names.of(target)
        if named is None:
            await asyncio.sleep(min(self._settings.retry_backoff_ms / 1000, max(0.0, deadline_s - now_s())))
            return
        assigned = {TopicPartition(named[topic_id], n) for topic_id, numbers in target.items() for n in numbers}
        owned = self._subscription.assigned
        going = [place for place in owned if place not in assigned]
        added = [place for place in assigned if place not in owned]
        if going:
            await self._commit_before_they_go()
            await self._teller.revoked(going)
        if self._member.state is not State.RECONCILING:
            return  # put out of the group meanwhile: the next turn says what is lost
        self._subscription.assign_from_group(sorted(assigned))
        if self._auto_commit is not None:
            self._auto_commit.restart(now_s())
        await self._teller.assigned(added)
        self._member.applied(target)
        self._statistics.rebalance_ended(now_s())
        self._hurry()

    def _wanted(self) -> Wanted:
        pattern = self._subscription.pattern
        if pattern is not None and self._patterns_by_coordinator:
            return Wanted(regex=pattern.pattern)
        return Wanted(self._subscription.subscribed_topics)

    def _picture_changed(self) -> None:
        if self._member.has_news(self._wanted()):
            self._hurry()

    def _hurry(self) -> None:
        self._heartbeats.hurry(now_s())
        self._pulse.set()

    def _news(self) -> None:
        self._changed.set()
        super()._news()

    async def _wait_for_change(self, until_s: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, until_s - now_s())):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _beat_forever(self) -> None:
        beats = self._heartbeats
        while True:
            if self._member.state not in IN_GROUP:
                await self._wait_for_news(None)
            elif beats.poll_missed(now_s()):
                await self._leave_for_silence()
            elif beats.reminder_due(now_s()):
                self._wake()
            elif beats.due(now_s()):
                await self._beat()
            else:
                await self._wait_for_news(now_s() + beats.wait_s(now_s()))

    async def _beat(self) -> None:
        sent_s = now_s()
        self._heartbeats.sent(sent_s)
        try:
            connection = await self._link.connection(MEMBERSHIP)
            self._patterns_by_coordinator = connection.supported(_HEARTBEAT_KEY)[1] >= _FIRST_WITH_PATTERNS
            beat = self._member.beat(self._wanted())
            answer = await self._link.send(self._request(beat), ConsumerGroupHeartbeatResponse)
        except UnsupportedError:
            self._refused(ErrorCode.unsupported_version, None)
        except ClientError as error:
            self._statistics.heartbeats_failed += 1
            self._member.unanswered()
            self._heartbeats.failed(now_s())
            if not self._client.may_pass(error):
                self._fail(error)
            logger.info("a heartbeat to group %s failed: %s", self.group_id, error)
        else:
            self._statistics.heartbeat_answered(now_s() - sent_s)
            self._take_in(answer)
        self._news()

    def _take_in(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        if answer.error_code is not ErrorCode.none:
            self._refused(answer.error_code, answer.error_message)
            return
        self._heartbeats.interval_s = answer.heartbeat_interval.total_seconds()
        self._heartbeats.sent(now_s())
        self._member.answered(int(answer.member_epoch), _assignment(answer))
        if self._member.state is State.RECONCILING:
            self._statistics.rebalance_begins(now_s())
        elif self._member.state is State.STABLE:
            self._statistics.rebalance_ended(now_s())  # one that brought nothing
        if self._member.has_news(self._wanted()):
            self._heartbeats.hurry(now_s())

    def _refused(self, code: ErrorCode, message: str | None) -> None:
        logger.info("group %s answered a heartbeat with %s: %r", self.group_id, code.name, message)
        self._link.forget_if_moved(code)
        self._heartbeats.failed(now_s())
        goes_on = self._member.refused(code)
        if self._member.state not in IN_GROUP:
            self._statistics.rebalance_failed()
        if goes_on:
            return
        if code is ErrorCode.fenced_instance_id:
            self._refusal = FencedInstanceError(self.group_id, self._settings.group_instance_id)
        elif code is ErrorCode.unsupported_version:
            self._refusal = UnsupportedError(
                f"the coordinator of group {self.group_id} does not serve the consumer protocol, or the group "
                "cannot take part in it: use group_protocol='classic'"
            )
        else:
            self._refusal = refusal(self.group_id, code, message)

    async def _leave_for_silence(self) -> None:
        logger.warning(
            "this consumer leaves group %s: it was not polled for max.poll.interval.ms = %d; "
            "poll more often, raise that setting, or lower max.poll.records",
            self.group_id,
            self._settings.max_poll_interval_ms,
        )
        self._member.stale()
        await self._say_goodbye()
        self._news()

    async def _say_goodbye(self) -> None:
        self._statistics.rebalance_given_up()
        static = self._settings.group_instance_id is not None
        beat = Beat(member_id=self._member.member_id, epoch=LEAVE_FOR_A_WHILE_EPOCH if static else LEAVE_EPOCH)
        try:
            await self._link.send(self._request(beat), ConsumerGroupHeartbeatResponse, lane=OFFSETS, timeout_s=5.0)
        except ClientError as error:
            logger.info("group %s did not hear that we leave: %s", self.group_id, error)

    def _request(self, beat: Beat) -> ConsumerGroupHeartbeatRequest:
        settings = self._settings
        wanted = beat.wanted
        return ConsumerGroupHeartbeatRequest(
            group_id=GroupId(self.group_id),
            member_id=beat.member_id,
            member_epoch=i32(beat.epoch),
            instance_id=settings.group_instance_id,
            rack_id=(settings.client_rack or None) if beat.full else None,
            rebalance_timeout=duration(settings.max_poll_interval_ms / 1000 if beat.full else _NO_CHANGE_S),
            subscribed_topic_names=None if wanted is None else tuple(TopicName(t) for t in sorted(wanted.topics)),
            # A pattern that is given up is told by an empty one.
            subscribed_topic_regex=None if wanted is None else wanted.regex or ("" if not beat.full else None),
            server_assignor=settings.group_remote_assignor if beat.full else None,
            topic_partitions=None
            if beat.owned is None
            else tuple(
                TopicPartitions(topic_id=topic_id, partitions=tuple(i32(n) for n in sorted(numbers)))
                for topic_id, numbers in beat.owned.items()
            ),
        )


def _assignment(answer: ConsumerGroupHeartbeatResponse) -> Assignment | None:
    if answer.assignment is None:
        return None
    return {
        topic.topic_id: frozenset(int(n) for n in topic.partitions)
        for topic in answer.assignment.topic_partitions
        if topic.topic_id is not None and topic.partitions
    }
