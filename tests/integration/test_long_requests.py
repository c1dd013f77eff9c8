"""No request holds the event loop, whatever it asks for, and to ask again and again for the same costs nothing more."""

import dataclasses
import tracemalloc
from collections.abc import Iterator
from typing import Any, get_type_hints

import pytest

from conformance.actions import Topic, create_topic, unique_name
from conformance.wire import Wire
from headwater.protocol.apis import (
    CREATE_TOPICS,
    DESCRIBE_CONFIGS,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    SERVED,
    Api,
)
from headwater.protocol.entity_shapes import nested_entity
from headwater.protocol.messages import Nothing, convert, request_type
from headwater.protocol.wire import MAX_REQUEST_ITEMS as MAX_ITEMS
from headwater.testing import LocalBroker
from integration.hostile_requests import hostile_requests, request_frame
from integration.loop_turns import LoopTurns
from integration.raw_client import RawClient

WORST_TURN_S = 0.02
LANES = ("produce", "fetch")
GROUP, TRANSACTION = 0, 1


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    settings: dict[str, str | int | bool | float] = {
        "auto.create.topics.enable": "false",
        "offsets.topic.num.partitions": 3,
    }
    with LocalBroker(config=settings) as running:
        with Wire(running.bootstrap) as wire:
            for kind in (GROUP, TRANSACTION):
                wire.send("find_coordinator", 4, key_type=kind, coordinator_keys=["x0"])
        yield running


@pytest.fixture(scope="module")
def wide_topic(broker: LocalBroker) -> Topic:
    """A topic with so many partitions that what is done to all of them is done in pieces."""
    with Wire(broker.bootstrap) as wire:
        return create_topic(wire, partitions=300)


def ask(broker: LocalBroker, frame: bytes) -> tuple[bytes | None, float]:
    """The answer, and the longest turn of the loop on the way to it."""
    with RawClient(broker.bootstrap, timeout_s=60) as client, LoopTurns(broker) as turns:
        answer = client.ask(frame)
    return answer, turns.worst_s


def built(api: Api, version: int, **fields: Any) -> bytes:
    request = dataclasses.replace(convert(Nothing(), request_type(api.key, version)), **fields)
    return request_frame(api, version, request)


@pytest.mark.parametrize("api", [api for api in SERVED.values() if api.name not in LANES], ids=lambda api: api.name)
def test_no_long_request_holds_the_loop(broker: LocalBroker, api: Api) -> None:
    for what, request in hostile_requests(api, api.max_version, 6_000):
        answer, worst_s = ask(broker, request_frame(api, api.max_version, request))
        assert answer is not None, what
        assert worst_s < WORST_TURN_S, what


def row(api: Api, version: int, field: str) -> type[Any]:
    """The entity that an array of a request holds."""
    found = nested_entity(get_type_hints(request_type(api.key, version))[field])
    assert found is not None
    return found


def test_a_broker_that_is_named_again_and_again_is_described_once(broker: LocalBroker) -> None:
    """2,200 times the same took 15 s and gigabytes; the names of a broker with zeros before them are its names too."""
    resource = row(DESCRIBE_CONFIGS, 4, "resources")
    node = next(iter(_node_ids(broker)))
    resources = tuple(
        resource(resource_type=4, resource_name=f"{'0' * (number % 9)}{node}", configuration_keys=None)
        for number in range(2_200)
    )
    frame = built(DESCRIBE_CONFIGS, 4, resources=resources, include_synonyms=True, include_documentation=True)
    tracemalloc.start()
    try:
        answer, worst_s = ask(broker, frame)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    once, _ = ask(
        broker,
        built(DESCRIBE_CONFIGS, 4, resources=resources[:1], include_synonyms=True, include_documentation=True),
    )
    assert answer == once
    assert peak < 10_000_000
    # Tracing makes everything several times slower.
    assert worst_s < 5 * WORST_TURN_S


