"""The newest offset of each key, in bounded memory, and what survives of batches by it: the cleaner's inner loop.

A key is known by a hash of 16 bytes, with its offset 24 bytes in all. Whole rows of batches are gone through in one
call without the interpreter's lock, so that a thread that cleans does not hold up the event loop. Compiled by Cython
(pure Python mode) and correct without it.
"""
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import contextlib
import mmap
from array import array
from typing import TYPE_CHECKING

from headwater.log.cleaning.raw_records import RECORD_FIELDS
from headwater.log.cleaning.survivors import Survivors
from headwater.protocol.records import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    CorruptBatchError,
    unpack_section,
)

try:
    import cython
except ImportError:
    from headwater.protocol import without_cython as cython

if cython.compiled:
    from cython.cimports.headwater.log.cleaning.key_hash import hash_key
    from cython.cimports.headwater.log.cleaning.raw_records import (
        KEY_AT,
        KEY_SIZE,
        OFFSET_DELTA,
        TIME_DELTA,
        VALUE_SIZE,
        integer,
        longs,
        octets,
        read_record,
    )
    from cython.cimports.headwater.protocol.raw_memory import copy
else:
    from headwater.log.cleaning.key_hash import hash_key
    from headwater.log.cleaning.raw_records import (
        KEY_AT,
        KEY_SIZE,
        OFFSET_DELTA,
        TIME_DELTA,
        VALUE_SIZE,
        integer,
        longs,
        octets,
        read_record,
    )
    from headwater.protocol.raw_memory import copy

if TYPE_CHECKING:
    from collections.abc import Sequence

BYTES_PER_KEY = 24

# What is known of the records of one batch before they are read, and what is found out about them.
# Declared so, a name is a C variable: quick, and invisible from Python.
_SLOT = cython.declare(cython.int, 0)
_UNPACKED = cython.declare(cython.int, 1)
_START = cython.declare(cython.int, 2)
_END = cython.declare(cython.int, 3)
_COUNT = cython.declare(cython.int, 4)
_BASE_OFFSET = cython.declare(cython.int, 5)
_LAST_DELTA = cython.declare(cython.int, 6)
_BASE_TIME = cython.declare(cython.int, 7)
_HORIZON_IS_SET = cython.declare(cython.int, 8)
_TOMBSTONES_GO = cython.declare(cython.int, 9)
_SECTION = cython.declare(cython.int, 10)
_KEPT = cython.declare(cython.int, 0)
_TOMBSTONES = cython.declare(cython.int, 1)
_MAX_TIME = cython.declare(cython.int, 2)
_KEPT_START = cython.declare(cython.int, 3)
_KEPT_END = cython.declare(cython.int, 4)
_OUTCOME = cython.declare(cython.int, 5)

_HEADER_SIZE = cython.declare(cython.longlong, HEADER_SIZE)
_LOG_OVERHEAD = cython.declare(cython.longlong, LOG_OVERHEAD)
_COMPRESSION = cython.declare(cython.longlong, 0x07)
_DELETE_HORIZON = cython.declare(cython.longlong, 0x40)
_FARTHEST = cython.declare(cython.longlong, 2**62)
_FIRST_SLOTS = 1 << 14


