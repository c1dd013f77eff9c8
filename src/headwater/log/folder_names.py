"""What a folder's name in a log dir says: a partition, one on its way here, a deleted one, or none of our business."""

from uuid import uuid4

from headwater.types import TopicPartition

METADATA_TOPIC = "__cluster_metadata"
_DELETE_SUFFIX = "-delete"
_FUTURE_SUFFIX = "-future"
_NAME_LIMIT = 255


def partition_of_folder(name: str) -> TopicPartition | None:
    """The partition that a folder's name stands for, None when it is no partition's.

    >>> partition_of_folder("orders-3")
    TopicPartition(topic='orders', partition=3)
    """
    topic, _, number = name.rpartition("-")
    if not topic or not number.isascii() or not number.isdigit():
        return None
    return TopicPartition(topic, int(number))


def is_doomed_folder(name: str) -> bool:
    """Whether a folder is a partition's that was deleted and waits to be removed."""
    partition, dot, rest = name.rpartition(".")
    return bool(dot) and rest.endswith(_DELETE_SUFFIX) and partition_of_folder(partition) is not None


def doomed_folder(partition: TopicPartition) -> str:
    """A new name for the folder of a deleted partition; a long topic is cut."""
    end = f"-{partition.partition}.{uuid4().hex}{_DELETE_SUFFIX}"
    return partition.topic[: _NAME_LIMIT - len(end)] + end


def future_folder(partition: TopicPartition) -> str | None:
    """A new name for a folder in which a partition's copy grows until it takes over; None when it would be too long."""
    name = f"{partition}.{uuid4().hex}{_FUTURE_SUFFIX}"
    return name if len(name) <= _NAME_LIMIT else None


def partition_of_future(name: str) -> TopicPartition | None:
    """The partition whose copy is to grow in a folder of this name, None when it is no such folder.

    >>> partition_of_future("orders-3.7f00000000000000000000000000000a-future")
    TopicPartition(topic='orders', partition=3)
    """
    partition, dot, rest = name.rpartition(".")
    return partition_of_folder(partition) if dot and rest.endswith(_FUTURE_SUFFIX) else None