def _node_ids(broker: LocalBroker) -> list[int]:
    with Wire(broker.bootstrap) as wire:
        return [int(member.broker_id) for member in wire.send("describe_cluster").brokers]


def test_keys_of_a_resource_that_is_named_twice_are_put_together(broker: LocalBroker) -> None:
    with Wire(broker.bootstrap) as wire:
        topic = create_topic(wire)
        asked = [
            {"resource_type": 2, "resource_name": topic.name, "configuration_keys": [key]}
            for key in ("retention.ms", "segment.bytes")
        ]
        [result] = wire.send("describe_configs", resources=asked).results
        assert {config.name for config in result.configs} == {"retention.ms", "segment.bytes"}


def test_a_topic_that_is_named_again_and_again_is_looked_up_once(broker: LocalBroker) -> None:
    """Its partitions are answered with INVALID_REQUEST then, in whichever of the topics they are repeated."""
    with Wire(broker.bootstrap) as wire:
        topic = create_topic(wire, partitions=2)
        asked = [{"name": topic.name, "partitions": [{"partition_index": index, "timestamp": -1}]} for index in (0, 1)]
        answer = wire.send("list_offsets", replica_id=-1, topics=[*asked, asked[0]] * 2_000)
    [found] = answer.topics
    assert [(row.partition_index, row.error_code.name) for row in found.partitions] == [
        (0, "invalid_request"),
        (1, "invalid_request"),
    ]
    topics = row(LIST_OFFSETS, 10, "topics")
    partitions = row_in(topics, "partitions")
    one = topics(name=topic.name, partitions=(partitions(partition_index=0, timestamp=5),))
    frame = built(LIST_OFFSETS, 10, replica_id=-1, isolation_level=0, topics=(one,) * 20_000)
    _, worst_s = ask(broker, frame)
    assert worst_s < WORST_TURN_S


def row_in(entity: type[Any], field: str) -> type[Any]:
    """The entity that an array of another entity holds."""
    found = nested_entity(get_type_hints(entity)[field])
    assert found is not None
    return found


def test_topics_that_are_only_validated_do_not_hold_the_loop(broker: LocalBroker) -> None:
    topic = row(CREATE_TOPICS, 7, "topics")
    topics = tuple(
        topic(name=f"new-{number}", num_partitions=-1, replication_factor=-1, assignments=(), configs=())
        for number in range(5_000)
    )
    answer, worst_s = ask(broker, built(CREATE_TOPICS, 7, topics=topics, validate_only=True))
    assert answer is not None
    assert len(answer) > 5_000_000
    assert worst_s < WORST_TURN_S


def test_topics_with_the_default_number_of_partitions_count_too(broker: LocalBroker) -> None:
    wanted = [{"name": f"new-{number}", "num_partitions": -1, "replication_factor": -1} for number in range(10_001)]
    with Wire(broker.bootstrap) as wire:
        answer = wire.send("create_topics", topics=wanted, validate_only=True)
    assert {topic.error_code.name for topic in answer.topics} == {"policy_violation"}


def test_two_megabytes_of_metadata_do_not_hold_the_loop(broker: LocalBroker) -> None:
    """They are refused beyond 100,000 items, and answered below."""
    topic = row(METADATA, 9, "topics")
    for count, is_answered in ((MAX_ITEMS, True), (660_000, False)):
        frame = built(METADATA, 9, topics=(topic(name="a"),) * count)
        answer, worst_s = ask(broker, frame)
        assert (answer is not None) == is_answered
        assert worst_s < WORST_TURN_S


def test_too_many_items_are_refused_with_an_error_where_there_is_room_for_one(broker: LocalBroker) -> None:
    with Wire(broker.bootstrap) as wire:
        answer = wire.send("find_coordinator", 3, key_type=GROUP, key="x")
        assert answer.error_code.name == "none"
        answer = wire.send("metadata", 13, topics=[{"name": None, "topic_id": None}] * (MAX_ITEMS + 1))
        assert answer.error_code.name == "invalid_request"


