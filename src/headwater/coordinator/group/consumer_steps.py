"""The steps that decisions about consumer groups are made of, whichever protocol the member speaks.

A member arrives: what it told is kept, the epoch rises when its subscription or the topics changed, a new epoch gets a
target, and the member goes a step towards it. A member goes: it is taken out and the epoch rises; the target follows
with the next heartbeat of anybody.

Deadlines may change while deciding, because they are checked when they are due: one of a member that is gone, or that
has done what it had to, means nothing.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from headwater.config.broker_attributes import BrokerAttributes
from headwater.coordinator.deadlines import Deadlines
from headwater.coordinator.group.assignors import ASSIGNORS
from headwater.coordinator.group.consumer_decision import Decision
from headwater.coordinator.group.consumer_group import ConsumerGroup
from headwater.coordinator.group.consumer_member import JOINING_EPOCH, ConsumerMember, MemberState
from headwater.coordinator.group.consumer_partitions import Partitions
from headwater.coordinator.group.consumer_reconciliation import reconcile
from headwater.coordinator.group.consumer_target import metadata_hash, preferred_assignor, write_target
from headwater.coordinator.group.group import DeadlineName
from headwater.coordinator.group.migration import downgrade
from headwater.coordinator.group.records import ConsumerMemberValue, RegexValue
from headwater.coordinator.outcome import Outcome, TopicDirectory
from headwater.coordinator.pattern_syntax import PatternError
from headwater.protocol.errors import ApiError, ErrorCode

SESSION: Final = "session"
REVOCATION: Final = "revocation"
"""Until when a member must have given partitions back."""
REGEX_REFRESH: Final = "regex"
_QUOTED: Final = 100
"""So much of a pattern is said back to who sent it."""


class GroupSteps:
    """The steps, with what they need besides the group."""

    def __init__(
        self, *, deadlines: Deadlines[DeadlineName], config: Callable[[], BrokerAttributes], topics: TopicDirectory
    ) -> None:
        self._deadlines = deadlines
        self._config = config
        self._topics = topics

    @property
    def assignors(self) -> Sequence[str]:
        """The assignors that members may ask for; the first is the default."""
        return _known(self._config().group_consumer_assignors)

    def check_room(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> None:
        """ApiError when a new member would be one too many; a static member that comes back is none."""
        limit = self._config().group_consumer_max_size
        is_known = member_id in group.members or (instance_id is not None and group.static_member(instance_id))
        if len(group.members) >= limit and not is_known:
            raise ApiError(
                ErrorCode.group_max_size_reached,
                f"{group.group_id} has its {limit} members; see group.consumer.max.size",
            )

    def take_place(self, decision: Decision, old: ConsumerMember, member_id: str) -> None:
        """Gives the place of a static member, with its partitions, to its next incarnation."""
        target = decision.group.target_of(old.member_id)
        decision.remove_member(old.member_id)
        decision.set_told(member_id, old.told)
        decision.set_target(member_id, target)
        new = replace(old, member_id=member_id, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH)
        decision.set_current(new)

    def arrive(
        self, decision: Decision, member_id: str, told: ConsumerMemberValue, owned: Partitions | None, now_ms: int
    ) -> ConsumerMember:
        """Takes in what a member told, and brings it one step nearer to its target."""
        before = decision.group.members.get(member_id) or ConsumerMember(member_id=member_id)
        is_news = told is not before.told and told != before.told
        if is_news or member_id not in decision.group.members:
            decision.set_told(member_id, told)
        if told.subscribed_regex != before.told.subscribed_regex:
            self.match_patterns(decision, now_ms, only_new=True)
        # What a classic group assigned last may be incomplete: it may have been upgraded in the middle of a rebalance.
        is_made = decision.replaces is not None or decision.group.epoch == 0
        if is_made or (is_news and _subscription(told) != _subscription(before.told)):
            self.raise_epoch(decision)
        if decision.group.epoch > decision.group.target_epoch:
            write_target(decision, preferred_assignor(decision.group, self.assignors), self._topics)
        return self._advance(decision, member_id, owned, now_ms)

    def look_at_topics(self, decision: Decision, now_ms: int) -> None:
        """Raises the epoch when topics that members subscribe to came, went or grew."""
        self.match_patterns(decision, now_ms)
        matches_changed = bool(decision.records)
        if matches_changed or self._hash(decision.group) != decision.group.metadata_hash:
            self.raise_epoch(decision)

    def raise_epoch(self, decision: Decision) -> None:
        """Raises the epoch, and notes what the topics look like in it."""
        group = decision.group
        decision.set_epoch(group.epoch + 1, self._hash(group))

    def _hash(self, group: ConsumerGroup) -> int:
        return metadata_hash(group.subscribed_topics, self._topics)

    def _advance(self, decision: Decision, member_id: str, owned: Partitions | None, now_ms: int) -> ConsumerMember:
        group = decision.group
        before = group.members[member_id]
        after = reconcile(
            before,
            target=group.target_of(member_id),
            target_epoch=group.target_epoch,
            owned=owned,
            holder=group.holder,
        )
        if after is not before and after != before:
            decision.set_current(after)
            if after.state is MemberState.UNREVOKED_PARTITIONS and not after.is_classic:
                self.await_revocation(group.group_id, after, now_ms)
        return after

    def match_patterns(self, decision: Decision, now_ms: int, *, only_new: bool = False) -> None:
        """Looks up which topics the members' patterns match."""
        patterns = self._drop_patterns(decision)
        for pattern in sorted(patterns):
            known = decision.group.regexes.get(pattern)
            if known is None or not only_new:
                topics = self._matching(pattern)
                if topics is None:
                    continue  # as it was, until somebody has found out
                if known is None or known.topics != topics:
                    decision.set_regex(pattern, RegexValue(topics=topics, version=0, timestamp_ms=now_ms))
        if patterns:
            refresh_ms = self._config().group_consumer_regex_refresh_interval_ms
            name = DeadlineName("consumer", REGEX_REFRESH, decision.group.group_id)
            self._deadlines.set(name, now_ms + refresh_ms)

    def _drop_patterns(self, decision: Decision) -> frozenset[str]:
        """Forgets the patterns that nobody subscribes with any longer; those that are left."""
        patterns = decision.group.subscribed_patterns
        for pattern in sorted(decision.group.regexes.keys() - patterns):
            decision.set_regex(pattern, None)
        return patterns

    def _matching(self, pattern: str) -> tuple[str, ...] | None:
        try:
            return self._topics.topics_matching(pattern)
        except PatternError as error:
            raise ApiError(
                ErrorCode.invalid_regular_expression, f"{pattern[:_QUOTED]!r} is no pattern: {error}"
            ) from error

    def depart(self, group: ConsumerGroup, member_ids: Iterable[str], response: object, now_ms: int) -> Outcome:
        """Takes members out; the group becomes a classic one when only classic members are left."""
        decision = Decision(group)
        for member_id in member_ids:
            decision.remove_member(member_id)
        if not self.hand_over(decision, now_ms, rebalance=True):
            self._drop_patterns(decision)
            self.raise_epoch(decision)
        return decision.outcome(response)

    def hand_over(self, decision: Decision, now_ms: int, *, rebalance: bool) -> bool:
        """Makes the group a classic one, if its members are all classic and it may be; whether it was."""
        if not downgrade(decision, self._config(), self._topics, now_ms):
            return False
        group = decision.group
        for member in group.members.values():
            if member.told.classic is not None:
                name = DeadlineName("classic", "session", group.group_id, member.member_id)
                self._deadlines.set(name, now_ms + member.told.classic.session_timeout_ms)
        if rebalance:
            self._deadlines.set(DeadlineName("classic", "rebalance", group.group_id), now_ms)
        return True

    def await_heartbeat(self, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        """Lets the member's session begin anew."""
        classic = member.told.classic
        timeout_ms = self._config().group_consumer_session_timeout_ms if classic is None else classic.session_timeout_ms
        self._deadlines.set(DeadlineName("consumer", SESSION, group_id, member.member_id), now_ms + timeout_ms)

    def await_revocation(self, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        """Gives the member its rebalance timeout to give partitions back."""
        name = DeadlineName("consumer", REVOCATION, group_id, member.member_id)
        self._deadlines.set(name, now_ms + member.told.rebalance_timeout_ms)


@functools.lru_cache(maxsize=10)
def _known(names: tuple[str, ...]) -> Sequence[str]:
    return [name for name in names if name in ASSIGNORS] or ["uniform"]


def _subscription(told: ConsumerMemberValue) -> tuple[tuple[str, ...], str | None]:
    return told.subscribed_topics, told.subscribed_regex
