"""Keys go to the partitions that Java's producer would choose.

The figures were printed by Apache Kafka 4.1's own `Utils.murmur2` and `BuiltInPartitioner.partitionForKey`.
"""

import functools
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.client import partitioner
from headwater.client.partitioner import murmur2, partition_for_key

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
def test_a_key_hashes_as_in_java(key: bytes, hashed: int, partition_of_12: int) -> None:
    assert murmur2(key) == hashed
    assert partition_for_key(key, 12) == partition_of_12


@given(key=st.binary(max_size=40))
def test_the_plain_form_computes_what_the_imported_one_does(key: bytes) -> None:
    """Installed with a compiler, the imported one is compiled."""
    assert plain_partitioner().murmur2(key) == murmur2(key)


@functools.cache
def plain_partitioner() -> ModuleType:
    source = Path(str(partitioner.__file__)).parent / "partitioner.py"
    spec = importlib.util.spec_from_file_location("plain_partitioner", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