def test_what_a_long_request_says_is_the_same_in_slices(broker: LocalBroker) -> None:
    """In the oldest version as in the newest: the bridge between versions is crossed row by row."""
    with Wire(broker.bootstrap) as wire:
        topic = create_topic(wire, partitions=3)
        for version in (LIST_OFFSETS.min_version, LIST_OFFSETS.max_version):
            others = [{"name": f"no-{number}", "partitions": []} for number in range(3_000)]
            asked = {
                "name": topic.name,
                "partitions": [{"partition_index": index, "timestamp": -2} for index in range(3_000)],
            }
            answer = wire.send("list_offsets", version, replica_id=-1, topics=[*others, asked])
            assert [found.name for found in answer.topics] == [*(other["name"] for other in others), topic.name]
            found = answer.topics[-1].partitions
            assert [each.partition_index for each in found] == list(range(3_000))
            assert [each.error_code.name for each in found[:4]] == ["none"] * 3 + ["unknown_topic_or_partition"]


def test_a_group_that_is_asked_for_again_and_again_is_described_once(broker: LocalBroker) -> None:
    group = unique_name("group")
    with Wire(broker.bootstrap) as wire:
        for api, field in (("describe_groups", "groups"), ("consumer_group_describe", "group_ids")):
            answer = wire.send(api, **{field: [group] * 5_000})
            assert [found.group_id for found in answer.groups] == [group]
        answer = wire.send("describe_transactions", transactional_ids=[group] * 5_000)
        assert [found.transactional_id for found in answer.transaction_states] == [group]
        answer = wire.send("find_coordinator", key_type=GROUP, coordinator_keys=[group] * 5_000)
        assert [found.key for found in answer.coordinators] == [group]
        wanted = {"group_id": group, "topics": None, "member_id": None, "member_epoch": -1}
        answer = wire.send("offset_fetch", groups=[wanted] * 5_000, require_stable=False)
        assert [found.group_id for found in answer.groups] == [group]


def test_a_long_commit_is_decided_in_pieces_and_whole_in_the_end(broker: LocalBroker, wide_topic: Topic) -> None:
    group = unique_name("group")
    with Wire(broker.bootstrap) as wire:
        topic = wide_topic
        for version in (OFFSET_COMMIT.min_version, OFFSET_COMMIT.max_version):
            rows = [
                {
                    "partition_index": index,
                    "committed_offset": version,
                    "committed_metadata": "m",
                }
                for index in range(301)
            ]
            answer = wire.send(
                "offset_commit",
                version,
                group_id=group,
                generation_id_or_member_epoch=-1,
                member_id="",
                retention_time=-1,
                topics=[{"name": topic.name, "partitions": rows}],
            )
            [committed] = answer.topics
            assert [each.partition_index for each in committed.partitions] == list(range(301))
            codes = [each.error_code.name for each in committed.partitions]
            assert codes == ["none"] * 300 + ["unknown_topic_or_partition"]
        wanted = {"group_id": group, "topics": None, "member_id": None, "member_epoch": -1}
        [found] = wire.send("offset_fetch", groups=[wanted], require_stable=True).groups
    assert {each.committed_offset for each in found.topics[0].partitions} == {OFFSET_COMMIT.max_version}
    assert len(found.topics[0].partitions) == 300


