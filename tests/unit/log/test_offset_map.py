"""The map of keys: the same answers as a dict, compiled and plain, and nothing but an error for an enemy's bytes."""

import functools
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.protocol.records import (
    HEADER_SIZE,
    BatchHeader,
    CorruptBatchError,
    decode_records,
    encode_batch,
    parse_header,
    scan_headers,
)

SECRET = bytes(range(16))
PARTS = ("key_hash", "raw_records", "offset_map")
# The first of the vectors that the authors of SipHash publish, for inputs 00, 00 01, 00 01 02 and so on.
SIPHASH_128 = (
    "a3817f04ba25a8e66df67214c7550293",
    "da87c1d86b99af44347659119b22fc45",
    "8177228da4a45dc7fca38bdef60affe4",
    "9c70b60c5267a94e5f33b6b02985ed51",
)


@functools.cache
def load_plain() -> dict[str, ModuleType]:
    """The modules from their sources, as if there were no Cython."""
    names = [f"headwater.log.cleaning.{part}" for part in PARTS]
    before = {name: sys.modules.get(name) for name in ("cython", *names)}
    try:
        sys.modules["cython"] = None  # type: ignore[assignment]
        for name in names:
            source = Path(str(importlib.import_module("headwater.log.cleaning").__file__)).with_name(
                f"{name.split('.')[-1]}.py"
            )
            spec = importlib.util.spec_from_file_location(name, source)
            assert spec is not None
            assert spec.loader is not None
            module = sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        return {part: sys.modules[name] for part, name in zip(PARTS, names, strict=True)}
    finally:
        for name, known in before.items():
            if known is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = known


def load_compiled() -> dict[str, ModuleType]:
    found = {part: importlib.import_module(f"headwater.log.cleaning.{part}") for part in PARTS}
    if any(str(module.__file__).endswith(".py") for module in found.values()):
        pytest.skip("the extension modules are not built: python setup.py build_ext --inplace")
    return found


@pytest.fixture(scope="module", params=["compiled", "plain"])
def form(request: pytest.FixtureRequest) -> dict[str, ModuleType]:
    return load_compiled() if request.param == "compiled" else load_plain()


def new_map(form: dict[str, ModuleType], slots: int = 1000, limit: int = 1000) -> Any:
    return form["offset_map"].OffsetMap(slots=slots, limit=limit, secret=SECRET)


def batches(*rows: list[tuple[bytes | None, bytes | None]], compression: int = 0) -> tuple[bytes, list[BatchHeader]]:
    """Batches one after the other, and their headers."""
    content, offset = bytearray(), 0
    for row in rows:
        records = [(key, value, (), 1000 + offset + index) for index, (key, value) in enumerate(row)]
        content += encode_batch(records, base_offset=offset, compression=compression)
        offset += len(row)
    return bytes(content), scan_headers(content, 0, len(content))


def kept_records(content: bytes, header: BatchHeader, found: Any, slot: int) -> list[tuple[int, bytes | None]]:
    """Offset and key of what stays of a batch, read from the bytes that were kept."""
    count, _, _, start, end = found.outcomes[5 * slot : 5 * slot + 5]
    if count == -1:
        return []
    if count == header.records_count:
        return [(record.offset, record.key) for record in decode_records(content, header)]
    rebuilt = bytearray(content[header.position : header.position + HEADER_SIZE])
    rebuilt[22] &= ~7
    rebuilt[57:61] = count.to_bytes(4, "big")
    rebuilt += found.kept[start:end]
    rebuilt[8:12] = (len(rebuilt) - 12).to_bytes(4, "big")
    return [(record.offset, record.key) for record in decode_records(rebuilt, parse_header(rebuilt, 0, len(rebuilt)))]


def test_the_hash_is_siphash(form: dict[str, ModuleType]) -> None:
    for size, expected in enumerate(SIPHASH_128):
        assert form["key_hash"].hash_of_key(bytes(range(size)), SECRET).hex() == expected


