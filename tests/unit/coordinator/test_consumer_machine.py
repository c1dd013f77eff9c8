"""Consumer groups under everything at once: members of both protocols, quick, slow, silent and lying ones, topics that
come and go, a broker that dies or cannot write.

After every step: no partition is read by two members of the group; replaying the log gives the group as it is. And once
everybody behaves and time passes, all partitions are read, in equal shares. A failure prints how to run it again.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from headwater.coordinator.group.classic_group import ClassicGroup
from headwater.coordinator.group.consumer_group import ConsumerGroup
from headwater.coordinator.group.consumer_member import ConsumerMember
from headwater.coordinator.group.consumer_partitions import Partition, topic_id, topic_key
from headwater.coordinator.group.shard import GroupShard
from headwater.protocol.kafka_types import ErrorCode

from .building import GROUP
from .consumer_building import ClassicConsumer, Consumer, ConsumerDriver, state_of

TOPICS = ("orders", "payments", "extra")
SUBSCRIPTIONS = st.sampled_from([("orders",), ("orders", "payments"), ("payments",), ("orders", "payments", "extra")])
PATTERNS = st.sampled_from(["orders", "(orders|extra)", ".*s"])
STATIC_TOPICS = {"i1": ("orders", "extra"), "i2": ("orders", "payments")}
"""A classic group does not notice that a static member subscribes to other topics when it comes back."""
MOST_CLIENTS = 5


class ConsumerGroupMachine(RuleBasedStateMachine):
    """One group."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = ConsumerDriver()
        self.clients: list[Consumer | ClassicConsumer] = []
        self.silent: list[Consumer | ClassicConsumer] = []
        self.names = 0
        self.cooperative = False
        self.shadow = self.driver.new_shard()
        self.shadowed = 0

    @initialize(cooperative=st.booleans())
    def choose_protocol(self, cooperative: bool) -> None:
        self.cooperative = cooperative

    @property
    def group(self) -> ClassicGroup | ConsumerGroup | None:
        return self.driver.shard._groups.get(GROUP)

    def a_client(self, data: st.DataObject) -> Consumer | ClassicConsumer:
        return data.draw(st.sampled_from(self.clients))

    def new_name(self) -> str:
        self.names += 1
        return f"m{self.names}"

    @precondition(lambda self: len(self.clients) < MOST_CLIENTS)
    @rule(topics=SUBSCRIPTIONS, is_slow=st.booleans())
    def consumer_joins(self, topics: tuple[str, ...], is_slow: bool) -> None:
        self.clients.append(Consumer(self.driver, self.new_name(), *topics, is_slow=is_slow))
        self.clients[-1].step()

    @precondition(lambda self: len(self.clients) < MOST_CLIENTS)
    @rule(pattern=PATTERNS, assignor=st.sampled_from([None, "uniform", "range"]))
    def consumer_joins_with_a_pattern(self, pattern: str, assignor: str | None) -> None:
        self.clients.append(Consumer(self.driver, self.new_name(), regex=pattern, assignor=assignor))
        self.clients[-1].step()

    @precondition(lambda self: len(self.clients) < MOST_CLIENTS)
    @rule(topics=SUBSCRIPTIONS, instance=st.sampled_from(sorted(STATIC_TOPICS)))
    def static_consumer_joins(self, topics: tuple[str, ...], instance: str) -> None:
        self.clients.append(Consumer(self.driver, self.new_name(), *topics, instance=instance))
        self.clients[-1].step()

    @precondition(lambda self: len(self.clients) < MOST_CLIENTS)
    @rule(topics=SUBSCRIPTIONS)
    def classic_consumer_joins(self, topics: tuple[str, ...]) -> None:
        self.clients.append(ClassicConsumer(self.driver, *topics, cooperative=self.cooperative))
        self.clients[-1].step()

    @precondition(lambda self: len(self.clients) < MOST_CLIENTS)
    @rule(instance=st.sampled_from(sorted(STATIC_TOPICS)))
    def static_classic_consumer_joins(self, instance: str) -> None:
        topics = STATIC_TOPICS[instance]
        self.clients.append(ClassicConsumer(self.driver, *topics, cooperative=self.cooperative, instance=instance))
        self.clients[-1].step()

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), times=st.integers(1, 3))
    def client_goes_on(self, data: st.DataObject, times: int) -> None:
        client = self.a_client(data)
        for _ in range(times):
            client.step()

    @rule()
    def all_clients_go_on(self) -> None:
        for client in self.clients:
            client.step()

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def response_is_lost(self, data: st.DataObject) -> None:
        client = self.a_client(data)
        if isinstance(client, Consumer):
            client.beat(response_is_lost=True)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def broker_cannot_write(self, data: st.DataObject) -> None:
        client = self.a_client(data)
        self.driver.fail_appends = True
        client.step()
        self.driver.pass_time(1)
        self.driver.fail_appends = False

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def slow_client_gives_back(self, data: st.DataObject) -> None:
        client = self.a_client(data)
        if isinstance(client, Consumer):
            client.finish_revoking()

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), topics=SUBSCRIPTIONS)
    def client_subscribes_anew(self, data: st.DataObject, topics: tuple[str, ...]) -> None:
        client = self.a_client(data)
        if isinstance(client, Consumer) and client.regex is None:
            client.subscribe(*topics)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def client_leaves(self, data: st.DataObject) -> None:
        client = self.a_client(data)
        client.leave()
        self.clients.remove(client)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def static_client_goes_away(self, data: st.DataObject) -> None:
        client = self.a_client(data)
        if isinstance(client, Consumer) and client.instance is not None:
            client.go_away()
            self.clients.remove(client)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def client_falls_silent(self, data: st.DataObject) -> None:
        """It hears and says nothing any longer, but reads on."""
        client = self.a_client(data)
        self.clients.remove(client)
        self.silent.append(client)

    @precondition(lambda self: self.silent and len(self.clients) < MOST_CLIENTS)
    @rule(data=st.data())
    def silent_client_wakes(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.silent))
        self.silent.remove(client)
        self.clients.append(client)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), ahead=st.sampled_from([-2, -1, 1, 5]))
    def somebody_lies_about_a_member(self, data: st.DataObject, ahead: int) -> None:
        """A stranger speaks for a member, in an epoch that is not its own, or says to own what it never had."""
        member = self.group.members.get(self.a_client(data).member_id) if self.group else None
        if isinstance(member, ConsumerMember) and member.epoch + ahead > 0:
            strange = Partition(topic_key(next(iter(self.driver.topics.ids.values()))), 77)
            call = self.driver.beat(member.member_id, member.epoch + ahead, owned=[strange])
            assert call.error is ErrorCode.fenced_member_epoch
            assert self.driver.beat("stranger", 3, owned=()).error is ErrorCode.unknown_member_id

    @rule(ms=st.sampled_from([1_000, 4_000, 12_000, 50_000]))
    def time_passes(self, ms: int) -> None:
        self.driver.pass_time(ms)

    @rule(topic=st.sampled_from(TOPICS), more=st.integers(1, 4))
    def topic_comes_or_grows(self, topic: str, more: int) -> None:
        count = self.driver.topics.partitions.get(topic)
        if count is None:
            self.driver.create(topic, more)
        elif count < 8:
            self.driver.grow(topic, count + more)

    @precondition(lambda self: len(self.driver.topics.partitions) > 1)
    @rule(data=st.data())
    def topic_goes(self, data: st.DataObject) -> None:
        self.driver.delete(data.draw(st.sampled_from(sorted(self.driver.topics.partitions))))

    @rule()
    def broker_restarts(self) -> None:
        self.driver.restart()
        for client in [*self.clients, *self.silent]:
            client.lose_connection()

    @invariant()
    def no_partition_is_read_by_two_members(self) -> None:
        members = self.group.members if self.group is not None else {}
        readers: dict[Partition, str] = {}
        for client in [*self.clients, *self.silent]:
            if client.member_id in members:
                for partition in client.reads:
                    other = readers.setdefault(partition, client.member_id)
                    assert other == client.member_id, f"{partition} is read by {other} and {client.member_id}"

    @invariant()
    def replay_gives_the_same_group(self) -> None:
        self.driver.replay_into(self.shadow, self.driver.log[self.shadowed :])
        self.shadowed = len(self.driver.log)
        self.check_same_group(self.shadow)

    def check_same_group(self, shard: GroupShard) -> None:
        replayed = shard._groups.get(GROUP)
        if isinstance(self.group, ConsumerGroup):
            assert isinstance(replayed, ConsumerGroup)
            assert state_of(replayed) == state_of(self.group)
        else:
            assert not isinstance(replayed, ConsumerGroup)

    def teardown(self) -> None:
        """Everybody behaves from now on."""
        self.clients = [client for client in self.clients if not client.is_stopped]
        for _ in range(60):
            for client in self.clients:
                if isinstance(client, Consumer):
                    client.finish_revoking()
                client.step()
                self.no_partition_is_read_by_two_members()
            self.driver.pass_time(2_500)
        self.replay_gives_the_same_group()
        self.check_same_group(self.driver.replayed_after_compaction(keep_tombstones=True))
        self.check_same_group(self.driver.replayed_after_compaction(keep_tombstones=False))
        self.everything_is_read()

    def everything_is_read(self) -> None:
        clients = [client for client in self.clients if not client.is_stopped]
        if not clients:
            assert self.group is None or self.group.is_empty
            return
        assert self.group is not None
        assert self.group.state_name == "Stable"
        assert set(self.group.members) == {client.member_id for client in clients}
        topics = {client.member_id: self.topics_of(client) for client in clients}
        everything = self.driver.all_partitions(*set().union(*topics.values()))
        assert sorted(partition for client in clients for partition in client.reads) == sorted(everything)
        if isinstance(self.group, ConsumerGroup) and not any(
            member.told.server_assignor == "range" for member in self.group.members.values()
        ):
            self.shares_are_equal(clients, topics)

    def shares_are_equal(self, clients: list[Consumer | ClassicConsumer], topics: dict[str, frozenset[str]]) -> None:
        """No partition could go to a subscriber that has two fewer."""
        for client in clients:
            for partition in client.reads:
                for other in clients:
                    if self.driver.topics.topic_name(topic_id(partition.topic)) in topics[other.member_id]:
                        assert len(client.reads) - len(other.reads) <= 1

    def topics_of(self, client: Consumer | ClassicConsumer) -> frozenset[str]:
        if isinstance(self.group, ConsumerGroup):
            return self.group.topics_of(self.group.members[client.member_id])
        return frozenset(client.topics or ())


def test_consumer_groups_keep_their_promises() -> None:
    run_state_machine_as_test(
        ConsumerGroupMachine,
        settings=settings(
            max_examples=200,
            stateful_step_count=40,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
