"""What a topic's settings demand of a batch that a client sends, worked out once for each change of the settings."""

from typing import Final

from headwater.config import TopicConfig
from headwater.protocol.errors import ApiError, ErrorCode
from headwater.protocol.records import BatchHeader, recompress, validate_records

_CODEC_IDS: Final = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_NEVER_MS: Final = 2**63 - 1


class InvalidRecordsError(ApiError):
    """A batch of which some records break a rule of the topic."""

    def __init__(self, code: ErrorCode, message: str, record_errors: tuple[tuple[int, str | None], ...]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class AppendRules:
    """The rules of one topic. `apply` is on the path of every Produce: it mostly compares two numbers."""

    __slots__ = ("_after_ms", "_before_ms", "_codec", "_internal", "_level", "_max_bytes", "_plain", "_require_keys")

    def __init__(self, config: TopicConfig, *, internal: bool) -> None:
        self._internal = internal
        self._max_bytes = config.max_message_bytes
        self._require_keys = config.compacts
        by_client = config.message_timestamp_type == "CreateTime"
        self._before_ms = config.message_timestamp_before_max_ms if by_client else _NEVER_MS
        self._after_ms = config.message_timestamp_after_max_ms if by_client else _NEVER_MS
        self._codec = _CODEC_IDS.get(config.compression_type)
        levels = {1: config.compression_gzip_level, 3: config.compression_lz4_level, 4: config.compression_zstd_level}
        self._level = levels.get(self._codec or 0)
        self._plain = not internal and not self._require_keys and self._before_ms == _NEVER_MS and self._codec is None

    def apply(self, frame: memoryview, header: BatchHeader, now_ms: int) -> bytearray | None:
        """Refuses a batch that breaks a rule; a new batch where the topic wants it compressed otherwise."""
        if header.size > self._max_bytes:
            raise ApiError(
                ErrorCode.message_too_large, f"a batch of {header.size} bytes; max.message.bytes={self._max_bytes}"
            )
        if self._plain and header.max_timestamp_ms - now_ms <= self._after_ms:
            return None
        if self._internal:
            raise ApiError(ErrorCode.invalid_topic_exception, "Cannot append to an internal topic.")
        self._check_records(frame, header, now_ms)
        if self._codec is None or self._codec == header.compression:
            return None
        return recompress(frame, header, self._codec, self._level)

    def _check_records(self, frame: memoryview, header: BatchHeader, now_ms: int) -> None:
        """Looks at the records themselves, if a rule needs it."""
        earliest_ms = None if self._before_ms == _NEVER_MS else now_ms - self._before_ms
        latest_ms = now_ms + self._after_ms if header.max_timestamp_ms - now_ms > self._after_ms else None
        if not self._require_keys and earliest_ms is None and latest_ms is None:
            return
        problems = validate_records(
            frame,
            header,
            require_keys=self._require_keys,
            min_timestamp_ms=earliest_ms,
            max_timestamp_ms=latest_ms,
        )
        if not problems:
            return
        timestamps = any(problem.reason == "timestamp" for problem in problems)
        raise InvalidRecordsError(
            ErrorCode.invalid_timestamp if timestamps else ErrorCode.invalid_record,
            "One or more records have been rejected" + (" due to invalid timestamp" if timestamps else ""),
            tuple((problem.batch_index, problem.message) for problem in problems),
        )