@given(key=st.binary(max_size=40), secret=st.binary(min_size=16, max_size=16))
def test_both_forms_hash_alike(key: bytes, secret: bytes) -> None:
    compiled, plain = load_compiled(), load_plain()
    assert compiled["key_hash"].hash_of_key(key, secret) == plain["key_hash"].hash_of_key(key, secret)


def test_it_knows_the_newest_offset_of_each_key_as_a_dict_does(form: dict[str, ModuleType]) -> None:
    offset_map, expected = new_map(form, slots=310, limit=310), {}
    for offset in range(1000):
        key = b"key %d" % (offset * 7919 % 300)
        offset_map.put(key, offset)
        expected[key] = offset
        assert offset_map.keys == len(expected)
    assert {key: offset_map.get(key) for key in expected} == expected
    assert offset_map.get(b"absent") == -1
    assert offset_map.latest_offset == 999


@pytest.mark.parametrize("slots", [25_000, 1 << 20])
def test_it_forgets_nothing_while_it_grows(form: dict[str, ModuleType], slots: int) -> None:
    offsets, count = new_map(form, slots, limit=slots), 12_000
    for offset in range(2 * count):
        offsets.put(b"%d" % (offset % count), offset)
    assert offsets.keys == count
    assert all(offsets.get(b"%d" % key) == count + key for key in range(count))
    assert offsets.get(b"another") == -1


def test_it_takes_no_more_keys_than_it_may(form: dict[str, ModuleType]) -> None:
    offset_map = new_map(form, slots=10, limit=20)
    for offset in range(10):
        offset_map.put(b"%d" % offset, offset)
    with pytest.raises(ValueError, match="full"):
        offset_map.put(b"one more", 10)
    assert offset_map.get(b"absent") == -1, "a search in a full map ends"


def test_a_full_map_says_how_far_it_came(form: dict[str, ModuleType]) -> None:
    content, headers = batches([(b"a", b""), (None, b""), (b"b", b"")], [(b"c", b""), (b"a", b""), (b"d", b"")])
    offset_map = new_map(form, limit=3)
    assert offset_map.add(memoryview(content), headers, bytearray(2), 0)
    assert (offset_map.keys, offset_map.latest_offset) == (3, 3)
    offset_map = new_map(form, limit=2)
    assert offset_map.add(memoryview(content), headers, bytearray(2), 0)
    assert (offset_map.keys, offset_map.latest_offset) == (2, 2), "the first batch went in whole"


def test_records_before_the_start_and_flagged_batches_are_left_out(form: dict[str, ModuleType]) -> None:
    content, headers = batches([(b"a", b""), (b"b", b"")], [(b"c", b"")], [(b"d", b"")])
    offset_map = new_map(form)
    assert not offset_map.add(memoryview(content), headers, bytearray([0, 1, 0]), 1)
    assert [offset_map.get(key) for key in (b"a", b"b", b"c", b"d")] == [-1, 1, -1, 3]
    assert offset_map.latest_offset == 3


def test_what_is_beyond_the_map_stays(form: dict[str, ModuleType]) -> None:
    content, headers = batches([(b"a", b""), (b"a", b""), (None, b""), (b"a", None)])
    offset_map = new_map(form)
    offset_map.put(b"a", 1)
    found = offset_map.filter(memoryview(content), headers, bytearray(1), 10**15)
    assert kept_records(content, headers[0], found, 0) == [(1, b"a"), (2, None), (3, b"a")]
    assert list(found.outcomes[:3]) == [3, 1, 1003]


