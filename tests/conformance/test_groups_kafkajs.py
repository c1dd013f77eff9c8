"""kafkajs: groups and transactions of a client that speaks the older versions of every API."""

import pytest

from peers.kafkajs import KafkaJsMember, run_transactions
from peers.presence import require_kafkajs
from peers.telling import follow_until

from .actions import create_topic, eventually, produce_ok, unique_name
from .batches import batch
from .conftest import Broker
from .isolation import both_views, settle
from .raw_groups import committed, new_group
from .wire import Wire

pytestmark = pytest.mark.peer


@pytest.fixture(autouse=True)
def _kafkajs() -> None:
    require_kafkajs()


def test_members_share_a_topic_and_go_on_after_each_other(broker: Broker, wire: Wire) -> None:
    topic, group = create_topic(wire, partitions=4), new_group(wire)
    for partition in range(4):
        produce_ok(wire, topic, batch(b"%d" % partition), partition=partition)
    with KafkaJsMember(broker.bootstrap, group, topic.name, "ann") as ann:
        follow_until(lambda: len(ann.values) == 4, "all records", ann)
        assert ann.partitions == [0, 1, 2, 3]
        with KafkaJsMember(broker.bootstrap, group, topic.name, "bob") as bob:
            follow_until(lambda: len(ann.partitions) == len(bob.partitions) == 2, "two partitions each", ann, bob)
            assert sorted(ann.partitions + bob.partitions) == [0, 1, 2, 3]
            ann.stop()
            follow_until(lambda: bob.partitions == [0, 1, 2, 3], "all partitions", bob)
            produce_ok(wire, topic, batch(b"later"), partition=3)
            follow_until(lambda: bob.values, "the new record", bob)
            assert bob.values == ["later"], "the others had been committed"
        assert not [event for event in (*ann.events, *bob.events) if event["event"] in ("crashed", "failed")]


def test_transactions_with_offsets(broker: Broker, wire: Wire) -> None:
    source, target, group = create_topic(wire), create_topic(wire), new_group(wire)
    produce_ok(wire, source, batch(b"one", b"two", b"three"))

    def step(value: str, offset: int, *, commit: bool) -> dict[str, object]:
        offsets = {"group": group, "topic": source.name, "partition": 0, "offset": offset}
        return {"topic": target.name, "values": [value], "offsets": offsets, "commit": commit}

    steps = [step("ONE", 1, commit=True), step("WRONG", 3, commit=False), step("TWO", 2, commit=True)]
    outcome = run_transactions(broker.bootstrap, unique_name("transactional-id"), steps)
    assert outcome == ["committed", "aborted", "committed"]
    settle(wire, target)
    assert both_views(broker, target) == ([b"ONE", b"TWO"], [b"ONE", b"WRONG", b"TWO"])
    eventually(lambda: committed(wire, group, source)[0].committed_offset == 2, "the offset")
