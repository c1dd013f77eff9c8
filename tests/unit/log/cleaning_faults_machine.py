"""A compacted log on a disk that fails, cleaned again and again, and a list of records that says what must be there.

Whatever happens: a record that is there is at the offset at which it was written; the newest record of each key is
there; and after a crash each key has at least the newest record that was flushed, or a later one.
"""

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from headwater.log.cleaning.cleanable import find_cleanable

from .building import NOW_MS, append
from .cleaning import clean_once, compacted, keyed, newest_of_each_key, survivors
from .faults_machine import TROUBLES, Trouble, UnderFaults, check_offset_index, check_time_index


class CleaningUnderFaults(UnderFaults):
    """Few keys in small segments."""

    config = compacted(segment_bytes=500)
    written: tuple[tuple[int, bytes, bytes | None], ...] = ()
    """Offset, key and value of every record, the superseded ones too."""
    start = 0

    @precondition(lambda self: not self.offline)
    @rule(
        keys=st.lists(st.integers(0, 5), min_size=1, max_size=3),
        size=st.integers(0, 80),
        is_tombstone=st.booleans(),
        trouble=TROUBLES,
    )
    def append(self, keys: list[int], size: int, is_tombstone: bool, trouble: Trouble | None) -> None:
        value = None if is_tombstone else b"%d" % self.serial + bytes(size)
        self.serial += 1
        end = self.log.log_end_offset
        new = tuple((end + index, b"k%d" % key, value) for index, key in enumerate(keys))
        before = self.written
        # Should the machine stop in the middle, they may be there or not.
        self.written = before + new
        lives = self.fs
        if not self.attempt(lambda: append(self.log, keyed(*((key, value) for _, key, value in new))), trouble):
            self.written = before if self.fs is lives else self.written

    @precondition(lambda self: not self.offline)
    @rule(trouble=TROUBLES)
    def clean(self, trouble: Trouble | None) -> None:
        if find_cleanable(self.log, stable_offset=self.log.log_end_offset, now_ms=NOW_MS) is not None:
            self.attempt(lambda: clean_once(self.log), trouble)

    def after_restart(self) -> None:
        end = self.log.log_end_offset
        assert end >= self.flushed, "something flushed is gone"
        # The first segment's name may be lost when nothing was ever flushed.
        assert self.log.log_start_offset == self.start or self.flushed <= self.start
        self.start = self.log.log_start_offset
        there = survivors(self.log)
        newest = {key: offset for offset, key, _ in there}
        for offset, key, _ in self.written:
            assert offset >= self.flushed or newest.get(key, -1) >= offset, (
                "a flushed record is gone, and no later one there"
            )
        # Of what was not flushed a crash may take any, as holes cannot be told from what cleaning has left out.
        self.written = tuple(record for record in self.written if newest.get(record[1], -1) >= record[0])
        self.flushed = min(self.flushed, end)
        self.offline = False
        for segment in self.log.segments:
            check_offset_index(segment)
            check_time_index(segment)

    @invariant()
    def newest_records_are_there(self) -> None:
        if hasattr(self, "log") and not self.offline:
            there = survivors(self.log)
            assert set(there) <= set(self.written)
            offsets = [offset for offset, _, _ in there]
            assert offsets == sorted(set(offsets))
            assert set(newest_of_each_key(self.written, self.log.log_end_offset)) <= set(offsets)