@cython.final
@cython.cclass
class OffsetMap:
    """Keys and their newest offsets. At most `limit` keys go in; `latest_offset` says how far the log was read.

    The table begins small and grows with the keys up to `slots`: a small one is in the processor's caches. While it
    grows there are two, of which a large old one has at most an eighth of the slots.

    Once it is settled, a bit for each offset says whether that is the newest of its key, if the bits need no more than
    an eighth of the table's memory. Then what was put in is not looked up again, and a batch without such an offset is
    not even unpacked.
    """

    latest_offset: int = cython.declare(cython.longlong, visibility="public")
    keys: int = cython.declare(cython.longlong, visibility="readonly")
    limit: cython.longlong
    most_slots: cython.ulonglong
    slots: cython.ulonglong
    table: memoryview
    words: cython.p_ulonglong
    fields: array[int]
    record: cython.p_longlong
    secret_0: cython.ulonglong
    secret_1: cython.ulonglong
    sections: array[int]
    count: cython.longlong
    records: cython.longlong
    unpacked: bytearray
    kept: bytearray
    newest_from: cython.longlong
    newest: memoryview
    bits: cython.p_uchar

    def __init__(self, *, slots: int, limit: int, secret: bytes) -> None:
        if not 0 < slots < 2**31 or not 0 < limit < 2**31 or len(secret) != 16:
            raise ValueError(f"no map has {slots} slots for {limit} keys and a secret of {len(secret)} bytes")
        self.latest_offset = -1
        self.keys = 0
        self.limit = limit
        # One slot stays empty, so that every search ends.
        self.most_slots = slots + 1
        self._new_table(min(slots, _FIRST_SLOTS) + 1)
        self.fields = array("q", bytes(8 * RECORD_FIELDS))
        self.record = longs(self.fields)
        self.secret_0 = int.from_bytes(secret[:8], "little")
        self.secret_1 = int.from_bytes(secret[8:], "little")
        self.sections = array("q")
        self.count = 0
        self.records = 0
        self.unpacked = bytearray()
        self.kept = bytearray()
        self.newest_from = _FARTHEST
        self.newest = memoryview(b"")
        self.bits = octets(self.newest)
        if limit > slots:
            self.limit = slots

    @cython.cfunc
    def _new_table(self, slots: cython.ulonglong) -> cython.void:
        self.slots = slots
        self.table = memoryview(_zeros(BYTES_PER_KEY * slots)).cast("Q")
        self.words = _table_words(self.table)

    @cython.cfunc
    def _make_room(self, more: cython.longlong) -> cython.void:
        """Let so many more keys find a slot soon, if the table may grow."""
        old = self.table
        old_slots: cython.ulonglong = self.slots
        wanted: cython.ulonglong = self.slots
        keys: cython.ulonglong = self.keys + more
        while wanted < self.most_slots and 2 * wanted < 3 * keys:
            wanted = 2 * wanted if 16 * wanted < self.most_slots else self.most_slots
        if wanted > old_slots:
            self._new_table(wanted)
            words: cython.p_ulonglong = _table_words(old)
            with cython.nogil:
                self._move(words, old_slots)

    def put(self, key: bytes, offset: int) -> None:
        """Note an offset of one key."""
        if self.keys >= self.limit:
            raise ValueError(f"the map is full with {self.keys} keys")
        self._make_room(1)
        self._put(octets(memoryview(key)), 0, len(key), offset)
        self.latest_offset = offset

    def get(self, key: bytes) -> int:
        """The newest offset of a key, -1 when it is not known."""
        offset: int = self._find(octets(memoryview(key)), 0, len(key))
        return offset

    def add(self, view: memoryview, headers: Sequence[BatchHeader], flags: bytearray, from_offset: int) -> bool:
        """Note the keys of batches that lie one after the other, those whose flag is 0; True when the map is full.

        Records before `from_offset` are left out. When full, `latest_offset` is that of the last record that went in.
        """
        data: cython.p_uchar = octets(view)
        unpacked: cython.p_uchar
        sections: cython.p_longlong
        taken: cython.longlong
        start: cython.longlong = from_offset
        self._gather(view, headers, flags, 0)
        self._make_room(self.records)
        unpacked = octets(memoryview(self.unpacked))
        sections = longs(self.sections)
        with cython.nogil:
            taken = self._add_sections(data, unpacked, sections, start)
        if taken < 0:
            raise _unreadable(headers[self.sections[(-1 - taken) * _SECTION + _SLOT]])
        full: bool = taken < self.count
        last = self.sections[taken * _SECTION + _SLOT] - 1 if full else len(headers) - 1
        if last >= 0 and headers[last].last_offset >= from_offset and headers[last].last_offset > self.latest_offset:
            self.latest_offset = headers[last].last_offset
        return full

    def settle(self, from_offset: int) -> None:
        """No more keys go in; all that were put in have offsets from `from_offset` on."""
        size = (self.latest_offset - from_offset) // 8 + 1
        if from_offset > self.latest_offset or size > BYTES_PER_KEY * self.most_slots // 8:
            return
        self.newest = memoryview(_zeros(size))
        self.bits = octets(self.newest)
        self.newest_from = from_offset
        with cython.nogil:
            self._mark_newest()

    def filter(self, view: memoryview, headers: Sequence[BatchHeader], verdicts: bytearray, now_ms: int) -> Survivors:
        """Which records of such batches stay: the newest of each key, and all beyond `latest_offset`.

        Where `verdicts` has 0 it gets what becomes of the batch; the others are not looked at.
        A tombstone stays until the delete horizon of its batch, and while that has none. Records without a key go.
        """
        data: cython.p_uchar = octets(view)
        unpacked: cython.p_uchar
        sections: cython.p_longlong
        outcomes: cython.p_longlong
        target: cython.p_uchar
        failed: cython.longlong
        marks: cython.p_uchar = verdicts
        size: cython.longlong = self._gather(view, headers, verdicts, now_ms)
        found = array("q", b"\xff" * (8 * _OUTCOME)) * len(headers)
        if size > len(self.kept):
            self.kept = bytearray(size)
        unpacked = octets(memoryview(self.unpacked))
        sections = longs(self.sections)
        outcomes = longs(found)
        target = self.kept
        with cython.nogil:
            failed = self._filter_sections(data, unpacked, sections, outcomes, marks, target)
        if failed >= 0:
            raise _unreadable(headers[self.sections[failed * _SECTION + _SLOT]])
        return Survivors(found, self.kept)

    @cython.cfunc
    def _gather(
        self, view: memoryview, headers: Sequence[BatchHeader], flags: bytearray, now_ms: cython.longlong
    ) -> cython.longlong:
        """Lay out where the records of the batches are; compressed ones are unpacked first. The size of them all."""
        slot: cython.longlong
        size: cython.longlong
        attributes: cython.longlong
        total: cython.longlong = 0
        unpacked_end: cython.longlong = 0
        row: cython.longlong = 0
        at: cython.longlong = headers[0].position
        end: cython.longlong = len(view)
        data: cython.p_uchar = octets(view)
        marks: cython.p_uchar = flags
        self.sections = array("q", bytes(8 * _SECTION)) * len(headers)
        self.records = 0
        to: cython.p_longlong = longs(self.sections)
        for slot in range(len(headers)):
            size = integer(data, at + 8, 4) + _LOG_OVERHEAD if end - at >= _HEADER_SIZE else 0
            if size < _HEADER_SIZE or size > end - at:
                raise ValueError(f"a buffer of {end} bytes does not hold {len(headers)} batches one after the other")
            if marks[slot] == 0 and self._is_superseded(integer(data, at, 8), integer(data, at + 23, 4)):
                marks[slot] = 1
            if marks[slot] == 0:
                attributes = integer(data, at + 21, 2)
                to[row + _SLOT] = slot
                to[row + _UNPACKED] = attributes & _COMPRESSION
                to[row + _START] = at + _HEADER_SIZE
                to[row + _END] = at + size
                to[row + _LAST_DELTA] = integer(data, at + 23, 4)
                to[row + _BASE_TIME] = integer(data, at + 27, 8)
                to[row + _COUNT] = integer(data, at + 57, 4)
                to[row + _BASE_OFFSET] = integer(data, at, 8)
                to[row + _HORIZON_IS_SET] = attributes & _DELETE_HORIZON
                to[row + _TOMBSTONES_GO] = attributes & _DELETE_HORIZON and to[row + _BASE_TIME] <= now_ms
                if not _is_sane(to, row):
                    raise _unreadable(headers[slot])
                if to[row + _UNPACKED]:
                    to[row + _START] = unpacked_end
                    unpacked_end = unpack_section(view, headers[slot], self.unpacked, unpacked_end)
                    to[row + _END] = unpacked_end
                self.records += to[row + _COUNT]
                total += to[row + _END] - to[row + _START]
                row += _SECTION
            at += size
        self.count = row // _SECTION
        return total

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _add_sections(
        self, chunk: cython.p_uchar, unpacked: cython.p_uchar, sections: cython.p_longlong, from_offset: cython.longlong
    ) -> cython.longlong:
        """How many sections went in whole; -1 - n when section n does not parse."""
        slot: cython.longlong = 0
        row: cython.longlong = 0
        left: cython.longlong
        at: cython.longlong
        end: cython.longlong
        offset: cython.longlong
        data: cython.p_uchar
        record: cython.p_longlong = self.record
        while slot < self.count:
            row = slot * _SECTION
            data = unpacked if sections[row + _UNPACKED] else chunk
            at = sections[row + _START]
            end = sections[row + _END]
            left = sections[row + _COUNT]
            while left > 0:
                at = read_record(data, at, end, sections[row + _LAST_DELTA], record)
                if at < 0:
                    return -1 - slot
                offset = sections[row + _BASE_OFFSET] + record[OFFSET_DELTA]
                if record[KEY_SIZE] >= 0 and offset >= from_offset:
                    if self.keys >= self.limit:
                        return slot
                    self._put(data, record[KEY_AT], record[KEY_SIZE], offset)
                    self.latest_offset = offset
                left -= 1
            if at != end:
                return -1 - slot
            slot += 1
        return slot

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _filter_sections(
        self,
        chunk: cython.p_uchar,
        unpacked: cython.p_uchar,
        sections: cython.p_longlong,
        outcomes: cython.p_longlong,
        marks: cython.p_uchar,
        target: cython.p_uchar,
    ) -> cython.longlong:
        """Fill in outcomes and verdicts, copy what stays where not all does; the section that is corrupt, or -1."""
        slot: cython.longlong = 0
        used: cython.longlong = 0
        while slot < self.count:
            used = self._filter_section(
                unpacked if sections[slot * _SECTION + _UNPACKED] else chunk,
                sections,
                slot * _SECTION,
                outcomes,
                sections[slot * _SECTION + _SLOT] * _OUTCOME,
                target,
                used,
            )
            if used < 0:
                return slot
            marks[sections[slot * _SECTION + _SLOT]] = _verdict(
                sections, slot * _SECTION, outcomes, sections[slot * _SECTION + _SLOT] * _OUTCOME
            )
            slot += 1
        return -1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _filter_section(
        self,
        data: cython.p_uchar,
        sections: cython.p_longlong,
        row: cython.longlong,
        outcomes: cython.p_longlong,
        out: cython.longlong,
        target: cython.p_uchar,
        used: cython.longlong,
    ) -> cython.longlong:
        """Go through the records of one batch; where the next bytes that stay go in `target`, -1 if it is corrupt."""
        at: cython.longlong = sections[row + _START]
        end: cython.longlong = sections[row + _END]
        left: cython.longlong = sections[row + _COUNT]
        run: cython.longlong = at
        begin: cython.longlong
        kept: cython.longlong = 0
        tombstones: cython.longlong = 0
        largest_ms: cython.longlong = -1
        record: cython.p_longlong = self.record
        outcomes[out + _KEPT_START] = used
        while left > 0:
            begin = at
            at = read_record(data, at, end, sections[row + _LAST_DELTA], record)
            if at < 0:
                return -1
            if self._stays(data, record, sections[row + _BASE_OFFSET], sections[row + _TOMBSTONES_GO]):
                kept += 1
                if record[VALUE_SIZE] < 0:
                    tombstones = 1
                if sections[row + _BASE_TIME] + record[TIME_DELTA] > largest_ms:
                    largest_ms = sections[row + _BASE_TIME] + record[TIME_DELTA]
            else:
                # Records in a row that stay are copied together.
                copy(target, used, data, run, begin - run)
                used += begin - run
                run = at
            left -= 1
        if at != end:
            return -1
        if kept < sections[row + _COUNT]:
            copy(target, used, data, run, end - run)
            used += end - run
        outcomes[out + _KEPT] = kept
        outcomes[out + _TOMBSTONES] = tombstones
        outcomes[out + _MAX_TIME] = largest_ms
        outcomes[out + _KEPT_END] = used
        return used

    @cython.cfunc
    @cython.nogil
    @cython.inline
    @cython.exceptval(check=False)
    def _stays(
        self,
        data: cython.p_uchar,
        record: cython.p_longlong,
        base_offset: cython.longlong,
        tombstones_go: cython.longlong,
    ) -> cython.bint:
        offset: cython.longlong = base_offset + record[OFFSET_DELTA]
        if offset > self.latest_offset:
            return True
        if record[KEY_SIZE] < 0 or (record[VALUE_SIZE] < 0 and tombstones_go):
            return False
        if offset >= self.newest_from:
            return self._is_newest(offset)
        return offset >= self._find(data, record[KEY_AT], record[KEY_SIZE])

    @cython.cfunc
    @cython.nogil
    @cython.inline
    @cython.exceptval(check=False)
    def _is_newest(self, offset: cython.longlong) -> cython.bint:
        bit: cython.longlong = offset - self.newest_from
        return self.bits[bit >> 3] >> (bit & 7) & 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_superseded(self, base_offset: cython.longlong, last_delta: cython.longlong) -> cython.bint:
        """Whether the map says, without a look inside, that nothing of a batch stays."""
        offset: cython.longlong = base_offset
        if base_offset < self.newest_from or last_delta < 0 or last_delta > self.latest_offset - base_offset:
            return False
        while offset <= base_offset + last_delta:
            if self._is_newest(offset):
                return False
            offset += 1
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _mark_newest(self) -> cython.void:
        slot: cython.ulonglong
        bit: cython.longlong
        words: cython.p_ulonglong = self.words
        for slot in range(self.slots):
            if words[3 * slot + 2] != 0:
                bit = words[3 * slot + 2] - 1 - self.newest_from
                self.bits[bit >> 3] |= 1 << (bit & 7)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _put(
        self, data: cython.p_uchar, at: cython.longlong, size: cython.longlong, offset: cython.longlong
    ) -> cython.void:
        first: cython.ulonglong
        second: cython.ulonglong
        slot: cython.ulonglong
        words: cython.p_ulonglong = self.words
        first, second = hash_key(data, at, size, self.secret_0, self.secret_1)
        slot = (first >> 32) * self.slots >> 32
        while words[3 * slot + 2] != 0:
            if words[3 * slot] == first and words[3 * slot + 1] == second:
                words[3 * slot + 2] = offset + 1
                return
            slot += 1
            if slot == self.slots:
                slot = 0
        words[3 * slot] = first
        words[3 * slot + 1] = second
        # An offset is kept as one more, so that zero is an empty slot.
        words[3 * slot + 2] = offset + 1
        self.keys += 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _move(self, old: cython.p_ulonglong, old_slots: cython.ulonglong) -> cython.void:
        """Take over what is in an old table."""
        at: cython.ulonglong
        slot: cython.ulonglong
        words: cython.p_ulonglong = self.words
        for at in range(old_slots):
            if old[3 * at + 2] != 0:
                slot = (old[3 * at] >> 32) * self.slots >> 32
                while words[3 * slot + 2] != 0:
                    slot += 1
                    if slot == self.slots:
                        slot = 0
                words[3 * slot] = old[3 * at]
                words[3 * slot + 1] = old[3 * at + 1]
                words[3 * slot + 2] = old[3 * at + 2]

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _find(self, data: cython.p_uchar, at: cython.longlong, size: cython.longlong) -> cython.longlong:
        first: cython.ulonglong
        second: cython.ulonglong
        slot: cython.ulonglong
        words: cython.p_ulonglong = self.words
        first, second = hash_key(data, at, size, self.secret_0, self.secret_1)
        slot = (first >> 32) * self.slots >> 32
        while words[3 * slot + 2] != 0:
            if words[3 * slot] == first and words[3 * slot + 1] == second:
                return words[3 * slot + 2] - 1
            slot += 1
            if slot == self.slots:
                slot = 0
        return -1


