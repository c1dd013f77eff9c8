"""Where a consumer starts: `--offset` read, and turned into an offset for each partition."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from headwater.cli.options import timestamp_ms
from headwater.types import TopicPartition

if TYPE_CHECKING:
    from headwater.client.consumer.consumer import Consumer


class StartKind(Enum):
    """What the number of a `StartAt` means."""

    OFFSET = auto()
    BEFORE_END = auto()
    EARLIEST = auto()
    TIME = auto()


@dataclass(frozen=True, slots=True)
class StartAt:
    """A place to start, the same words for every partition."""

    kind: StartKind
    value: int = 0


def parse_start(text: str) -> StartAt:
    """Reads a number, -N, earliest, latest (or kcat's beginning, end), an ISO time, or @epoch-ms.

    >>> parse_start("-5")
    StartAt(kind=<StartKind.BEFORE_END: 2>, value=5)
    """
    if text in ("earliest", "beginning"):
        return StartAt(StartKind.EARLIEST)
    if text in ("latest", "end"):
        return StartAt(StartKind.BEFORE_END)
    if text.isascii() and text.removeprefix("-").isdigit():
        number = int(text)
        return StartAt(StartKind.BEFORE_END, -number) if text[0] == "-" else StartAt(StartKind.OFFSET, number)
    when = timestamp_ms(text.removeprefix("s").removeprefix("@"))
    if when is None:
        raise ValueError(f"{text!r} is no offset: use a number, earliest, latest, -N, an ISO time, or @epoch-ms")
    return StartAt(StartKind.TIME, when)


async def start_offsets(
    consumer: "Consumer", partitions: Collection[TopicPartition], start: StartAt
) -> dict[TopicPartition, int]:
    """The offset in each partition where `start` is."""
    if start.kind is StartKind.OFFSET:
        return dict.fromkeys(partitions, start.value)
    if start.kind is StartKind.EARLIEST:
        return await consumer.beginning_offsets(partitions)
    latest = await consumer.end_offsets(partitions)
    if start.kind is StartKind.TIME:
        by_time = await consumer.offsets_for_times(dict.fromkeys(partitions, start.value))
        return {place: latest[place] if found is None else found.offset for place, found in by_time.items()}
    if start.value == 0:
        return latest
    earliest = await consumer.beginning_offsets(partitions)
    return {place: max(earliest[place], end - start.value) for place, end in latest.items()}
