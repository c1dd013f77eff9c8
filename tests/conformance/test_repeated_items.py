"""An item that a request names several times: what both brokers make of it, and where ours answers once on purpose.

Apache describes a thing as often as it is named. Ours describes it once, as a short request could otherwise ask for an
answer of any length; clients keep the answers by name, so they do not notice.
"""

from typing import Any

import pytest

from peers.apache import ApacheKafka
from peers.headwater import HeadwaterProcess

from .actions import create_topic, fetch_topic, produce_ok, unique_name
from .batches import batch
from .wire import Wire

Broker = ApacheKafka | HeadwaterProcess
TIMES = 3


def test_list_offsets_refuses_a_partition_that_is_named_twice(wire: Wire) -> None:
    topic = create_topic(wire, partitions=2)
    asked = [
        {"name": topic.name, "partitions": [{"partition_index": index, "timestamp": -1} for index in indexes]}
        for indexes in ((0, 1), (0,))
    ]
    [found] = wire.send("list_offsets", replica_id=-1, topics=asked).topics
    codes = {row.partition_index: row.error_code.name for row in found.partitions}
    assert len(found.partitions) == len(codes)
    assert codes == {0: "invalid_request", 1: "none"}


def test_delete_records_goes_to_the_offset_that_is_named_last(wire: Wire) -> None:
    topic = create_topic(wire)
    produce_ok(wire, topic, batch(b"a", b"b", b"c"))
    partitions = [{"partition_index": 0, "offset": offset} for offset in (1, 2)]
    [found] = wire.send("delete_records", topics=[{"name": topic.name, "partitions": partitions}]).topics
    assert [(row.partition_index, row.low_watermark) for row in found.partitions] == [(0, 2)]


def test_add_partitions_to_txn_adds_a_partition_that_is_named_twice(broker: Broker, wire: Wire) -> None:
    topic, name = create_topic(wire), unique_name("transaction")
    wire.send("find_coordinator", 4, key_type=1, coordinator_keys=[name])
    while (begun := wire.send("init_producer_id", transactional_id=name, transaction_timeout=60_000)).error_code:
        pass
    answer = wire.send(
        "add_partitions_to_txn",
        3,
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=begun.producer_id,
        v3_and_below_producer_epoch=begun.producer_epoch,
        v3_and_below_topics=[{"name": topic.name, "partitions": [0, 0]}],
    )
    [found] = answer.results_by_topic_v3_and_below
    answers = [(row.partition_index, row.partition_error_code.name) for row in found.results_by_partition]
    assert answers == [(0, "none")] * (1 if isinstance(broker, HeadwaterProcess) else 2)


def test_fetch_answers_a_partition_once(wire: Wire) -> None:
    topic = create_topic(wire)
    produce_ok(wire, topic, batch(b"a"))
    wanted = [fetch_topic(topic, {0: 0}) for _ in range(TIMES)]
    answer = wire.send("fetch", 12, max_wait=0, min_bytes=0, max_bytes=1_000_000, isolation_level=0, topics=wanted)
    assert [len(found.partitions) for found in answer.responses] == [1]


def test_topics_with_the_default_number_of_partitions_count_among_the_ten_thousand(wire: Wire) -> None:
    wanted = [{"name": unique_name(), "num_partitions": -1, "replication_factor": -1} for _ in range(10_001)]
    answer = wire.send("create_topics", topics=wanted, validate_only=True, timeout=60_000)
    assert {topic.error_code.name for topic in answer.topics} == {"policy_violation"}


def described(wire: Wire, api: str) -> int:
    """How many answers there are when the same is asked for several times."""
    topic, group = create_topic(wire), unique_name("group")
    wire.send("find_coordinator", 4, key_type=0, coordinator_keys=[group])
    wire.send("find_coordinator", 4, key_type=1, coordinator_keys=[group])
    resource = {"resource_type": 2, "resource_name": topic.name, "configuration_keys": ["retention.ms"]}
    wanted = {"group_id": group, "topics": None, "member_id": None, "member_epoch": -1}
    requests: dict[str, tuple[dict[str, Any], str]] = {
        "describe_configs": ({"resources": [resource] * TIMES}, "results"),
        "describe_groups": ({"groups": [group] * TIMES}, "groups"),
        "consumer_group_describe": ({"group_ids": [group] * TIMES}, "groups"),
        "describe_transactions": ({"transactional_ids": [group] * TIMES}, "transaction_states"),
        "describe_producers": ({"topics": [{"name": topic.name, "partition_indexes": [0]}] * TIMES}, "topics"),
        "find_coordinator": ({"key_type": 0, "coordinator_keys": [group] * TIMES}, "coordinators"),
        "offset_fetch": ({"groups": [wanted] * TIMES, "require_stable": False}, "groups"),
    }
    fields, answers = requests[api]
    return len(getattr(wire.send(api, **fields), answers))


@pytest.mark.parametrize(
    "api",
    [
        "describe_configs",
        "describe_groups",
        "consumer_group_describe",
        "describe_transactions",
        "describe_producers",
        "find_coordinator",
        "offset_fetch",
    ],
)
def test_what_is_described_is_described_once_here(broker: Broker, wire: Wire, api: str) -> None:
    assert described(wire, api) == (1 if isinstance(broker, HeadwaterProcess) else TIMES)


def test_an_assignment_that_no_record_can_hold_is_refused(wire: Wire) -> None:
    group = unique_name("group")
    wire.send("find_coordinator", 4, key_type=0, coordinator_keys=[group])
    member = {"group_id": group, "session_timeout": 30_000, "rebalance_timeout": 30_000, "protocol_type": "consumer"}
    protocols = [{"name": "range", "metadata": b"x"}]
    while True:
        asked = wire.send("join_group", member_id="", protocols=protocols, **member)
        if asked.error_code.name == "member_id_required":
            break
    joined = wire.send("join_group", member_id=asked.member_id, protocols=protocols, **member)
    synced = wire.send(
        "sync_group",
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[{"member_id": joined.member_id, "assignment": bytes(2_000_000)}],
    )
    assert synced.error_code.name == "unknown_server_error"
