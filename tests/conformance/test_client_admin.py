"""headwater's Admin against both brokers: the same calls, the same answers."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar
from uuid import uuid4

import pytest

from headwater.admin import (
    ALL_RECORDS,
    CommittedOffset,
    ConfigChange,
    ConfigResource,
    ConfigSource,
    ConfigType,
    FoundOffset,
    Isolation,
    MemberName,
    NewTopic,
    Spot,
)
from headwater.aio import Admin
from headwater.client import RefusedError
from headwater.protocol.kafka_types import ErrorCode
from headwater.types import TopicPartition

from .actions import Topic, create_topic, eventually, produce_ok, unique_name
from .batches import AN_HOUR_AGO_MS, Record, batch
from .conftest import Broker
from .raw_groups import ClassicMember, ConsumerMember, assignment, new_group, settle, subscription
from .raw_transactions import TransactionalProducer
from .wire import Wire

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]


@pytest.fixture
def run() -> Iterator[Run[Any]]:
    """Runs coroutines, all of a case in one event loop."""
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture
def admin(broker: Broker, run: Run[Any]) -> Iterator[Admin]:
    made = Admin(broker.bootstrap, default_api_timeout_ms=15_000)
    yield made
    run(made.close())


@pytest.fixture
def topic(wire: Wire) -> Topic:
    """Two partitions; the first has three records in it, the second none."""
    made = create_topic(wire, partitions=2)
    produce_ok(wire, made, batch(b"0", b"1", b"2"))
    return made


def refusal(run: Run[Any], call: Coroutine[Any, Any, Any]) -> ErrorCode:
    """The code with which one call is refused."""
    with pytest.raises(RefusedError) as caught:
        run(call)
    return caught.value.code


def codes(results: dict[Any, Any]) -> dict[Any, ErrorCode | None]:
    """What came of each, without the words."""
    return {thing: result.code if isinstance(result, RefusedError) else None for thing, result in results.items()}


def test_a_topic_is_made_as_wished_and_found_by_name_and_id(admin: Admin, run: Run[Any]) -> None:
    name = unique_name()
    made = run(admin.create_topic(name, partitions=3, configs={"retention.ms": "3600000"}))
    assert (made.name, made.partitions, made.replication_factor) == (name, 3, 1)
    assert made.configs["retention.ms"] == "3600000"
    found = eventually(lambda: run(admin.describe_topics([name])).succeeded.get(name))
    assert (found.topic_id, found.internal, found.replication_factor) == (made.topic_id, False, 1)
    assert [(p.partition, p.leader, p.replicas, p.isr, p.offline) for p in found.partitions] == [
        (number, 1, (1,), (1,), ()) for number in range(3)
    ]
    by_id = run(admin.describe_topic(made.topic_id))
    assert (by_id.name, [p.leader for p in by_id.partitions]) == (name, [1, 1, 1])
    assert name in [listed.name for listed in run(admin.list_topics())]


def test_partitions_can_be_laid_onto_brokers_by_hand(admin: Admin, run: Run[Any]) -> None:
    name = unique_name()
    assert run(admin.create_topic(name, assignments={0: [1], 1: [1]})).partitions == 2
    eventually(lambda: name in run(admin.describe_topics([name])).succeeded)
    assert refusal(run, admin.add_partitions(name, 3, assignments=[[99]])) is ErrorCode.invalid_replica_assignment
    run(admin.add_partitions(name, 3, assignments=[[1]]))
    eventually(lambda: len(run(admin.describe_topic(name)).partitions) == 3)


def test_what_is_only_validated_is_not_made(admin: Admin, run: Run[Any], topic: Topic) -> None:
    name = unique_name()
    assert run(admin.create_topic(name, partitions=2, validate_only=True)).partitions == 2
    run(admin.add_partitions(topic.name, 5, validate_only=True))
    resource = ConfigResource.topic(topic.name)
    run(admin.alter_config(resource, [ConfigChange.set("retention.ms", "1000")], validate_only=True))
    assert name not in [listed.name for listed in run(admin.list_topics())]
    assert len(run(admin.describe_topic(topic.name)).partitions) == 2
    assert run(admin.describe_config(resource))["retention.ms"].source is not ConfigSource.DYNAMIC_TOPIC_CONFIG


def test_one_that_fails_does_not_hide_the_others(admin: Admin, run: Run[Any], topic: Topic) -> None:
    name, bad = unique_name(), "not a name"
    results = run(admin.create_topics([NewTopic(name), NewTopic(topic.name), NewTopic(bad)]))
    assert codes(results) == {
        name: None,
        topic.name: ErrorCode.topic_already_exists,
        bad: ErrorCode.invalid_topic_exception,
    }
    assert results.succeeded[name].partitions == 2  # the brokers' num.partitions
    absent, lost = unique_name("absent"), uuid4()
    assert codes(run(admin.create_partitions({topic.name: 3, absent: 3}))) == {
        topic.name: None,
        absent: ErrorCode.unknown_topic_or_partition,
    }
    assert codes(run(admin.describe_topics([topic.name, absent, bad, lost]))) == {
        topic.name: None,
        absent: ErrorCode.unknown_topic_or_partition,
        bad: ErrorCode.invalid_topic_exception,
        lost: ErrorCode.unknown_topic_id,
    }


def test_one_alone_that_fails_is_raised(admin: Admin, run: Run[Any], topic: Topic) -> None:
    absent = unique_name("absent")
    assert refusal(run, admin.create_topic(topic.name)) is ErrorCode.topic_already_exists
    assert refusal(run, admin.describe_topic(absent)) is ErrorCode.unknown_topic_or_partition
    assert refusal(run, admin.delete_topic(absent)) is ErrorCode.unknown_topic_or_partition
    assert refusal(run, admin.delete_topic(uuid4())) is ErrorCode.unknown_topic_id
    assert refusal(run, admin.add_partitions(topic.name, 1)) is ErrorCode.invalid_partitions
    assert refusal(run, admin.describe_config(ConfigResource.topic(absent))) is ErrorCode.unknown_topic_or_partition


def test_topics_go_by_name_and_by_id(admin: Admin, run: Run[Any], wire: Wire) -> None:
    first, second, absent = create_topic(wire), create_topic(wire), unique_name("absent")
    assert codes(run(admin.delete_topics([first.name, second.id, absent]))) == {
        first.name: None,
        second.id: None,
        absent: ErrorCode.unknown_topic_or_partition,
    }
    eventually(lambda: {first.name, second.name}.isdisjoint(each.name for each in run(admin.list_topics())))


def test_internal_topics_are_listed_if_asked_for(admin: Admin, run: Run[Any], wire: Wire) -> None:
    new_group(wire)
    assert not [listed.name for listed in run(admin.list_topics()) if listed.internal]
    assert "__consumer_offsets" in [listed.name for listed in run(admin.list_topics(internal=True)) if listed.internal]


def test_a_config_tells_where_it_comes_from(admin: Admin, run: Run[Any], topic: Topic) -> None:
    resource = ConfigResource.topic(topic.name)
    run(admin.alter_config(resource, [ConfigChange.set("segment.bytes", "2097152")]))
    found = eventually(lambda: _set_there(run(admin.describe_config(resource)), "segment.bytes"))
    assert (found.value, found.type, found.sensitive, found.read_only) == ("2097152", ConfigType.INT, False, False)
    assert [(each.name, each.source) for each in found.synonyms] == [
        ("segment.bytes", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        ("log.segment.bytes", ConfigSource.DEFAULT_CONFIG),
    ]
    assert found.documentation
    (bare,) = run(admin.describe_config(resource, names=["segment.bytes"], synonyms=False, documentation=False)).items()
    assert (bare[0], bare[1].synonyms, bare[1].documentation) == ("segment.bytes", (), None)


def test_configs_are_set_appended_to_subtracted_from_and_deleted(admin: Admin, run: Run[Any], topic: Topic) -> None:
    resource = ConfigResource.topic(topic.name)

    def policy_after(*changes: ConfigChange) -> tuple[str, ConfigSource]:
        run(admin.alter_config(resource, changes))
        run(admin.alter_config(resource, [ConfigChange.set("retention.ms", marker := str(next(markers)))]))
        found = eventually(lambda: _with_value(run(admin.describe_config(resource)), "retention.ms", marker))
        return found["cleanup.policy"].value, found["cleanup.policy"].source

    markers = iter(range(10_000, 20_000))
    assert policy_after(ConfigChange.append("cleanup.policy", "compact"))[0] == "delete,compact"
    assert policy_after(ConfigChange.subtract("cleanup.policy", "delete"))[0] == "compact"
    assert policy_after(ConfigChange.set("cleanup.policy", "delete")) == ("delete", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert policy_after(ConfigChange.delete("cleanup.policy")) == ("delete", ConfigSource.DEFAULT_CONFIG)


def test_configs_of_several_resources_fail_one_by_one(admin: Admin, run: Run[Any], topic: Topic) -> None:
    good, absent = ConfigResource.topic(topic.name), ConfigResource.topic(unique_name("absent"))
    broker, everywhere = ConfigResource.broker(1), ConfigResource.all_brokers()
    described = run(admin.describe_configs([good, absent, broker, everywhere]))
    assert codes(described) == {
        good: None,
        absent: ErrorCode.unknown_topic_or_partition,
        broker: None,
        everywhere: None,
    }
    assert described.one(broker)["num.partitions"].value == "2"
    wishes = {good: [ConfigChange.set("retention.ms", "5000")], broker: [ConfigChange.set("node.id", "7")]}
    assert codes(run(admin.alter_configs(wishes))) == {good: None, broker: ErrorCode.invalid_request}


def test_configs_of_groups_belong_to_apache_alone(admin: Admin, run: Run[Any], broker: Broker) -> None:
    resource, change = (
        ConfigResource.group(unique_name("group")),
        ConfigChange.set("consumer.session.timeout.ms", "7000"),
    )
    if broker.name == "headwater":
        assert refusal(run, admin.alter_config(resource, [change])) is ErrorCode.invalid_request
        return
    run(admin.alter_config(resource, [change]))
    found = eventually(lambda: _set_there(run(admin.describe_config(resource)), change.name))
    assert (found.value, found.source) == ("7000", ConfigSource.DYNAMIC_GROUP_CONFIG)


def _set_there(configs: dict[str, Any], name: str) -> Any:
    dynamic = (ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigSource.DYNAMIC_GROUP_CONFIG)
    return configs[name] if name in configs and configs[name].source in dynamic else None


def _with_value(configs: dict[str, Any], name: str, value: str) -> Any:
    return configs if configs[name].value == value else None


def test_a_classic_group_is_listed_and_described(
    admin: Admin, run: Run[Any], wire: Wire, broker: Broker, topic: Topic
) -> None:
    group = new_group(wire)
    with _classic(broker, group, topic) as member:
        listed = {each.group_id: each for each in run(admin.list_groups(states=["Stable"], types=["classic"]))}
        assert (listed[group].state, listed[group].protocol_type, listed[group].coordinator) == (
            "Stable",
            "consumer",
            1,
        )
        assert listed[group].group_type.lower() == "classic"
        assert group not in [each.group_id for each in run(admin.list_groups(states=["Empty"]))]
        assert group not in [each.group_id for each in run(admin.list_groups(types=["consumer"]))]
        found = run(admin.describe_group(group))
        assert (found.state, found.group_type, found.assignor) == ("Stable", "classic", "range")
        assert found.coordinator.broker == 1
        (described,) = found.members
        assert (described.member_id, described.instance_id) == (member.id, None)
        assert described.assignment == (TopicPartition(topic.name, 0), TopicPartition(topic.name, 1))


def test_a_consumer_group_is_described_with_epochs_and_targets(
    admin: Admin, run: Run[Any], wire: Wire, topic: Topic
) -> None:
    group, absent = new_group(wire, knows=topic), unique_name("absent")
    member = ConsumerMember(wire, group, "member-a", instance_id="static-a", subscribed_topic_names=[topic.name])
    member.join()
    settle(member)
    results = run(admin.describe_groups([group, absent]))
    assert codes(results) == {group: None, absent: ErrorCode.group_id_not_found}
    found = results.one(group)
    assert (found.group_type, found.state, found.assignor) == ("consumer", "Stable", "uniform")
    (described,) = found.members
    both = (TopicPartition(topic.name, 0), TopicPartition(topic.name, 1))
    assert (described.instance_id, described.epoch) == ("static-a", member.epoch)
    assert (described.assignment, described.target_assignment) == (both, both)


def test_only_groups_without_members_can_be_deleted(
    admin: Admin, run: Run[Any], wire: Wire, broker: Broker, topic: Topic
) -> None:
    group, empty, absent = new_group(wire), new_group(wire), unique_name("absent")
    run(admin.alter_group_offsets(empty, {TopicPartition(topic.name, 0): 1})).or_raise()
    with _classic(broker, group, topic):
        assert codes(run(admin.delete_groups([group, empty, absent]))) == {
            group: ErrorCode.non_empty_group,
            empty: None,
            absent: ErrorCode.group_id_not_found,
        }
        assert refusal(run, admin.delete_group(group)) is ErrorCode.non_empty_group
    assert refusal(run, admin.describe_group(empty)) is ErrorCode.group_id_not_found


def test_members_are_taken_out_by_id_by_instance_and_all_together(
    admin: Admin, run: Run[Any], wire: Wire, broker: Broker, topic: Topic
) -> None:
    group = new_group(wire)
    with _classic(broker, group, topic) as member:
        stranger = MemberName("nobody")
        results = run(admin.remove_members(group, [MemberName(member.id), stranger], reason="a test"))
        assert codes(results) == {MemberName(member.id): None, stranger: ErrorCode.unknown_member_id}
    with _classic(broker, group, topic, instance_id="static") as member:
        static = MemberName(instance_id="static")
        run(admin.remove_member(group, static))
        assert refusal(run, admin.remove_member(group, static)) is ErrorCode.unknown_member_id
    with _classic(broker, group, topic) as member:
        assert codes(run(admin.remove_members(group))) == {MemberName(member.id): None}
    assert run(admin.describe_group(group)).members == ()
    assert run(admin.remove_members(group)) == {}


def _classic(broker: Broker, group: str, topic: Topic, *, instance_id: str | None = None) -> ClassicMember:
    """A member that has joined alone and has both partitions."""
    member = ClassicMember(
        broker.bootstrap, group, instance_id=instance_id, protocols={"range": subscription(topic.name)}
    )
    assert member.join().error_code is ErrorCode.none
    assert member.sync({member.id: assignment(topic.name, 0, 1)}).error_code is ErrorCode.none
    return member


def test_offsets_of_groups_are_set_read_and_forgotten(admin: Admin, run: Run[Any], wire: Wire, topic: Topic) -> None:
    first, second, absent = new_group(wire), new_group(wire), unique_name("absent")
    zero, one = TopicPartition(topic.name, 0), TopicPartition(topic.name, 1)
    noted = CommittedOffset(2, "half-way", 0)
    assert codes(run(admin.alter_group_offsets(first, {zero: noted, one: 0}))) == {zero: None, one: None}
    run(admin.alter_group_offsets(second, {one: 7})).or_raise()
    assert run(admin.list_group_offsets(first)) == {zero: noted, one: CommittedOffset(0)}
    assert run(admin.list_group_offsets(first, [one])) == {one: CommittedOffset(0)}
    assert run(admin.list_groups_offsets([first, second, absent])).or_raise() == {
        first: {zero: noted, one: CommittedOffset(0)},
        second: {one: CommittedOffset(7)},
        absent: {},
    }
    assert run(admin.list_groups_offsets({first: [zero], second: [zero]})).or_raise() == {
        first: {zero: noted},
        second: {},
    }
    assert codes(run(admin.delete_group_offsets(first, [zero]))) == {zero: None}
    assert run(admin.list_group_offsets(first)) == {one: CommittedOffset(0)}
    assert refusal(run, admin.delete_group_offsets(absent, [zero])) is ErrorCode.group_id_not_found


def test_offsets_of_a_group_with_members_stay_theirs(
    admin: Admin, run: Run[Any], wire: Wire, broker: Broker, topic: Topic
) -> None:
    group, zero = new_group(wire), TopicPartition(topic.name, 0)
    with _classic(broker, group, topic) as member:
        assert member.commit(topic, 1) is ErrorCode.none
        assert codes(run(admin.alter_group_offsets(group, {zero: 2}))) == {zero: ErrorCode.unknown_member_id}
        assert codes(run(admin.delete_group_offsets(group, [zero]))) == {zero: ErrorCode.group_subscribed_to_topic}
    assert run(admin.list_group_offsets(group)) == {zero: CommittedOffset(1)}


def test_stable_offsets_are_waited_for(admin: Admin, run: Run[Any], wire: Wire, topic: Topic) -> None:
    group, zero = new_group(wire), TopicPartition(topic.name, 0)
    producer = TransactionalProducer(wire)
    assert producer.send_offsets(group, topic, {0: 5}) is ErrorCode.none
    assert run(admin.list_group_offsets(group)) == {}

    async def commit_meanwhile() -> Any:
        waiting = asyncio.ensure_future(admin.list_group_offsets(group, [zero], require_stable=True))
        await admin.describe_group(group)
        assert not waiting.done()
        await asyncio.to_thread(producer.end, committed=True)
        return await waiting

    assert run(commit_meanwhile()) == {zero: CommittedOffset(5)}


def test_offsets_are_looked_up_at_every_spot_and_by_time(admin: Admin, run: Run[Any], wire: Wire) -> None:
    made = create_topic(wire)
    times = [AN_HOUR_AGO_MS, AN_HOUR_AGO_MS + 2000, AN_HOUR_AGO_MS + 1000]
    for time_ms in times:
        produce_ok(wire, made, batch(Record(timestamp_ms=time_ms)))
    place = TopicPartition(made.name, 0)

    def at(when: int) -> FoundOffset:
        found: FoundOffset = run(admin.list_offsets([place], when)).one(place)
        return found

    assert (at(Spot.EARLIEST).offset, at(Spot.LATEST).offset) == (0, 3)
    assert at(Spot.MAX_TIMESTAMP)[:2] == (1, times[1])
    assert at(times[0] + 1)[:2] == (1, times[1])
    assert at(times[1] + 1)[:2] == (-1, -1)
    assert at(Spot.LATEST).leader_epoch >= 0


def test_the_committed_end_is_where_the_first_open_transaction_begins(
    admin: Admin, run: Run[Any], wire: Wire, topic: Topic
) -> None:
    place, producer = TopicPartition(topic.name, 0), TransactionalProducer(wire)
    producer.add(topic)
    producer.send(topic, b"open")
    committed = run(admin.list_offsets([place], isolation=Isolation.READ_COMMITTED)).one(place)
    assert (committed.offset, run(admin.list_offsets([place])).one(place).offset) == (3, 4)
    producer.end(committed=False)


def test_records_are_deleted_up_to_an_offset_or_all(admin: Admin, run: Run[Any], topic: Topic) -> None:
    zero, one, absent = (TopicPartition(topic.name, number) for number in (0, 1, 9))
    assert run(admin.delete_records({zero: 2})).or_raise() == {zero: 2}
    assert run(admin.list_offsets([zero], Spot.EARLIEST)).one(zero).offset == 2
    results = run(admin.delete_records({zero: ALL_RECORDS, one: 1, absent: 0}))
    assert results[zero] == 3
    assert codes(results) == {
        zero: None,
        one: ErrorCode.offset_out_of_range,
        absent: ErrorCode.unknown_topic_or_partition,
    }
    nowhere = TopicPartition(unique_name("absent"), 0)
    assert codes(run(admin.list_offsets([zero, nowhere]))) == {
        zero: None,
        nowhere: ErrorCode.unknown_topic_or_partition,
    }


def test_log_dirs_show_what_lies_in_them(admin: Admin, run: Run[Any], topic: Topic) -> None:
    zero, one, absent = (TopicPartition(topic.name, number) for number in (0, 1, 9))
    (broker, log_dirs), *others = run(admin.describe_log_dirs(partitions=[zero, one])).or_raise().items()
    assert (broker, others) == (1, [])
    (log_dir,) = log_dirs
    assert log_dir.error is None
    assert 0 < log_dir.usable_bytes <= log_dir.total_bytes
    sizes = {replica.partition: replica.size_bytes for replica in log_dir.replicas if not replica.is_future}
    assert (sizes[zero] > 0, sizes[one], sorted(sizes)) == (True, 0, [zero, one])
    everything = run(admin.describe_log_dirs([1])).one(1)[0].replicas
    assert {zero, one} <= {replica.partition for replica in everything}
    assert codes(run(admin.alter_replica_log_dirs(1, log_dir.path, [zero, absent]))) == {
        zero: None,
        absent: ErrorCode.unknown_topic_or_partition,
    }
    nowhere = f"{log_dir.path}-nowhere"
    assert codes(run(admin.alter_replica_log_dirs(1, nowhere, [zero]))) == {zero: ErrorCode.log_dir_not_found}


def test_the_cluster_tells_its_brokers_features_and_apis(admin: Admin, run: Run[Any], broker: Broker) -> None:
    found = run(admin.describe_cluster())
    assert (found.controller, len(found.cluster_id)) == (1, 22)
    (described,) = found.brokers
    assert (described.broker_id, f"{described.host}:{described.port}", described.rack) == (1, broker.bootstrap, None)
    assert run(admin.describe_cluster(include_fenced_brokers=True)) == found
    features = run(admin.describe_features(1))
    assert features.finalized["group.version"] == (1, 1)
    assert features.supported["transaction.version"] == (0, 2)
    apis = {api.key: api for api in run(admin.describe_apis())}
    assert (apis[19].name, apis[19].min_version, apis[19].max_version) == ("CreateTopics", 2, 7)
    assert run(admin.describe_apis(1)) == list(apis.values())


def test_a_transaction_is_listed_described_and_fenced(admin: Admin, run: Run[Any], wire: Wire, topic: Topic) -> None:
    producer = TransactionalProducer(wire)
    producer.add(topic)
    producer.send(topic, b"open")
    name, absent, zero = producer.transactional_id, unique_name("absent"), TopicPartition(topic.name, 0)

    def listed(**filters: Any) -> bool:
        return name in [each.transactional_id for each in run(admin.list_transactions(**filters))]

    passing: tuple[dict[str, Any], ...] = (
        {},
        {"states": ["Ongoing"]},
        {"producer_ids": [producer.id]},
        {"longer_than_ms": 0},
    )
    assert [listed(**filters) for filters in (*passing, {"id_pattern": f"{name[:-1]}."})] == [True] * 5
    failing = ({"states": ["Empty"]}, {"producer_ids": [producer.id + 1_000_000]}, {"longer_than_ms": 3_600_000})
    assert [listed(**filters) for filters in (*failing, {"id_pattern": "nothing-of-the-kind"})] == [False] * 4
    results = run(admin.describe_transactions([name, absent]))
    assert codes(results) == {name: None, absent: ErrorCode.transactional_id_not_found}
    found = results.one(name)
    assert (found.state, found.producer_id, found.producer_epoch) == ("Ongoing", producer.id, producer.epoch)
    assert (found.timeout_ms, found.partitions, found.coordinator) == (60_000, (zero,), 1)
    assert found.started_at_ms is not None
    fenced = run(admin.fence_producer(name))
    assert fenced.producer_epoch > producer.epoch or fenced.producer_id != producer.id
    after = run(admin.describe_transaction(name))
    assert (after.state, after.started_at_ms, after.partitions) == ("Empty", None, ())
    assert producer.end(committed=True) in (ErrorCode.invalid_producer_epoch, ErrorCode.producer_fenced)


def test_a_hanging_transaction_is_found_and_aborted(admin: Admin, run: Run[Any], wire: Wire, topic: Topic) -> None:
    place, other = TopicPartition(topic.name, 0), TopicPartition(topic.name, 1)
    producer = TransactionalProducer(wire)
    producer.add(topic)
    producer.send(topic, b"open")
    described = run(admin.describe_producers([place, other]))
    assert described.one(other) == ()
    (active,) = described.one(place)
    assert (active.producer_id, active.producer_epoch, active.last_sequence) == (producer.id, producer.epoch, 0)
    assert active.transaction_start_offset == 3
    # Its coordinator knows of it and will end it, so it does not hang, however long it lasts.
    assert run(admin.find_hanging_transactions([place, other], longer_than_ms=-1)) == []
    run(
        admin.abort_transaction(
            place,
            producer_id=active.producer_id,
            producer_epoch=active.producer_epoch,
            coordinator_epoch=active.coordinator_epoch,
        )
    )
    ended = run(admin.describe_producers([place])).one(place)
    assert [each.transaction_start_offset for each in ended] == [None]
    producer.end(committed=False)


def test_a_partition_that_is_not_there_is_named(admin: Admin, run: Run[Any]) -> None:
    absent = TopicPartition(unique_name("absent"), 0)
    for call in (admin.describe_producers([absent]), admin.list_offsets([absent]), admin.delete_records({absent: 0})):
        assert codes(run(call)) == {absent: ErrorCode.unknown_topic_or_partition}
