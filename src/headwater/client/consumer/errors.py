"""What only the user of a consumer can cure. `str(error)` says what happened, to what, and what to do next."""

from collections.abc import Collection

from headwater.client.errors import ClientError
from headwater.types import TopicPartition


class SubscriptionError(ClientError):
    """Something was asked of a consumer that its subscription or assignment does not allow."""


class NoOffsetError(ClientError):
    """Nothing is committed for partitions, and `auto.offset.reset` is none."""

    def __init__(self, partitions: Collection[TopicPartition]) -> None:
        names = ", ".join(map(str, sorted(partitions)))
        super().__init__(f"no offset is known for {names} and auto.offset.reset is none: seek, or set a reset policy")
        self.partitions = frozenset(partitions)


class OffsetOutOfRangeError(ClientError):
    """The position lies outside of the log, and `auto.offset.reset` is none."""

    def __init__(self, partition: TopicPartition, offset: int) -> None:
        super().__init__(
            f"offset {offset} is outside of the log of partition {partition} and auto.offset.reset is none: "
            "seek to where you want to go on"
        )
        self.partition = partition
        self.offset = offset


class LogTruncatedError(ClientError):
    """Records that were read are no longer in the log: a leader without them took over; `auto.offset.reset` is none.

    `diverged_offset` is the first offset that now holds, or will hold, other records; None when nobody knows.
    """

    def __init__(self, partition: TopicPartition, offset: int, diverged_offset: int | None) -> None:
        where = "" if diverged_offset is None else f" to offset {diverged_offset}"
        super().__init__(
            f"the log of partition {partition} was cut{where} while the position was {offset}, and "
            "auto.offset.reset is none: seek to where you want to go on"
        )
        self.partition = partition
        self.offset = offset
        self.diverged_offset = diverged_offset