ROWS = st.lists(
    st.lists(
        st.tuples(
            st.none() | st.sampled_from([b"", b"a", b"bb", b"a longer key than others"]),
            st.none() | st.binary(max_size=300),
        ),
        min_size=1,
        max_size=5,
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(
    rows=ROWS,
    compression=st.integers(0, 4),
)
def test_a_filter_keeps_what_a_dict_would_keep(
    form: dict[str, ModuleType], rows: list[list[tuple[bytes | None, bytes | None]]], compression: int
) -> None:
    content, headers = batches(*rows, compression=compression)
    offset_map = new_map(form)
    assert not offset_map.add(memoryview(content), headers, bytearray(len(headers)), 0)
    records = [(offset, key) for offset, (key, _) in enumerate(record for row in rows for record in row)]
    newest = {key: offset for offset, key in records}
    found = offset_map.filter(memoryview(content), headers, bytearray(len(headers)), 0)
    left = [kept for slot, header in enumerate(headers) for kept in kept_records(content, header, found, slot)]
    assert left == [(offset, key) for offset, key in records if key is not None and newest[key] == offset]


@settings(max_examples=100, deadline=None)
@given(rows=ROWS, compression=st.sampled_from([0, 3]), start=st.integers(0, 12), limit=st.integers(1, 4))
def test_a_settled_map_says_what_it_said_before(
    form: dict[str, ModuleType],
    rows: list[list[tuple[bytes | None, bytes | None]]],
    compression: int,
    start: int,
    limit: int,
) -> None:
    content, headers = batches(*rows, compression=compression)
    offset_map = new_map(form, limit=limit)
    offset_map.add(memoryview(content), headers, bytearray(len(headers)), start)
    said = []
    for _ in range(2):
        verdicts = bytearray(len(headers))
        found = offset_map.filter(memoryview(content), headers, verdicts, 0)
        said.append((verdicts, [kept_records(content, header, found, slot) for slot, header in enumerate(headers)]))
        offset_map.settle(start)
    assert said[0] == said[1]


def test_a_batch_that_is_superseded_is_not_unpacked(form: dict[str, ModuleType]) -> None:
    content, headers = batches([(b"a", b"old" * 50)], [(b"a", b"new" * 50)], compression=3)
    offset_map = new_map(form)
    offset_map.add(memoryview(content), headers, bytearray(2), 0)
    offset_map.settle(0)
    harmed = bytearray(content)
    harmed[HEADER_SIZE : HEADER_SIZE + 4] = b"lost"
    verdicts = bytearray(2)
    found = offset_map.filter(memoryview(harmed), headers, verdicts, 0)
    assert kept_records(content, headers[0], found, 0) == []
    assert kept_records(content, headers[1], found, 1) == [(1, b"a")]


@settings(max_examples=300, deadline=None)
@given(
    section=st.binary(max_size=60) | st.builds(lambda tail: bytes([20, 0, 0, 0]) + tail, st.binary(max_size=30)),
    count=st.integers(0, 8),
)
def test_bytes_of_an_enemy_are_refused_or_read_the_same_in_both_forms(section: bytes, count: int) -> None:
    base, _ = batches([(b"a", b"")] * 8)
    content = bytearray(base[:HEADER_SIZE]) + section
    content[8:12] = (len(content) - 12).to_bytes(4, "big")
    content[57:61] = count.to_bytes(4, "big")
    headers = scan_headers(content, 0, len(content))
    answers: list[Any] = []
    for form in (load_compiled(), load_plain()):
        offset_map = new_map(form)
        try:
            offset_map.add(memoryview(content), headers, bytearray(1), 0)
            found = offset_map.filter(memoryview(content), headers, bytearray(1), 0)
            answers.append((offset_map.keys, list(found.outcomes), bytes(found.kept)))
        except CorruptBatchError:
            answers.append(None)
    assert answers[0] == answers[1]


def test_timestamps_are_shifted_and_nothing_else(form: dict[str, ModuleType]) -> None:
    records = [(b"k%d" % index, bytes(index * 30), [("h", b"x")], 5000 + index * 100) for index in range(5)]
    batch = encode_batch(records)
    (header,) = scan_headers(batch, 0, len(batch))
    for shift_ms in (-86_400_000, -1, 0, 1, 2**40):
        shifted = form["raw_records"].shift_timestamps(memoryview(batch)[HEADER_SIZE:], 5, shift_ms)
        moved = batch[:HEADER_SIZE] + shifted
        moved[8:12] = (len(moved) - 12).to_bytes(4, "big")
        for before, after in zip(
            decode_records(batch, header), decode_records(moved, parse_header(moved, 0, len(moved))), strict=True
        ):
            assert after.timestamp_ms == before.timestamp_ms + shift_ms
            assert (after.offset, after.key, after.value, after.headers) == (
                before.offset,
                before.key,
                before.value,
                before.headers,
            )
