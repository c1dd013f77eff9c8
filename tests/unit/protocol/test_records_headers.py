"""Headers of record batches: read, checked and patched in place, and never trusted."""

import mmap
import shutil
import struct
import subprocess
import sys
from types import ModuleType

import pytest
from crc32c import crc32c

from headwater.protocol import batches, column_building, record_decoding, record_encoding, record_reading

T0 = 1_700_000_000_000
LENGTH_AT, MAGIC_AT, CRC_AT, ATTRIBUTES_AT, LAST_OFFSET_DELTA_AT, COUNT_AT = 8, 16, 17, 21, 23, 57


def three_records(records: ModuleType, **options: object) -> bytearray:
    batch: bytearray = records.encode_batch([(b"k%d" % i, b"value", (), T0 + i) for i in range(3)], **options)
    return batch


def resealed(batch: bytearray) -> bytearray:
    """With the right checksum for its changed bytes."""
    struct.pack_into(">I", batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
    return batch


@pytest.mark.skipif(shutil.which("cc") is None and shutil.which("gcc") is None, reason="no C compiler here")
def test_the_compiled_form_is_compiled_where_there_is_a_compiler() -> None:
    for module in (batches, record_reading, record_decoding, column_building, record_encoding):
        assert not str(module.__file__).endswith(".py"), f"{module.__name__}: python setup.py build_ext --inplace"


def test_the_plain_form_is_plain(plain_records: ModuleType) -> None:
    assert plain_records.BatchHeader is not batches.BatchHeader
    assert "__dict__" in dir(plain_records.parse_header(three_records(plain_records), 0, 103))


def test_no_cython_is_needed_to_import() -> None:
    code = (
        "import sys; sys.modules['cython'] = sys.modules['Cython'] = None;"
        "from headwater.protocol.records import encode_batch, scan_headers;"
        "batch = encode_batch([(None, b'v', (), 0)]); print(len(scan_headers(batch, 0, len(batch))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


def test_every_field_is_read(records: ModuleType) -> None:
    fields = (2**40, 61 - 12 + 7, 9, 2, 0x89ABCDEF, 0x18, 6, T0, T0 + 5, 2**50, 0x1234, 77, 7)
    batch = struct.pack(">qiibIhiqqqhii", *fields) + bytes(7)
    header = records.parse_header(b"before" + batch + b"after", 6, 6 + len(batch))
    assert header.position == 6
    assert header.size == 68
    assert (header.base_offset, header.last_offset, header.next_offset) == (2**40, 2**40 + 6, 2**40 + 7)
    assert (header.leader_epoch, header.magic, header.crc, header.attributes) == (9, 2, 0x89ABCDEF, 0x18)
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (T0, T0 + 5)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (2**50, 0x1234, 77)
    assert (header.last_offset_delta, header.records_count, header.last_sequence) == (6, 7, 83)
    assert "offsets=1099511627776..1099511627782" in repr(header)


def test_negative_fields_are_read(records: ModuleType) -> None:
    batch = struct.pack(">qiibIhiqqqhii", -5, 49, -1, 2, 0, -1, -2, -3, -4, -(2**63), -32768, -1, -(2**31))
    header = records.parse_header(batch, 0, len(batch))
    assert (header.base_offset, header.leader_epoch, header.attributes, header.last_offset_delta) == (
        -5,
        -1,
        -1,
        -2,
    )
    assert (header.base_timestamp_ms, header.max_timestamp_ms, header.producer_id) == (-3, -4, -(2**63))
    assert (header.producer_epoch, header.base_sequence, header.records_count) == (-32768, -1, -(2**31))
    assert header.last_sequence == -1


@pytest.mark.parametrize(
    ("attributes", "name"),
    [
        (0x08, "is_log_append_time"),
        (0x10, "is_transactional"),
        (0x20, "is_control"),
        (0x40, "delete_horizon_ms"),
    ],
)
def test_each_flag_has_its_bit(records: ModuleType, attributes: int, name: str) -> None:
    batch = three_records(records)
    assert not getattr(records.parse_header(batch, 0, len(batch)), name)
    struct.pack_into(">h", batch, ATTRIBUTES_AT, attributes)
    header = records.parse_header(batch, 0, len(batch))
    assert getattr(header, name) == (T0 if name == "delete_horizon_ms" else True)
    assert header.compression == 0


def test_sequences_start_again_after_the_largest(records: ModuleType) -> None:
    batch = three_records(records, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    assert records.parse_header(batch, 0, len(batch)).last_sequence == 0
    batch = three_records(records, producer_id=1, producer_epoch=0, base_sequence=2**31 - 3)
    assert records.parse_header(batch, 0, len(batch)).last_sequence == 2**31 - 1


def test_a_row_of_batches_is_checked_whole(records: ModuleType) -> None:
    first, second = three_records(records), three_records(records, base_offset=3, compression=4)
    row = b"ab" + first + second + b"cd"
    headers = records.check_batches(row, 2, len(row) - 2)
    assert [(h.position, h.size, h.base_offset) for h in headers] == [
        (2, len(first), 0),
        (2 + len(first), len(second), 3),
    ]
    assert records.check_batches(row, 5, 5) == []


def test_every_kind_of_buffer_is_read(records: ModuleType) -> None:
    batch = three_records(records)
    with mmap.mmap(-1, len(batch)) as mapped:
        mapped[:] = bytes(batch)
        for buffer in (bytes(batch), batch, memoryview(batch), memoryview(bytes(batch)), mapped):
            (header,) = records.check_batches(buffer, 0, len(batch))
            assert records.crc_is_valid(buffer, header)
            assert len(records.decode_records(buffer, header)) == 3
            assert len(records.decode_columns(buffer, 0, len(batch))) == 3


@pytest.mark.parametrize("buffer", [memoryview(bytes(400))[::2], memoryview(bytes(400)).cast("i")])
def test_a_buffer_with_gaps_or_wide_items_is_the_callers_mistake(records: ModuleType, buffer: memoryview) -> None:
    with pytest.raises(ValueError, match="plain bytes") as caught:
        records.check_batches(buffer, 0, 100)
    assert not isinstance(caught.value, records.CorruptBatchError)


@pytest.mark.parametrize(("start", "end"), [(-1, 10), (0, 104), (50, 40), (-10, -5)])
def test_a_range_outside_of_the_buffer_is_the_callers_mistake(records: ModuleType, start: int, end: int) -> None:
    batch = three_records(records)
    assert len(batch) == 103
    for read in (records.check_batches, records.scan_headers, records.parse_header, records.decode_columns):
        with pytest.raises(ValueError, match="is not a range of a buffer of 103 bytes"):
            read(batch, start, end)


def test_a_header_of_another_buffer_is_the_callers_mistake(records: ModuleType) -> None:
    batch = three_records(records)
    header = records.parse_header(batch, 0, len(batch))
    for use in (records.crc_is_valid, records.decode_records):
        with pytest.raises(ValueError, match="buffer of 70 bytes"):
            use(batch[:70], header)
    with pytest.raises(ValueError, match="buffer of 60 bytes"):
        records.patch_offsets(batch[:60], 0, 1, 1)


@pytest.mark.parametrize(
    ("at", "code", "value", "reason"),
    [
        (MAGIC_AT, ">b", 1, "magic 1"),
        (MAGIC_AT, ">b", -1, "magic 255"),
        (LENGTH_AT, ">i", 48, "60 bytes is less"),
        (LENGTH_AT, ">i", -1, "11 bytes is less"),
        (LENGTH_AT, ">i", -(2**31), "is less"),
        (LENGTH_AT, ">i", 2**31 - 1, "2147483659 bytes, but 103 are left"),
        (LENGTH_AT, ">i", 92, "104 bytes, but 103 are left"),
        (LENGTH_AT, ">i", 90, "checksum"),
        (CRC_AT, ">I", 0, "checksum"),
        (ATTRIBUTES_AT, ">h", 5, "codec 5 is unknown"),
        (ATTRIBUTES_AT, ">h", 7, "codec 7 is unknown"),
        (LAST_OFFSET_DELTA_AT, ">i", -1, "no offset"),
        (LAST_OFFSET_DELTA_AT, ">i", 1, "3 records in 2 offsets"),
        (LAST_OFFSET_DELTA_AT, ">i", 3, "only 3 records for 4 offsets"),
        (COUNT_AT, ">i", -1, "-1 records"),
        (COUNT_AT, ">i", 0, "only 0 records"),
        (0, ">q", -1, "no offset -1"),
        (0, ">q", 2**63 - 2, "no offset"),
    ],
)
def test_a_header_that_makes_no_sense_is_corrupt(
    records: ModuleType, at: int, code: str, value: int, reason: str
) -> None:
    batch = three_records(records)
    struct.pack_into(code, batch, at, value)
    if at > CRC_AT:
        resealed(batch)
    with pytest.raises(records.CorruptBatchError, match=reason) as caught:
        records.check_batches(b"x" + batch, 1, 1 + len(batch))
    assert caught.value.position == 1
    assert str(caught.value) == f"corrupt record batch at byte 1: {caught.value.reason}"


def test_what_compaction_leaves_is_only_fine_when_not_strict(records: ModuleType) -> None:
    holes = three_records(records)
    struct.pack_into(">i", holes, LAST_OFFSET_DELTA_AT, 9)
    empty = records.encode_batch([], producer_id=5, producer_epoch=1, base_sequence=3)
    struct.pack_into(">i", empty, LAST_OFFSET_DELTA_AT, 4)
    for batch in (resealed(holes), resealed(empty)):
        with pytest.raises(records.CorruptBatchError, match="only"):
            records.check_batches(batch, 0, len(batch))
        (header,) = records.check_batches(batch, 0, len(batch), strict=False)
        assert len(records.decode_records(batch, header)) == header.records_count
    assert header.last_sequence == 7


def test_every_flipped_bit_under_the_checksum_is_seen(records: ModuleType) -> None:
    batch = three_records(records)
    (header,) = records.check_batches(batch, 0, len(batch))
    for bit in range(ATTRIBUTES_AT * 8, len(batch) * 8):
        batch[bit // 8] ^= 1 << bit % 8
        assert not records.crc_is_valid(batch, header)
        with pytest.raises(records.CorruptBatchError):
            records.check_batches(batch, 0, len(batch))
        batch[bit // 8] ^= 1 << bit % 8


def test_every_truncation_is_seen(records: ModuleType) -> None:
    batch = three_records(records)
    for end in range(1, len(batch)):
        with pytest.raises(records.CorruptBatchError):
            records.check_batches(batch, 0, end)
        with pytest.raises(records.CorruptBatchError):
            records.parse_header(batch, 0, end)


def test_a_scan_ends_at_a_partial_tail(records: ModuleType) -> None:
    first, second = three_records(records), three_records(records, base_offset=3)
    for cut in range(len(second)):
        headers = records.scan_headers(first + second[:cut], 0, len(first) + cut)
        assert [h.base_offset for h in headers] == [0]
    assert len(records.scan_headers(first + second, 0, len(first) + len(second))) == 2
    with pytest.raises(records.CorruptBatchError, match="magic 0"):
        records.scan_headers(first + bytes(100), 0, len(first) + 100)


def test_offsets_are_patched_without_touching_the_checksum(records: ModuleType) -> None:
    buffer = memoryview(bytearray(b"pre") + three_records(records))
    records.patch_offsets(buffer, 3, 2**40 + 5, 17)
    (header,) = records.check_batches(buffer, 3, len(buffer))
    assert (header.base_offset, header.leader_epoch) == (2**40 + 5, 17)
    assert bytes(buffer[:3]) == b"pre"
    assert [r.offset for r in records.decode_records(buffer, header)] == [2**40 + 5 + i for i in range(3)]


def test_the_append_time_stands_for_every_record(records: ModuleType) -> None:
    buffer = memoryview(bytearray(b"pre") + three_records(records, compression=3))
    (header,) = records.check_batches(buffer, 3, len(buffer))
    records.patch_append_time(buffer, header, T0 + 12345)
    (again,) = records.check_batches(buffer, 3, len(buffer))
    for seen in (header, again):
        assert seen.is_log_append_time
        assert (seen.max_timestamp_ms, seen.base_timestamp_ms, seen.compression) == (T0 + 12345, T0, 3)
    assert header.crc == again.crc
    assert [r.timestamp_ms for r in records.decode_records(buffer, again)] == [T0 + 12345] * 3


def test_only_a_writable_buffer_is_patched(records: ModuleType) -> None:
    batch = bytes(three_records(records))
    header = records.parse_header(batch, 0, len(batch))
    with pytest.raises(TypeError, match="writable"):
        records.patch_offsets(batch, 0, 1, 1)
    with pytest.raises(TypeError, match="writable"):
        records.patch_append_time(batch, header, T0)
