"""Ranges cut into pieces that Spark's tasks read side by side. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from headwater.lake.datasource.topic_offsets import TopicRange

_SMALLEST_BYTES: Final = 32 << 20
_LARGEST_BYTES: Final = 128 << 20
_TASKS: Final = 16
"""A task costs Spark as much as to read several MiB: where there is much to read, more tasks than this are larger."""


def split_ranges(ranges: Sequence[TopicRange], split_bytes: int | None = None) -> list[TopicRange]:
    """The ranges in pieces of about `split_bytes` of log each, so that one large partition uses all cores.

    Brokers do not tell where in a log an offset lies: offsets are cut in proportion to the bytes. Ranges without
    offsets are left out.
    """
    if split_bytes is None:
        split_bytes = min(max(sum(each.size_bytes for each in ranges) // _TASKS, _SMALLEST_BYTES), _LARGEST_BYTES)
    return [piece for whole in ranges if whole.offsets > 0 for piece in _pieces(whole, split_bytes)]


def _pieces(whole: TopicRange, split_bytes: int) -> Iterable[TopicRange]:
    count = max(1, min(whole.offsets, -(-whole.size_bytes // split_bytes)))
    cuts = [whole.start + whole.offsets * piece // count for piece in range(count + 1)]
    for start, end in pairwise(cuts):
        size = whole.size_bytes * (end - start) // whole.offsets
        begins = whole.begins and start == whole.start
        yield replace(whole, start=start, end=end, size_bytes=size, begins=begins)
