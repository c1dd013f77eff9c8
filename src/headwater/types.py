"""The words that everything shares. Imports nothing of headwater."""

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """One partition of one topic; as text, the name of its folder in a log dir.

    >>> str(TopicPartition("orders", 3))
    'orders-3'
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
