"""What clients may ask of topics and settings, where headwater has rules of its own."""

import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.wire import Wire, plain
from headwater.testing import LocalBroker

TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
SET, APPEND = 0, 2
TOPIC_SOURCE, DYNAMIC_BROKER = 1, 2


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    """One for all tests of the module: use topic names of your own."""
    with LocalBroker(config={"num.partitions": 2, "max.request.partition.size.limit": 4}) as broker:
        yield broker


@pytest.fixture
def wire(broker: LocalBroker) -> Iterator[Wire]:
    with Wire(broker.bootstrap) as wire:
        yield wire


def name(prefix: str = "topic") -> str:
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


def new_topic(topic: str, partitions: int = 1, **configs: str) -> dict[str, Any]:
    return {
        "name": topic,
        "num_partitions": partitions,
        "replication_factor": 1,
        "assignments": [],
        "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
    }


def create(wire: Wire, *topics: dict[str, Any]) -> dict[str, str]:
    """Error names by topic."""
    answer = wire.send("create_topics", topics=list(topics), timeout=10_000, validate_only=False)
    return {topic.name: topic.error_code.name for topic in answer.topics}


def metadata(wire: Wire, topic: str, *, auto_create: bool = False) -> Any:
    answer = wire.send("metadata", topics=[{"name": topic}], allow_auto_topic_creation=auto_create)
    return answer.topics[0]


def alter(wire: Wire, kind: int, resource: str, *changes: tuple[str, int, str | None]) -> tuple[str, str]:
    """Error name and message."""
    configs = [{"name": key, "config_operation": op, "value": value} for key, op, value in changes]
    answer = wire.send(
        "incremental_alter_configs",
        resources=[{"resource_type": kind, "resource_name": resource, "configs": configs}],
        validate_only=False,
    )
    return answer.responses[0].error_code.name, answer.responses[0].error_message or ""


def value(wire: Wire, kind: int, resource: str, key: str) -> tuple[str | None, int]:
    """Value and source of one config."""
    asked = {"resource_type": kind, "resource_name": resource, "configuration_keys": [key]}
    answer = wire.send("describe_configs", resources=[asked])
    (config,) = answer.results[0].configs
    return config.value, int(config.config_source)


