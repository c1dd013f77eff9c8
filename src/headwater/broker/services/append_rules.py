"""What is asked of a batch that a client sends: that it can be read, and what the topic's settings demand.

The settings are worked out once for each change. A check touches nothing but the bytes of the batch, so that one of a
large batch may run in a thread (`record_checks.py`).
"""

from typing import Final

from headwater.config import TopicConfig
from headwater.protocol import records
from headwater.protocol.errors import ApiError, ErrorCode
from headwater.protocol.records import BatchHeader

_CODEC_IDS: Final = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_NEVER_MS: Final = 2**63 - 1
_LONGEST_MS: Final = 2**62
"""Added to any present it stays within 64 bits; no record has a time so far away."""
_FIRST_WITH_ZSTD: Final = 7
_ZSTD: Final = 4
_ATTRIBUTES_AT: Final = 22
_CODEC: Final = records.COMPRESSION_MASK
_LOG_APPEND_TIME: Final = records.LOG_APPEND_TIME_FLAG
_UNREADABLE: Final = (records.CorruptBatchError, records.RefusedRecordsError)

UNPACKED_TIMES: Final = 64
"""A compressed batch may be so many times as large as max.message.bytes once decompressed …"""
_UNPACKED_AT_LEAST_BYTES: Final = 1 << 20
_UNPACKED_AT_MOST_BYTES: Final = records.DECOMPRESSED_LIMIT_BYTES
"""… but what consumers and the cleaner would refuse is refused here."""

# What is checked at once, on the event loop: some milliseconds at the very worst.
_QUICK_BYTES: Final = 4 << 20
_QUICK_COMPRESSED_BYTES: Final = 32 << 10
_QUICK_UNPACKED_BYTES: Final = 512 << 10


class InvalidRecordsError(ApiError):
    """A batch of which some records break a rule of the topic."""

    def __init__(self, code: ErrorCode, message: str, record_errors: tuple[tuple[int, str | None], ...]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class TakesLongError(Exception):
    """A batch that must not be checked on the event loop."""


class AppendRules:
    """The rules of one topic. `check` is on the path of every Produce."""

    __slots__ = (
        "_after_ms",
        "_before_ms",
        "_by_client",
        "_codec",
        "_internal",
        "_level",
        "_max_bytes",
        "_quick_unpacked_bytes",
        "_require_keys",
        "_unpacked_bytes",
    )

    def __init__(self, config: TopicConfig, *, internal: bool) -> None:
        self._internal = internal
        self._max_bytes = config.max_message_bytes
        unpacked_bytes = max(UNPACKED_TIMES * config.max_message_bytes, _UNPACKED_AT_LEAST_BYTES)
        self._unpacked_bytes = min(unpacked_bytes, _UNPACKED_AT_MOST_BYTES)
        self._quick_unpacked_bytes = min(_QUICK_UNPACKED_BYTES, self._unpacked_bytes)
        self._require_keys = config.compacts
        self._by_client = config.message_timestamp_type == "CreateTime"
        self._before_ms = config.message_timestamp_before_max_ms if self._by_client else _NEVER_MS
        self._after_ms = min(config.message_timestamp_after_max_ms if self._by_client else _NEVER_MS, _LONGEST_MS)
        self._codec = _CODEC_IDS.get(config.compression_type)
        levels = {1: config.compression_gzip_level, 3: config.compression_lz4_level, 4: config.compression_zstd_level}
        self._level = levels.get(self._codec or 0)

    def check(
        self, frame: memoryview, start: int, end: int, version: int, now_ms: int, at_once: bool
    ) -> tuple[memoryview, BatchHeader]:
        """The batch that is to be appended, and the buffer that holds it, from the bytes that a client sent.

        Mostly that is the client's own batch, its largest timestamp put right; it is another where the topic wants it
        compressed otherwise. ApiError when it breaks a rule, RefusedBatchError when it cannot be read,
        CorruptBatchError when it was harmed on its way, TakesLongError if it had to be done `at_once`.
        """
        if self._internal:
            raise ApiError(ErrorCode.invalid_topic_exception, "Cannot append to an internal topic.")
        if at_once and end - start > _QUICK_COMPRESSED_BYTES:
            self._refuse_if_long(frame, start, end)
        header = records.check_produced(frame, start, end)
        attributes = header.attributes
        codec = attributes & _CODEC
        if codec == _ZSTD and version < _FIRST_WITH_ZSTD:
            message = f"zstd needs version {_FIRST_WITH_ZSTD} of Produce"
            raise ApiError(ErrorCode.unsupported_compression_type, message)
        if header.size > self._max_bytes:
            raise ApiError(
                ErrorCode.message_too_large, f"a batch of {header.size} bytes; max.message.bytes={self._max_bytes}"
            )
        if attributes & _LOG_APPEND_TIME and not self._by_client:
            raise ApiError(ErrorCode.invalid_timestamp, "a producer may not set the time of an append")
        earliest_ms, latest_ms = now_ms - self._before_ms, now_ms + self._after_ms
        limit_bytes = self._quick_unpacked_bytes if at_once else self._unpacked_bytes
        try:
            largest_ms = records.check_records(frame, header, self._require_keys, earliest_ms, latest_ms, limit_bytes)
        except _UNREADABLE as error:
            raise self._refusal(error, at_once) from error
        if self._by_client and (largest_ms != header.max_timestamp_ms or attributes & _LOG_APPEND_TIME):
            records.patch_max_timestamp(frame, header, largest_ms)
        if self._codec is None or self._codec == codec:
            return frame, header
        fresh = memoryview(records.recompress(frame, header, self._codec, self._level))
        return fresh, records.parse_header(fresh, 0, len(fresh))

    def _refuse_if_long(self, frame: memoryview, start: int, end: int) -> None:
        """TakesLongError for what is long by its looks; how far it will grow is seen when it grows."""
        codec = frame[start + _ATTRIBUTES_AT] & _CODEC
        if end - start > _QUICK_BYTES or codec or self._codec:
            raise TakesLongError

    def _refusal(self, error: Exception, at_once: bool) -> Exception:
        """What is told of records that cannot be read or break a rule."""
        if isinstance(error, records.RefusedRecordsError):
            return _in_words(error.problems)
        if isinstance(error, records.UnpackedTooLargeError):
            if at_once and self._quick_unpacked_bytes < self._unpacked_bytes:
                return TakesLongError()
            message = f"{error.reason}, {UNPACKED_TIMES} times max.message.bytes: send smaller batches"
            return ApiError(ErrorCode.message_too_large, message)
        # The checksum is right: the producer made it so, and would send the same again.
        return records.RefusedBatchError(getattr(error, "reason", str(error)))


def _in_words(problems: records.RecordProblems) -> InvalidRecordsError:
    code = ErrorCode.invalid_timestamp if problems.has_timestamp else ErrorCode.invalid_record
    message = "One or more records have been rejected" + (" due to invalid timestamp" * problems.has_timestamp)
    if problems.total > len(problems.first):
        message += f": {problems.total} of them, of which the first {len(problems.first)} are told"
    return InvalidRecordsError(code, message, tuple((each.batch_index, each.message) for each in problems.first))
