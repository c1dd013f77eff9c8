"""Membership in a classic group: JoinGroup and SyncGroup, the leader's assignment, heartbeats between polls.

What answers mean is `ClassicMember`'s business; here they are asked for, and the assignment changes hands. Everything
that a listener hears happens in `poll`: first what must be given up, then joining (in a task, which goes on when a poll
ends before it does), then what was assigned.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Collection

from headwater.client.client import Client
from headwater.client.consumer import assignors, classic_requests
from headwater.client.consumer.assignors import Assignor, PartitionRacks
from headwater.client.consumer.classic_member import NO_GENERATION, ClassicMember, Identity, Phase, Step
from headwater.client.consumer.commits import Verdict
from headwater.client.consumer.group_errors import (
    CommitFailedError,
    FencedInstanceError,
    RebalanceInProgressError,
    refusal,
)
from headwater.client.consumer.group_link import OFFSETS
from headwater.client.consumer.group_membership import GroupMembership, now_s
from headwater.client.consumer.group_protocol import Subscription, decode_assignment, decode_subscription
from headwater.client.consumer.group_statistics import GroupStatistics
from headwater.client.consumer.group_topics import racks_of
from headwater.client.consumer.membership import GroupMetadata, Offsets
from headwater.client.consumer.settings import ConsumerSettings
from headwater.client.consumer.subscription import SubscriptionState
from headwater.client.errors import ClientError, RefusedError
from headwater.protocol.kafka_types import ErrorCode
from headwater.types import TopicPartition

from kio.schema.heartbeat.v4.response import HeartbeatResponse  # isort: skip
from kio.schema.join_group.v9.response import JoinGroupResponse  # isort: skip
from kio.schema.leave_group.v5.response import LeaveGroupResponse  # isort: skip
from kio.schema.sync_group.v5.response import SyncGroupResponse  # isort: skip

logger = logging.getLogger(__name__)

_JOIN_LAPSE_S = 5.0
"""How much longer than the rebalance timeout an answer to JoinGroup may take."""


class ClassicMembership(GroupMembership):
    """A consumer's place in a classic group; see `Membership`."""

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
        self._assignors = assignors.named(settings.partition_assignment_strategy)
        self._cooperative = assignors.all_cooperative(self._assignors)
        self._member = ClassicMember()
        self._joining: asyncio.Task[bytes | Step] | None = None
        self._prepared = False
        self._failures = 0
        self._not_before_s = 0.0
        """When the next attempt may be made, after one that failed."""
        self._joined_topics: frozenset[str] | None = None
        self._last_given: Collection[TopicPartition] = ()
        self._last_generation = NO_GENERATION
        self._led: dict[str, PartitionRacks] | None = None
        """What the group's assignment was made from, if we made it: when that changes, it must be made anew."""
        self._led_topics: frozenset[str] = frozenset()
        """The topics that the group wants, whether there are such or not, while we lead it."""

    @property
    def metadata(self) -> GroupMetadata:
        """Who this consumer is now."""
        identity = self._member.identity
        return GroupMetadata(self.group_id, identity.generation, identity.member_id, self._settings.group_instance_id)

    @property
    def poll_needed(self) -> bool:
        """Whether there is a failure to hear of, or a rebalance that waits for a poll."""
        return self._failure is not None or (self._joined_or_idle() and self._rejoin_needed())

    def commits_as(self) -> GroupMetadata:
        """The member, while it is one; anybody, while partitions are assigned by hand."""
        if not self._subscription.subscribed:
            return GroupMetadata(self.group_id)
        if self._member.phase is Phase.STABLE:
            return self.metadata
        if self._member.phase is Phase.UNJOINED:
            raise CommitFailedError(self.group_id)
        raise RebalanceInProgressError(self.group_id)

    def commit_answered(self, code: ErrorCode, sent: GroupMetadata) -> Verdict:
        """Takes in a refused commit."""
        verdict = self._member.commit_answered(code, Identity(sent.member_id, sent.generation_id))
        self._news()
        return verdict

    async def leave(self) -> None:
        """Tells listeners, and the group if we are not static."""
        await self._stop_joining()
        in_group = self._member.phase is Phase.STABLE
        if self._subscription.subscribed and (owned := list(self._subscription.assigned)):
            await (self._teller.revoked(owned) if in_group else self._teller.lost(owned))
            self._subscription.assign_from_group(())
        # Only now: listeners may take their time, and their partitions are to be theirs until they are done.
        await self._stop_beating()
        await self._say_goodbye("the consumer is being closed, or has unsubscribed")
        self._joined_topics = self._led = None
        self._led_topics = frozenset()
        self._watched_topics = frozenset()
        self._prepared = False
        self._teller.raise_failure()

    async def _take_part(self, deadline_s: float) -> None:
        while self._rejoin_needed():
            if self._joining is None:
                await asyncio.sleep(max(0.0, min(self._not_before_s, deadline_s) - now_s()))
                if now_s() < self._not_before_s or not await self._topics_known():
                    return
                if not self._prepared:
                    await self._give_up_what_must_go()
                    self._prepared = True
                self._joining = asyncio.create_task(self._join(), name=f"joining group {self.group_id}")
                self._joining.add_done_callback(lambda _: self._news())
            # Who still has partitions reads on meanwhile; joining ends with a call of `wake`.
            wait_s = 0.0 if self._subscription.assigned else max(0.0, deadline_s - now_s())
            await asyncio.wait([self._joining], timeout=wait_s)
            if not self._joining.done():
                return
            await self._take_up(self._joining)
            if now_s() > deadline_s:
                return

    async def _take_up(self, joining: "asyncio.Task[bytes | Step]") -> None:
        """Goes on where an attempt to join has ended. A poll that is cancelled here is made good by the next."""
        try:
            result = joining.result()
            if isinstance(result, bytes):
                await self._take_over_if_joined(decode_assignment(result))
        except Exception:
            self._joining = None
            raise
        self._joining = None
        if result is Step.JOIN_LATER:
            self._failures += 1
            self._not_before_s = now_s() + self._back_off.delay_ms(self._failures, random.random()) / 1000  # noqa: S311
        if isinstance(result, bytes) or self._member.phase is Phase.UNJOINED:
            self._prepared = False

    async def _take_over_if_joined(self, assigned: Collection[TopicPartition]) -> None:
        self._failures = 0
        if self._member.phase is Phase.STABLE:
            await self._take_over(assigned)
        else:
            self._member.need_rejoin("the membership was lost before the assignment was taken over")

    def _joined_or_idle(self) -> bool:
        return self._joining is None or self._joining.done()

    def _rejoin_needed(self) -> bool:
        if self._joined_topics not in (None, self._subscription.subscribed_topics) and not self._member.rejoin_needed:
            self._member.need_rejoin("the subscription has changed")
        return self._member.rejoin_needed or self._joining is not None

    async def _topics_known(self) -> bool:
        """A pattern is matched at least once before joining, and against fresh metadata before each join."""
        if self._subscription.pattern is None:
            return True
        self._client.need_refresh()
        try:
            await self._client.fresh_metadata()
        except ClientError as error:
            if not self._client.may_pass(error):
                raise
            return False
        return True

    async def _give_up_what_must_go(self) -> None:
        owned = list(self._subscription.assigned)
        if self._member.identity.generation == NO_GENERATION:
            await self._teller.lost(owned)
            self._subscription.assign_from_group(())
            return
        await self._commit_before_they_go()
        going = owned
        if self._cooperative:
            going = [place for place in owned if place.topic not in self._subscription.subscribed_topics]
        await self._teller.revoked(going)
        self._subscription.revoke(going)

    async def _take_over(self, assigned: Collection[TopicPartition]) -> None:
        if not all(map(self._wanted, {place.topic for place in assigned})):
            self._member.need_rejoin("the assignment does not match the subscription, which has changed")
            return
        owned = self._subscription.assigned
        added = [place for place in assigned if place not in owned]
        going = [place for place in owned if place not in set(assigned)]
        if going:
            await self._commit_before_they_go()
            await self._teller.revoked(going)
            self._member.need_rejoin("partitions were given up that others wait for")
        self._last_given, self._last_generation = assigned, self._member.identity.generation
        if self._auto_commit is not None:
            self._auto_commit.restart(now_s())
        self._subscription.assign_from_group(assigned)
        await self._teller.assigned(added)

    def _wanted(self, topic: str) -> bool:
        pattern = self._subscription.pattern
        return topic in self._subscription.subscribed_topics or (pattern is not None and bool(pattern.fullmatch(topic)))

    async def _join(self) -> bytes | Step:
        """JoinGroup and SyncGroup: the assignment's bytes, or when to try again."""
        self._statistics.rebalance_begins(now_s())
        try:
            return await self._join_and_sync()
        except ClientError as error:
            self._statistics.rebalance_failed()
            self._member.join_broken(f"joining failed: {error}")
            if (isinstance(error, RefusedError) and not error.retriable) or not self._client.may_pass(error):
                raise
            logger.info("joining group %s is tried again: %s", self.group_id, error)
            return Step.JOIN_LATER

    async def _join_and_sync(self) -> bytes | Step:
        sent = self._member.begin_join()
        self._led, self._led_topics = None, frozenset()
        self._joined_topics = self._subscription.subscribed_topics
        request = classic_requests.join(
            self.metadata, self._settings, self._offers(), reason=self._member.rejoin_reason
        )
        rebalance_s = self._settings.max_poll_interval_ms / 1000
        answer = await self._link.send(
            request, JoinGroupResponse, timeout_s=max(self._client.timeout_s, rebalance_s + _JOIN_LAPSE_S)
        )
        code = answer.error_code
        step = self._member.join_answered(code, sent, answer.member_id, int(answer.generation_id))
        if step is not Step.GO_ON:
            return self._not_joined(step, code)
        self._heartbeats.begin(now_s())
        assignments = await self._lead(answer) if answer.leader == answer.member_id else {}
        sent = self._member.identity
        synced = await self._link.send(
            classic_requests.sync(self.metadata, answer.protocol_name, assignments), SyncGroupResponse
        )
        step = self._member.sync_answered(synced.error_code, sent)
        if step is not Step.GO_ON:
            return self._not_joined(step, synced.error_code)
        self._statistics.rebalance_ended(now_s())
        return synced.assignment

    def _not_joined(self, step: Step, code: ErrorCode) -> Step:
        self._link.forget_if_moved(code)
        if step is Step.FENCED:
            raise FencedInstanceError(self.group_id, self._settings.group_instance_id)
        if step is Step.REFUSED:
            raise refusal(self.group_id, code)
        if code is not ErrorCode.member_id_required:  # which is how every first attempt ends
            self._statistics.rebalance_failed()
        return step

    def _offers(self) -> list[tuple[str, Subscription]]:
        """What we tell the leader, for each assignor that we know."""
        return [
            (
                assignor.name,
                Subscription(
                    topics=tuple(self._subscription.subscribed_topics),
                    user_data=assignor.user_data(self._last_given, self._last_generation),
                    owned=tuple(self._subscription.assigned),
                    generation=self._member.identity.generation,
                    rack=self._settings.client_rack or None,
                ),
            )
            for assignor in self._assignors
        ]

    async def _lead(self, answer: JoinGroupResponse) -> dict[str, list[TopicPartition]]:
        """Makes the assignment for everybody."""
        assignor = self._assignor(answer.protocol_name)
        members = {
            member.member_id: decode_subscription(
                member.metadata, member=member.member_id, instance_id=member.group_instance_id
            )
            for member in answer.members
        }
        self._led_topics = frozenset(topic for told in members.values() for topic in told.topics)
        self._client.watch(self._led_topics)
        await self._client.fresh_metadata()
        self._led = racks_of(self._client, self._led_topics)
        if answer.skip_assignment:
            return {}
        # Large groups take a while; the event loop has other things to do meanwhile.
        return await asyncio.to_thread(assignor.assign, self._led, members)

    def _assignor(self, name: str | None) -> Assignor:
        for assignor in self._assignors:
            if assignor.name == name:
                return assignor
        raise ClientError(f"group {self.group_id} has chosen assignor {name}, which this consumer did not offer")

    def _picture_changed(self) -> None:
        if self._led is not None and self._member.phase is Phase.STABLE and not self._member.rejoin_needed:
            now = racks_of(self._client, self._led_topics)
            if self._shape(now) != self._shape(self._led):
                self._member.need_rejoin("the topics of the group have other partitions than before")
        if self._member.phase is Phase.STABLE and self._rejoin_needed():
            self._news()

    def _topics_of_interest(self) -> frozenset[str]:
        return self._subscription.subscribed_topics | self._led_topics

    def _shape(self, topics: dict[str, PartitionRacks]) -> object:
        """What an assignment depends on: the racks only where we know our own, as in Java."""
        if self._settings.client_rack:
            return topics
        return {topic: len(partitions) for topic, partitions in topics.items()}

    async def _beat_forever(self) -> None:
        beats = self._heartbeats
        while True:
            if self._member.phase is not Phase.STABLE:
                await self._wait_for_news(None)
            elif beats.poll_missed(now_s()):
                await self._leave_for_silence()
            elif beats.reminder_due(now_s()):
                self._wake()
            elif beats.session_ended(now_s()):
                logger.info("the coordinator of group %s is silent, looking for it anew", self.group_id)
                self._link.forget()
                beats.heard(now_s())
                beats.hurry(now_s())
            elif beats.due(now_s()):
                await self._beat()
            else:
                await self._wait_for_news(now_s() + beats.wait_s(now_s()))

    async def _beat(self) -> None:
        sent = self._member.identity
        sent_s = now_s()
        self._heartbeats.sent(sent_s)
        timeout_s = min(self._client.timeout_s, self._settings.session_timeout_ms / 1000)
        try:
            answer = await self._link.send(
                classic_requests.heartbeat(self.metadata), HeartbeatResponse, timeout_s=timeout_s
            )
        except ClientError as error:
            logger.info("a heartbeat to group %s failed: %s", self.group_id, error)
            self._statistics.heartbeats_failed += 1
            self._heartbeats.failed(now_s())
            return
        self._statistics.heartbeat_answered(now_s() - sent_s)
        code = answer.error_code
        self._link.forget_if_moved(code)
        self._member.heartbeat_answered(code, sent)
        if code in (ErrorCode.none, ErrorCode.rebalance_in_progress):
            self._heartbeats.heard(now_s())
        else:
            logger.info("group %s answered a heartbeat with %s", self.group_id, code.name)
            self._heartbeats.failed(now_s())
        if code is ErrorCode.fenced_instance_id:
            self._fail(FencedInstanceError(self.group_id, self._settings.group_instance_id))
        elif code is ErrorCode.group_authorization_failed:
            self._fail(RefusedError(f"group {self.group_id}", code))
        elif self._member.rejoin_needed:
            self._news()

    async def _leave_for_silence(self) -> None:
        logger.warning(
            "this consumer leaves group %s: it was not polled for max.poll.interval.ms = %d; "
            "poll more often, raise that setting, or lower max.poll.records",
            self.group_id,
            self._settings.max_poll_interval_ms,
        )
        await self._say_goodbye("the consumer was not polled within max.poll.interval.ms")
        self._news()

    async def _say_goodbye(self, reason: str) -> None:
        """Leaves; a static member only forgets, so that it finds its place when it is back in time."""
        member, phase = self.metadata, self._member.phase
        self._member.left(reason)
        self._statistics.rebalance_given_up()
        if member.member_id and phase is not Phase.UNJOINED and member.group_instance_id is None:
            try:
                await self._link.send(
                    classic_requests.leave(member, reason), LeaveGroupResponse, lane=OFFSETS, timeout_s=5.0
                )
            except ClientError as error:
                logger.info("group %s did not hear that we leave: %s", self.group_id, error)

    async def _stop_joining(self) -> None:
        joining, self._joining = self._joining, None
        if joining is not None:
            joining.cancel()
            await asyncio.wait([joining])
