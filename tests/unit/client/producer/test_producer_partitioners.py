"""Keys go to the partitions that Java's producer would choose.

The figures were printed by Apache Kafka 4.1's own `Utils.murmur2` and `BuiltInPartitioner.partitionForKey`.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unit.client.producer.forms import Core

JAVA = [
    (b"", 275646681, 9),
    (b"a", 2731586172, 4),
    (b"ab", 316155434, 2),
    (b"abc", 479470107, 3),
    (b"abcd", 2971317748, 8),
    (b"abcde", 461995741, 1),
    (b"foobar", 3504634814, 6),
    (b"21", 3321034988, 0),
    (b"a-little-bit-long-string", 3308985760, 8),
    (b"a-little-bit-longer-string", 2808662467, 11),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h8", 1171836447, 3),
    (b"user-1234567", 928168879, 7),
    ("한글".encode(), 2701213533, 1),
    (b"\xc3\xbf\x00\x7f", 3664436831, 3),
    (bytes(range(256)), 2346620022, 10),
]


@pytest.mark.parametrize(("key", "hashed", "partition_of_12"), JAVA)
def test_a_key_hashes_as_in_java(core: Core, key: bytes, hashed: int, partition_of_12: int) -> None:
    assert core.partitioners.murmur2(key) == hashed
    assert core.partitioners.partition_for_key(key, 12) == partition_of_12


@given(key=st.binary(max_size=40))
def test_both_forms_compute_the_same(both_cores: list[Core], key: bytes) -> None:
    assert len({core.partitioners.murmur2(key) for core in both_cores}) == 1
