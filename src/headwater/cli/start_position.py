"""Where a consumer starts: `--offset` read, and turned into an offset for each partition."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from headwater.cli.options import timestamp_ms
from headwater.types import TopicPartition

if TYPE_CHECKING:
    from headwater.client import Client
    from headwater.client.thin.offsets import Isolation


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
    client: "Client", partitions: Collection[TopicPartition], start: StartAt, isolation: "Isolation"
) -> dict[int, int]:
    """The offset in each partition where `start` is."""
    from headwater.client.thin.offsets import Spot, list_offsets

    async def at(when: int) -> dict[TopicPartition, int]:
        found = await list_offsets(client, partitions, when, isolation=isolation)
        return {place: offset for place, (offset, _) in found.items()}

    if start.kind is StartKind.OFFSET:
        return {place.partition: start.value for place in partitions}
    if start.kind is StartKind.EARLIEST:
        return {place.partition: offset for place, offset in (await at(Spot.EARLIEST)).items()}
    latest = await at(Spot.LATEST)
    if start.kind is StartKind.TIME:
        by_time = await at(start.value)
        return {place.partition: latest[place] if by_time[place] < 0 else by_time[place] for place in partitions}
    if start.value == 0:
        return {place.partition: offset for place, offset in latest.items()}
    earliest = await at(Spot.EARLIEST)
    return {place.partition: max(earliest[place], latest[place] - start.value) for place in partitions}
