"""What a folder's name in a log dir says: a partition, a deleted one, or none of our business."""

from uuid import uuid4

from headwater.types import TopicPartition

METADATA_TOPIC = "__cluster_metadata"
_DELETE_SUFFIX = "-delete"
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
