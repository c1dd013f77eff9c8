"""A classic group under everything that can happen to it: after every step its promises hold.

Clients join, sync, beat, leave, fall silent and come back; offsets are committed, alone and in transactions; appends
fail; the broker dies and comes back from its log, or hands the group to another. The promises:

- in one generation every partition has one owner, and everybody gets what the leader assigned;
- a committed offset is what the last commit that counts made it, whatever happens;
- who is no member, or no longer, changes nothing;
- the log alone makes the same group again, and the generations in it never fall;
- every request is answered once, and in time.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headwater.coordinator.group.classic_group import ClassicGroup
from headwater.coordinator.group.classic_responses import join_success
from headwater.coordinator.group.records import ClassicGroupValue
from headwater.coordinator.group.shard import GroupShard
from headwater.protocol.kafka_types import ErrorCode

from .building import GROUP, Call, Driver, subscription

_SESSION_MS = 6_000
_REBALANCE_MS = 10_000
_DELAY_MS = 1_000
_LONGEST_WAIT_MS = _REBALANCE_MS + _DELAY_MS
_PARTITIONS = (0, 1, 2)
_PRODUCERS = (101, 102)
_PROTOCOLS = (
    {"range": subscription("orders"), "sticky": b"s"},
    {"sticky": b"s", "range": subscription("orders")},
    {"range": subscription("orders", "payments")},
)
_CLIENTS = st.integers(0, 3)
_KEYS = st.sampled_from([("orders", index) for index in _PARTITIONS])
_OFFSETS = st.integers(0, 1000)
_Commits = dict[tuple[str, int], tuple[int, int]]
"""By partition, an offset and the number of its commit."""


@dataclass(eq=False)
class Client:
    """A consumer, as far as the coordinator sees it."""

    instance: str | None
    version: int = 9
    member_id: str = ""
    generation: int = -1
    protocols: dict[str, bytes] = field(default_factory=lambda: _PROTOCOLS[0])
    joining: Call | None = None
    syncing: Call | None = None

    @property
    def waits(self) -> bool:
        return any(call is not None and call.waits for call in (self.joining, self.syncing))

    @property
    def who(self) -> str:
        """What it is known by over its lives."""
        return self.instance or self.member_id


class ClassicGroupMachine(RuleBasedStateMachine):
    """Four clients in one group, two of them static."""

    @initialize(max_size=st.sampled_from([3, 100]))
    def begin(self, max_size: int) -> None:
        self.driver = Driver(group_initial_rebalance_delay_ms=_DELAY_MS, group_max_size=max_size)
        self.clients = [Client(None), Client(None), Client("i2"), Client("i3")]
        self.ghosts: list[Client] = []
        self.sent: list[tuple[Call, int]] = []
        """Requests that may wait, and when they were sent."""
        self.assigned: dict[int, dict[str, bytes]] = {}
        """By generation, what its leader gave to whom."""
        self.offsets: _Commits = {}
        self.pending: dict[int, _Commits] = {producer: {} for producer in _PRODUCERS}
        self.commits = 0
        self.generation_in_log = 0
        self.looked_at = 0

    @rule(index=_CLIENTS)
    def go_on(self, index: int) -> None:
        """A client does what its last answer asks for."""
        client = self.clients[index]
        if client.waits:
            return
        if client.syncing is not None:
            self._take_assignment(client, client.syncing)
        elif client.joining is not None:
            self._take_place(client, client.joining)
        elif client.generation == -1:
            self._join(client)
        else:
            self._react(client, self.driver.heartbeat(client.member_id, client.generation, instance=client.instance))

    @rule(some=st.sets(_CLIENTS, min_size=1), rounds=st.integers(1, 6), ms=st.sampled_from([0, _DELAY_MS]))
    def go_on_together(self, some: set[int], rounds: int, ms: int) -> None:
        """Some clients run for a while: long enough, and they are a stable group."""
        for _ in range(rounds):
            for index in sorted(some):
                self.go_on(index)
            self.driver.pass_time(ms)

    @rule()
    def settle(self) -> None:
        """All clients run until they have got what they want."""
        self.go_on_together(set(range(4)), 8, _DELAY_MS)

    @rule(index=_CLIENTS, protocols=st.sampled_from(_PROTOCOLS))
    def join_again(self, index: int, protocols: dict[str, bytes]) -> None:
        """A client wants a rebalance, or has given up on an answer and asks again."""
        if self.clients[index].member_id:
            self.clients[index].protocols = protocols
            self._join(self.clients[index])

    @rule(index=_CLIENTS)
    def leave(self, index: int) -> None:
        client = self.clients[index]
        self.driver.leave((client.member_id, client.instance))
        self._start_anew(index, version=9)

    @rule(index=_CLIENTS, version=st.sampled_from([3, 8, 9]))
    def crash(self, index: int, version: int) -> None:
        """A client dies without a word and is started again, which the group learns when it joins."""
        self._start_anew(index, version)

    @rule(index=_CLIENTS, version=st.sampled_from([8, 9]))
    def take_over(self, index: int, version: int) -> None:
        """In a group that has settled, a client is started a second time while the first still runs."""
        self.settle()
        self._start_anew(index, version)
        self.go_on_together({index}, 3, 0)

    @rule(index=st.integers(2, 3))
    def put_out(self, index: int) -> None:
        """An operator removes a static member."""
        self.driver.leave(("", self.clients[index].instance))

    @rule(index=_CLIENTS, key=_KEYS, offset=_OFFSETS)
    def commit(self, index: int, key: tuple[str, int], offset: int) -> None:
        client = self.clients[index]
        [code] = self.driver.commit(
            {key: offset}, member_id=client.member_id, generation=client.generation, instance=client.instance
        )
        if code is ErrorCode.none:
            self._check_committer(client)
            self.commits += 1
            self.offsets[key] = (offset, self.commits)

    @rule(index=_CLIENTS, key=_KEYS, offset=_OFFSETS, producer=st.sampled_from(_PRODUCERS))
    def commit_in_transaction(self, index: int, key: tuple[str, int], offset: int, producer: int) -> None:
        client = self.clients[index]
        me: dict[str, Any] = {"member_id": client.member_id, "instance": client.instance}
        [code] = self.driver.commit_in_transaction(producer, {key: offset}, generation=client.generation, **me)
        if code is ErrorCode.none:
            self._check_committer(client)
            self.commits += 1
            self.pending[producer][key] = (offset, self.commits)

    @rule(producer=st.sampled_from(_PRODUCERS), committed=st.booleans())
    def end_transaction(self, producer: int, committed: bool) -> None:
        self.driver.end_transaction(producer, committed=committed)
        for key, commit in self.pending[producer].items():
            if committed and commit[1] > self.offsets.get(key, (0, 0))[1]:
                self.offsets[key] = commit
        self.pending[producer] = {}

    @rule(by_request=st.booleans())
    def remove_group(self, by_request: bool) -> None:
        """An Empty group may be deleted; by itself it goes when it has no offsets, of which none is old enough here."""
        if not by_request:
            self.driver.expire_offsets()
        elif self.driver.delete_group() is ErrorCode.none:
            self.offsets.clear()
            for commits in self.pending.values():
                commits.clear()

    @rule(ms=st.sampled_from([1, 500, _DELAY_MS, 3_000, _SESSION_MS - 1, _SESSION_MS, _REBALANCE_MS]))
    def pass_time(self, ms: int) -> None:
        self.driver.pass_time(ms)

    @rule(some=st.sets(_CLIENTS), rounds=st.integers(1, 6), ms=st.sampled_from([0, _DELAY_MS, _SESSION_MS]))
    def go_on_while_the_disk_is_full(self, some: set[int], rounds: int, ms: int) -> None:
        self.driver.fail_appends = True
        self.go_on_together(some, rounds, ms)
        self.driver.fail_appends = False

    @rule(is_told=st.booleans())
    def restart(self, is_told: bool) -> None:
        """The broker dies and comes back, or another takes over, which those who wait are told, and nobody else."""
        if is_told:
            told = [waiter for waiter, _ in self.driver.shard.unload()]
            assert sorted(map(id, told)) == sorted(id(call) for call, _ in self.sent if call.waits)
        self.driver.restart()
        for client in (*self.clients, *self.ghosts):
            if client.waits:
                client.joining = client.syncing = None
        self.sent.clear()

    @precondition(lambda self: self._lost_souls())
    @rule(data=st.data(), act=st.sampled_from(["beat", "join", "sync", "leave", "commit", "transaction"]))
    def haunt(self, data: st.DataObject, act: str) -> None:
        """Someone who has lost its place acts as if it had it. Nothing comes of it."""
        ghost = data.draw(st.sampled_from(self._lost_souls()))
        before = (len(self.driver.log), _durable(self.driver.shard), self.driver.state())
        assert self._act(ghost, act) in {
            ErrorCode.unknown_member_id,
            ErrorCode.fenced_instance_id,
            ErrorCode.group_max_size_reached,
            ErrorCode.inconsistent_group_protocol,
            ErrorCode.illegal_generation,
            ErrorCode.group_id_not_found,
        }
        assert (len(self.driver.log), _durable(self.driver.shard), self.driver.state()) == before

    @invariant()
    def offsets_are_what_was_committed_last(self) -> None:
        assert self.driver.committed() == {key: offset for key, (offset, _) in self.offsets.items()}
        for key in self.offsets:
            [topic] = self.driver.fetch(key, require_stable=True).topics
            is_unstable = topic.partitions[0].error_code is ErrorCode.unstable_offset_commit
            assert is_unstable == any(key in commits for commits in self.pending.values())

    @invariant()
    def the_log_makes_the_same_group_again(self) -> None:
        assert _durable(self.driver.replayed()) == _durable(self.driver.shard)

    @invariant()
    def generations_in_the_log_never_fall(self) -> None:
        written = self.driver.written()
        for key, value in written[self.looked_at :]:
            if isinstance(value, ClassicGroupValue):
                assert value.generation >= self.generation_in_log
                self.generation_in_log = value.generation
            elif value is None and not hasattr(key, "topic"):
                self.generation_in_log = 0
                self.assigned.clear()
                for client in self.clients:
                    client.syncing = None
        self.looked_at = len(written)

    @invariant()
    def every_request_is_answered_in_time(self) -> None:
        self.sent = [(call, sent_ms) for call, sent_ms in self.sent if call.waits]
        for _, sent_ms in self.sent:
            assert self.driver.now_ms - sent_ms <= _LONGEST_WAIT_MS

    def _join(self, client: Client) -> None:
        client.syncing = None
        client.joining = self.driver.join(
            client.member_id,
            instance=client.instance,
            version=client.version,
            protocols=client.protocols,
            session_ms=_SESSION_MS,
            rebalance_ms=_REBALANCE_MS,
        )
        self.sent.append((client.joining, self.driver.now_ms))

    def _take_place(self, client: Client, call: Call) -> None:
        """A join was answered: with a place in a generation, the assignment is asked for."""
        client.joining = None
        if call.failed_append:
            return
        joined = call.response
        if joined.error_code is not ErrorCode.none:
            keeps_id = joined.error_code in (ErrorCode.member_id_required, ErrorCode.rebalance_in_progress)
            client.member_id, client.generation = joined.member_id if keeps_id else "", -1
            return
        client.member_id, client.generation = joined.member_id, joined.generation_id
        members = [(member.member_id, member.group_instance_id or member.member_id) for member in joined.members]
        shares = {who: bytes(_PARTITIONS[index :: len(members)]) for index, (_, who) in enumerate(members)}
        assigns = joined.leader == joined.member_id and not joined.skip_assignment
        assignments = {member_id: shares[who] for member_id, who in members} if assigns else None
        was_stable = self.driver.state() == "Stable"
        client.syncing = self.driver.sync(joined, assignments, instance=client.instance)
        self.sent.append((client.syncing, self.driver.now_ms))
        if assigns and not was_stable and client.syncing.answers and client.syncing.error is ErrorCode.none:
            assert joined.generation_id not in self.assigned
            self.assigned[joined.generation_id] = shares

    def _take_assignment(self, client: Client, call: Call) -> None:
        client.syncing = None
        if call.failed_append:
            return
        if call.error is ErrorCode.none:
            assert call.response.assignment == self.assigned[client.generation][client.who]
        else:
            self._react(client, call.error)

    def _react(self, client: Client, code: ErrorCode) -> None:
        if code is ErrorCode.rebalance_in_progress:
            self._join(client)
        elif code is not ErrorCode.none:
            client.generation = -1
            client.member_id = client.member_id if code is ErrorCode.illegal_generation else ""

    def _start_anew(self, index: int, version: int) -> None:
        old = self.clients[index]
        self.ghosts.append(old)
        # Static members are a matter of v5 and later.
        self.clients[index] = Client(old.instance, version if old.instance is None else max(version, 8))

    def _check_committer(self, client: Client) -> None:
        """Only members of the generation commit with one; without one, whoever finds no members."""
        group = _group(self.driver.shard)
        assert group is not None
        if client.generation == -1:
            assert group.is_empty or not client.member_id
        else:
            assert client.generation == group.generation
            assert client.member_id in group.members

    def _lost_souls(self) -> list[Client]:
        """Those who had a place, died, and have lost it by now."""
        members = _members(self.driver.shard)
        return [ghost for ghost in self.ghosts if ghost.generation != -1 and ghost.member_id not in members]

    def _act(self, ghost: Client, act: str) -> ErrorCode:
        driver, instance = self.driver, ghost.instance
        me: dict[str, Any] = {"member_id": ghost.member_id, "generation": ghost.generation, "instance": instance}
        match act:
            case "beat":
                return driver.heartbeat(**me)
            case "join":
                return driver.join(ghost.member_id, instance=instance, protocols=ghost.protocols).error
            case "sync":
                place = join_success(
                    generation=ghost.generation,
                    protocol_type="consumer",
                    protocol="range",
                    leader=ghost.member_id,
                    member_id=ghost.member_id,
                )
                return driver.sync(place, {ghost.member_id: b"all of it"}, instance=instance).error
            case "leave":
                return driver.leave((ghost.member_id, instance)).members[0].error_code
            case "commit":
                return driver.commit({("orders", 0): 77_777}, **me)[0]
            case _:
                return driver.commit_in_transaction(_PRODUCERS[0], {("orders", 0): 77_777}, **me)[0]


def _group(shard: GroupShard) -> ClassicGroup | None:
    group = shard._groups.get(GROUP)
    assert group is None or isinstance(group, ClassicGroup)
    return group


def _members(shard: GroupShard) -> set[str]:
    group = _group(shard)
    return set() if group is None else {*group.members, *group.expected_joins}


def _durable(shard: GroupShard) -> object:
    """What a restart must know."""
    group, offsets = _group(shard), shard._offsets
    keys = offsets.keys_of_group(GROUP)
    return (
        None if group is None else group.saved,
        dict(offsets.of_group(GROUP)),
        {key for key in keys if offsets.is_pending(key)},
    )


# Making a failure short takes Hypothesis five minutes at most.
TestClassicGroup = pytest.mark.timeout(600)(ClassicGroupMachine.TestCase)
TestClassicGroup.settings = settings(
    max_examples=120,
    stateful_step_count=50,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
