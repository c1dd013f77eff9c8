"""The folder of a partition without records: both brokers note there at once whose epoch it is."""

from .actions import create_topic, eventually
from .conftest import Broker
from .wire import Wire


def test_an_empty_partition_has_its_leader_epoch(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, partitions=2)
    for partition in (0, 1):
        checkpoint = broker.data_dir / f"{topic.name}-{partition}" / "leader-epoch-checkpoint"
        eventually(checkpoint.exists, "the checkpoint")
        assert eventually(checkpoint.read_text, "its content") == "0\n1\n0 0\n"