def test_the_markers_of_many_partitions_are_written_in_slices(broker: LocalBroker, wide_topic: Topic) -> None:
    with Wire(broker.bootstrap) as wire:
        topic = wide_topic
        name = unique_name("transaction")
        begun = wire.send("init_producer_id", transactional_id=name, transaction_timeout=60_000)
        who = {"producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch}
        added = wire.send(
            "add_partitions_to_txn",
            3,
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=begun.producer_id,
            v3_and_below_producer_epoch=begun.producer_epoch,
            v3_and_below_topics=[{"name": topic.name, "partitions": [*range(300)] * 2}],
        )
        [result] = added.results_by_topic_v3_and_below
        assert [each.partition_error_code.name for each in result.results_by_partition] == ["none"] * 300
        with LoopTurns(broker) as turns:
            ended = wire.send("end_txn", 3, transactional_id=name, committed=True, **who)
            assert ended.error_code.name == "none"
            while (
                wire.send("describe_transactions", transactional_ids=[name]).transaction_states[0].transaction_state
                != "CompleteCommit"
            ):
                pass
        assert turns.worst_s < WORST_TURN_S
        rows = wire.send(
            "list_offsets",
            replica_id=-1,
            isolation_level=1,
            topics=[
                {
                    "name": topic.name,
                    "partitions": [{"partition_index": index, "timestamp": -1} for index in range(300)],
                }
            ],
        )
        assert {each.offset for each in rows.topics[0].partitions} == {1}


def test_a_marker_that_is_asked_for_twice_is_written_once(broker: LocalBroker) -> None:
    with Wire(broker.bootstrap) as wire:
        topic = create_topic(wire)
        marker = {
            "producer_id": 5,
            "producer_epoch": 0,
            "transaction_result": False,
            "coordinator_epoch": 0,
            "topics": [{"name": topic.name, "partition_indexes": [0, 0]}] * 2,
        }
        [result] = wire.send("write_txn_markers", markers=[marker] * 500).markers
        assert [len(found.partitions) for found in result.topics] == [1]
        ends = wire.send(
            "list_offsets",
            replica_id=-1,
            topics=[{"name": topic.name, "partitions": [{"partition_index": 0, "timestamp": -1}]}],
        )
    assert ends.topics[0].partitions[0].offset == 1


@pytest.mark.parametrize(
    ("pattern", "error"),
    [
        ("x" * 32_000, "invalid_regular_expression"),
        ("(.?){900}x", "none"),
        ("(.?){1000}x", "invalid_regular_expression"),
        ("(a|b)*a(a|b){20}", "none"),
    ],
)
def test_a_pattern_does_not_hold_the_loop(broker: LocalBroker, pattern: str, error: str) -> None:
    with Wire(broker.bootstrap) as wire:
        for _ in range(3):
            create_topic(wire, name=unique_name("ab" * 100))
        beat = {
            "group_id": unique_name("group"),
            "member_id": unique_name("member"),
            "member_epoch": 0,
            "rebalance_timeout": 60_000,
            "subscribed_topic_regex": pattern,
            "topic_partitions": [],
        }
        with LoopTurns(broker) as turns:
            answer = wire.send("consumer_group_heartbeat", **beat)
        assert answer.error_code.name == error
        assert len(answer.error_message or "") < 500
        assert turns.worst_s < WORST_TURN_S


def test_a_member_that_subscribes_with_a_pattern_hears_of_topics_that_come_later(broker: LocalBroker) -> None:
    prefix = unique_name("family")
    with Wire(broker.bootstrap) as wire:
        group, member = unique_name("group"), unique_name("member")

        def beat(epoch: int, **fields: Any) -> Any:
            return wire.send("consumer_group_heartbeat", group_id=group, member_id=member, member_epoch=epoch, **fields)

        first = create_topic(wire, name=f"{prefix}-1")
        told = beat(0, rebalance_timeout=60_000, subscribed_topic_regex=f"{prefix}-.*", topic_partitions=[])
        assert {row.topic_id for row in told.assignment.topic_partitions} == {first.id}
        second = create_topic(wire, name=f"{prefix}-2")
        for _ in range(100):
            answer = beat(told.member_epoch)
            if answer.assignment is not None:
                break
        assert {row.topic_id for row in answer.assignment.topic_partitions} == {first.id, second.id}