def at_once(count: int, work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_the_topic_is_there_in_the_answer_that_made_it(wire: Wire) -> None:
    found = metadata(wire, name("auto"), auto_create=True)
    assert found.error_code.name == "none"
    assert len(found.partitions) == 2, "as num.partitions says"


def test_many_clients_that_miss_the_same_topic_get_one(broker: LocalBroker) -> None:
    topic = name("auto")
    ids: set[uuid.UUID | None] = set()

    def ask(_: int) -> None:
        with Wire(broker.bootstrap) as wire:
            ids.add(metadata(wire, topic, auto_create=True).topic_id)

    at_once(8, ask)
    assert len(ids) == 1
    assert None not in ids


def test_a_topic_is_not_made_when_its_name_collides(wire: Wire) -> None:
    dotted = name("dot.ted")
    create(wire, new_topic(dotted))
    found = metadata(wire, dotted.replace(".", "_"), auto_create=True)
    assert found.error_code.name == "invalid_topic_exception"


def test_asking_for_an_internal_topic_does_not_make_it(wire: Wire) -> None:
    found = metadata(wire, "__consumer_offsets", auto_create=True)
    assert found.error_code.name == "unknown_topic_or_partition"
    assert found.is_internal


def test_a_topic_without_name_and_id_is_an_invalid_request(wire: Wire) -> None:
    answer = wire.send("metadata", topics=[{"name": None, "topic_id": None}])
    assert answer.error_code.name == "invalid_request"
    assert answer.topics[0].error_code.name == "invalid_request"


def test_of_two_colliding_names_in_one_request_the_first_is_taken(wire: Wire) -> None:
    dotted = name("a.b")
    flat = dotted.replace(".", "_")
    assert create(wire, new_topic(dotted), new_topic(flat)) == {
        dotted: "none",
        flat: "invalid_topic_exception",
    }


def test_of_colliding_names_made_at_the_same_time_one_is_taken(broker: LocalBroker) -> None:
    ending = name()
    errors: list[str] = []

    def make(number: int) -> None:
        with Wire(broker.bootstrap) as wire:
            errors.extend(create(wire, new_topic(f"x{'._'[number % 2]}{ending}")).values())

    at_once(8, make)
    assert errors.count("none") == 1


def test_a_request_cannot_fill_the_disk_with_partitions(wire: Wire) -> None:
    topic, other = name(), name()
    assert set(create(wire, new_topic(topic, 6000), new_topic(other, 6000)).values()) == {"policy_violation"}
    create(wire, new_topic(topic))
    wish = {"name": topic, "count": 2**31 - 1, "assignments": None}
    grown = wire.send("create_partitions", topics=[wish], timeout=1000, validate_only=False)
    assert grown.results[0].error_code.name == "policy_violation"
    assert len(metadata(wire, topic).partitions) == 1


def test_partitions_added_at_the_same_time_never_shrink_the_topic(broker: LocalBroker, wire: Wire) -> None:
    topic = name()
    create(wire, new_topic(topic))

    def grow(number: int) -> None:
        with Wire(broker.bootstrap) as wire:
            wish = {"name": topic, "count": 2 + number, "assignments": None}
            wire.send("create_partitions", topics=[wish], timeout=1000, validate_only=False)

    at_once(8, grow)
    indexes = [partition.partition_index for partition in metadata(wire, topic).partitions]
    assert indexes == list(range(9))


@pytest.mark.parametrize(
    ("version", "error"),
    [(1, "invalid_request"), (3, "topic_deletion_disabled"), (6, "topic_deletion_disabled")],
)
def test_topics_stay_when_deletion_is_disabled(version: int, error: str) -> None:
    with LocalBroker(config={"delete.topic.enable": False}) as broker, Wire(broker.bootstrap) as wire:
        create(wire, new_topic("kept"))
        wishes = [{"name": "kept", "topic_id": None}]
        answer = wire.send("delete_topics", version, topics=wishes, topic_names=["kept"], timeout=1000)
        assert answer.responses[0].error_code.name == error
        assert metadata(wire, "kept").error_code.name == "none"


def test_a_topic_that_is_named_and_given_by_id_is_kept(wire: Wire) -> None:
    topic = name()
    create(wire, new_topic(topic))
    by_id = {"name": None, "topic_id": metadata(wire, topic).topic_id}
    answer = wire.send("delete_topics", topics=[by_id, {"name": topic, "topic_id": None}], timeout=1000)
    assert [(found.name, found.error_code.name) for found in answer.responses] == [(topic, "invalid_request")]
    assert metadata(wire, topic).error_code.name == "none"


def test_changes_of_settings_at_the_same_time_are_all_kept(broker: LocalBroker, wire: Wire) -> None:
    topic = name()
    create(wire, new_topic(topic))
    keys = ["retention.ms", "segment.ms", "flush.ms", "delete.retention.ms", "max.compaction.lag.ms"]

    def change(number: int) -> None:
        with Wire(broker.bootstrap) as wire:
            assert alter(wire, TOPIC, topic, (keys[number], SET, "70000")) == ("none", "")

    at_once(len(keys), change)
    assert [value(wire, TOPIC, topic, key) for key in keys] == [("70000", TOPIC_SOURCE)] * len(keys)


def test_settings_and_producer_ids_survive_a_restart(tmp_path: Path) -> None:
    with LocalBroker(data=tmp_path) as broker, Wire(broker.bootstrap) as wire:
        create(wire, new_topic("kept", cleanup_policy="compact"))
        alter(wire, TOPIC, "kept", ("cleanup.policy", APPEND, "delete"))
        alter(wire, BROKER, "1", ("message.max.bytes", SET, "2000000"))
        first = producer_id(wire)
    with LocalBroker(data=tmp_path) as broker, Wire(broker.bootstrap) as wire:
        assert value(wire, TOPIC, "kept", "cleanup.policy") == ("compact,delete", TOPIC_SOURCE)
        assert value(wire, BROKER, "1", "message.max.bytes") == ("2000000", DYNAMIC_BROKER)
        assert value(wire, TOPIC, "kept", "max.message.bytes") == ("2000000", DYNAMIC_BROKER)
        assert producer_id(wire) > first


def producer_id(wire: Wire) -> int:
    answer = wire.send("init_producer_id", transactional_id=None, transaction_timeout=60_000)
    assert (answer.error_code.name, answer.producer_epoch) == ("none", 0)
    return int(answer.producer_id)


@pytest.mark.parametrize(
    ("transactional_id", "timeout_ms", "error"),
    [
        ("", 60_000, "invalid_request"),
        ("pay", 900_001, "invalid_transaction_timeout"),
        ("pay", 0, "invalid_transaction_timeout"),
    ],
)
def test_a_transactional_producer_must_ask_properly(
    wire: Wire, transactional_id: str, timeout_ms: int, error: str
) -> None:
    found = wire.send("find_coordinator", key_type=1, coordinator_keys=[transactional_id])
    assert found.coordinators[0].error_code.name == "none"
    answer = wire.send("init_producer_id", transactional_id=transactional_id, transaction_timeout=timeout_ms)
    assert (answer.error_code.name, answer.producer_id) == (error, -1)


def test_an_unknown_broker_config_is_refused_with_the_nearest_name(wire: Wire) -> None:
    error, message = alter(wire, BROKER, "1", ("message.max.byte", SET, "1"))
    assert error == "invalid_request"
    assert "message.max.bytes" in message


def test_a_kind_of_resource_without_settings_fails_alone(wire: Wire) -> None:
    topic = name()
    create(wire, new_topic(topic, retention_ms="5000"))
    kinds = [(LOGGER, "1"), (GROUP, "g"), (99, "x"), (TOPIC, topic)]
    answer = wire.send(
        "describe_configs",
        resources=[
            {"resource_type": kind, "resource_name": resource, "configuration_keys": ["retention.ms"]}
            for kind, resource in kinds
        ],
    )
    assert [result.error_code.name for result in answer.results] == ["invalid_request"] * 3 + ["none"]
    assert all(result.error_message for result in answer.results[:3])
    assert answer.results[3].configs[0].value == "5000"


def test_the_same_resource_twice_changes_nothing(wire: Wire) -> None:
    topic = name()
    create(wire, new_topic(topic, retention_ms="5000"))
    resource = {"resource_type": TOPIC, "resource_name": topic, "configs": []}
    for api in ("alter_configs", "incremental_alter_configs"):
        answer = wire.send(api, resources=[resource, resource], validate_only=False)
        assert [found.error_code.name for found in answer.responses] == ["invalid_request"] * 2
    assert value(wire, TOPIC, topic, "retention.ms") == ("5000", TOPIC_SOURCE)


def test_the_broker_bounds_a_page_of_partitions(wire: Wire) -> None:
    topic = name()
    create(wire, new_topic(topic, 6))
    answer = wire.send(
        "describe_topic_partitions", topics=[{"name": topic}], response_partition_limit=2000, cursor=None
    )
    assert len(answer.topics[0].partitions) == 4, "max.request.partition.size.limit"
    assert plain(answer.next_cursor) == {"topic_name": topic, "partition_index": 4}


def test_partitions_are_listed_in_the_log_dir_that_holds_them(tmp_path: Path) -> None:
    dirs = [tmp_path / "one", tmp_path / "two"]
    config = {"log.dirs": ",".join(map(str, dirs))}
    with LocalBroker(config=config) as broker, Wire(broker.bootstrap) as wire:
        create(wire, new_topic("spread", 4))
        results = wire.send("describe_log_dirs", topics=None).results
    assert [result.log_dir for result in results] == [str(path) for path in dirs]
    for path, result in zip(dirs, results, strict=True):
        listed = {f"spread-{row.partition_index}" for topic in result.topics for row in topic.partitions}
        assert listed == {folder.name for folder in path.glob("spread-*")}
        assert len(listed) == 2
        assert 0 < result.usable_bytes <= result.total_bytes
