"""The order in which Java's hash tables iterate: assignors break ties by it, so the same input needs the same order.

Pure. A table's order is that of its buckets, and within a bucket that in which keys came. Bins of nine and more keys,
which Java makes trees, are not reproduced: that many member ids in one bucket do not occur.
"""

from collections.abc import Callable, Hashable, Iterable
from functools import lru_cache
from typing import Final, Generic, TypeVar

from headwater.coordinator.placement import java_hash
from headwater.types import TopicPartition

K = TypeVar("K", bound=Hashable)

_SMALLEST_TABLE: Final = 16
_LOAD: Final = 0.75

text_hash = lru_cache(maxsize=4096)(java_hash)


def partition_hash(partition: TopicPartition) -> int:
    """`TopicPartition.hashCode`."""
    return 31 * (31 + partition.partition) + text_hash(partition.topic)


def hash_ordered(keys: Iterable[str]) -> list[str]:
    """The distinct `keys` as a `HashMap` or `HashSet` iterates that they were put into one by one.

    >>> hash_ordered(["b", "a", "orders"])
    ['a', 'b', 'orders']
    """
    distinct = list(dict.fromkeys(keys))
    size = _table_size(len(distinct))
    return sorted(distinct, key=lambda key: _bucket(text_hash(key), size))


class HashedSet(Generic[K]):
    """A `HashSet` of which only the first element in its order is asked for."""

    def __init__(self, hash_of: Callable[[K], int]) -> None:
        self._keys: dict[K, None] = {}
        self._hash_of = hash_of
        self._size = _SMALLEST_TABLE

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: K) -> None:
        """Puts `key` in; the table grows and never shrinks."""
        self._keys[key] = None
        self._size = max(self._size, _table_size(len(self._keys)))

    def remove(self, key: K) -> None:
        """Takes `key` out."""
        del self._keys[key]

    def first(self) -> K:
        """The element that an iterator would give first."""
        return min(self._keys, key=lambda key: _bucket(self._hash_of(key), self._size))


def _table_size(keys: int) -> int:
    size = _SMALLEST_TABLE
    while keys > size * _LOAD:
        size *= 2
    return size


def _bucket(hash_code: int, table_size: int) -> int:
    unsigned = hash_code & 0xFFFFFFFF
    return (unsigned ^ unsigned >> 16) & (table_size - 1)
