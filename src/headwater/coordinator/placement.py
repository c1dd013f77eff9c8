"""Which partition of an internal topic a group or a transactional id belongs to: Java's hash, as in Kafka."""

import functools


@functools.lru_cache(maxsize=16_384)
def partition_for(key: str, partitions: int) -> int:
    """The partition of `key` among `partitions`.

    >>> partition_for("billing", 50)
    36
    """
    return _absolute(java_hash(key)) % partitions


def java_hash(text: str) -> int:
    """`String.hashCode`: over UTF-16 units, in 32 bits with a sign."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(units), 2):
        value = (31 * value + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


def _absolute(value: int) -> int:
    """Kafka's: the smallest number, which has no opposite in 32 bits, becomes 0."""
    return 0 if value == -(2**31) else abs(value)
