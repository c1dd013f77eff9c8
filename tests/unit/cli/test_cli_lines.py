"""Input becomes the lines, the records and the batches that it should, however it is cut into chunks."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.cli.line_input import LineCutter
from headwater.cli.line_records import BadLineError, Batcher, LineFormat, parse_headers, size_of, split
from headwater.client.partitioner import partition_for_key
from headwater.client.thin.producer import ProducedRecord
from headwater.protocol.records import encode_batch

NOW = 1_700_000_000_000


@given(
    data=st.text("ab;\n").map(str.encode),
    cuts=st.lists(st.integers(0, 200)),
    delimiter=st.sampled_from([b"\n", b";;"]),
)
def test_lines_do_not_depend_on_where_chunks_end(data: bytes, cuts: list[int], delimiter: bytes) -> None:
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    cutter = LineCutter(delimiter)
    lines = [line for a, b in pairwise(edges) for line in cutter.cut(data[a:b])]
    assert [*lines, cutter.rest()] == data.split(delimiter)


def values(line_format: LineFormat, *lines: bytes) -> list[tuple[bytes | None, bytes | None]]:
    return [record[:2] for record in line_format.records(lines, NOW)]


def test_a_plain_line_is_a_value() -> None:
    assert LineFormat().records([b"a", b""], NOW) == [(None, b"a", (), NOW), (None, b"", (), NOW)]


def test_a_key_ends_at_the_first_separator_and_may_be_missing_or_empty() -> None:
    keyed = LineFormat(key_separator=b":")
    assert values(keyed, b"k:v:w", b"none", b":v") == [(b"k", b"v:w"), (None, b"none"), (b"", b"v")]


def test_a_mark_stands_for_null() -> None:
    marked = LineFormat(key_separator=b"=", null_value=b"NULL")
    assert values(marked, b"k=NULL", b"NULL", b"k=NULLX") == [(b"k", None), (None, None), (b"k", b"NULLX")]


def test_headers_of_the_line_follow_those_of_all_lines() -> None:
    both = LineFormat(headers=(("all", b"1"),), headers_separator=b"\t", key_separator=b"\t")
    assert both.records([b"a:x,b:\tkey\tvalue"], NOW) == [
        (b"key", b"value", (("all", b"1"), ("a", b"x"), ("b", b"")), NOW)
    ]


def test_a_line_without_its_headers_is_shown_in_the_error() -> None:
    with pytest.raises(BadLineError, match="oops"):
        LineFormat(headers_separator=b"\t").records([b"oops"], NOW)
    with pytest.raises(BadLineError, match="nocolon"):
        parse_headers(b"a:1,nocolon")


def record(value: bytes, key: bytes | None = None) -> ProducedRecord:
    return key, value, (), NOW


def test_keys_go_where_java_sends_them_and_keep_their_order() -> None:
    records = [record(str(i).encode(), f"key-{i % 7}".encode()) for i in range(100)]
    batcher = Batcher(5, 1_000_000)
    batcher.add(records, keyed=True)
    for partition, batch in batcher.all_batches():
        assert list(batch) == [r for r in records if partition_for_key(r[0] or b"", 5) == partition]
        records = [r for r in records if r not in batch]
    assert records == []


def test_records_without_key_fill_one_partition_after_the_other() -> None:
    batcher = Batcher(3, 1000)
    partitions = []
    for _ in range(6):
        batcher.add([record(b"x" * 1000)], keyed=False)
        partitions += [partition for partition, _ in batcher.full_batches()]
    assert sorted(partitions[:3]) == [0, 1, 2]
    assert partitions[3:] == partitions[:3]


def test_keyed_and_keyless_records_of_one_partition_stay_in_order() -> None:
    batcher = Batcher(1, 1_000_000)
    mixed = [record(b"1", b"k"), record(b"2"), record(b"3", b"k"), record(b"4")]
    batcher.add(mixed, keyed=True)
    assert [(partition, list(batch)) for partition, batch in batcher.all_batches()] == [(0, mixed)]


def test_a_given_partition_takes_everything() -> None:
    batcher = Batcher(3, 1_000_000, partition=2)
    batcher.add([record(b"1", b"k"), record(b"2")], keyed=True)
    assert [partition for partition, _ in batcher.all_batches()] == [2]


@given(sizes=st.lists(st.integers(0, 300), min_size=1), limit=st.integers(1, 1000))
def test_batches_stay_below_the_limit_unless_one_record_is_larger(sizes: list[int], limit: int) -> None:
    records = [record(b"x" * size) for size in sizes]
    parts = list(split(records, limit))
    assert [r for part in parts for r in part] == records
    assert all(len(part) == 1 or size_of(part) <= limit for part in parts)


@given(
    st.lists(
        st.tuples(
            st.none() | st.binary(max_size=200),
            st.none() | st.binary(max_size=200),
            st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=20)), max_size=3).map(tuple),
            st.just(NOW),
        ),
        min_size=1,
    )
)
def test_the_estimate_is_never_below_what_a_batch_takes(records: list[ProducedRecord]) -> None:
    batch_header_bytes = 61
    assert len(encode_batch(records)) - batch_header_bytes <= size_of(records)