def _zeros(size: int) -> mmap.mmap:
    """Memory that is made as it is touched, which is without the interpreter's lock; in large pages where they are."""
    zeros = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):
        zeros.madvise(mmap.MADV_HUGEPAGE)
    return zeros


def _unreadable(header: BatchHeader) -> CorruptBatchError:
    return CorruptBatchError(header.position, f"its {header.records_count} records do not parse")


@cython.cfunc
@cython.nogil
@cython.inline
@cython.exceptval(check=False)
def _verdict(
    sections: cython.p_longlong, row: cython.longlong, outcomes: cython.p_longlong, out: cython.longlong
) -> cython.uchar:
    if outcomes[out + _KEPT] == 0:
        return 1
    if outcomes[out + _KEPT] < sections[row + _COUNT]:
        return 3
    # A tombstone that is met for the first time gets the time when it may go.
    return 3 if outcomes[out + _TOMBSTONES] and not sections[row + _HORIZON_IS_SET] else 2


@cython.cfunc
@cython.exceptval(check=False)
def _is_sane(to: cython.p_longlong, row: cython.longlong) -> cython.bint:
    """Whether no offset and no time of the batch's records can overflow."""
    if to[row + _LAST_DELTA] < 0 or to[row + _COUNT] < 0:
        return False
    if to[row + _BASE_OFFSET] < 0 or to[row + _BASE_OFFSET] > _FARTHEST:
        return False
    return to[row + _BASE_TIME] <= _FARTHEST and to[row + _BASE_TIME] >= -_FARTHEST


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _table_words(view: memoryview) -> cython.p_ulonglong:
    """The numbers behind a memoryview: a C pointer when compiled, else the view itself. Both are indexed alike."""
    if cython.compiled:
        return cython.cast(cython.p_ulonglong, octets(view))
    else:  # noqa: RET505
        return view
