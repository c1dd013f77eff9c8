"""Offset records by the shortest way: they are nearly all that `__consumer_offsets` holds, and are read at every start.

Both classes do what `Struct` does, and leave to it what is rare: other versions, long metadata, unknown tags.
"""

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeVar
from uuid import UUID

from headwater.coordinator.schema import CorruptRecordError, Struct

T = TypeVar("T")

_CACHED_KEYS: Final = 16_384
_HEAD: Final = struct.Struct(">hqi")
_LONG: Final = struct.Struct(">q")
_VERSION: Final = 4
_VERSION_BYTES: Final = b"\0\4"
_LONGEST_SHORT_BYTES: Final = 126
"""Metadata up to this size has a length of one byte."""
_METADATA_AT: Final = _HEAD.size + 1
_NO_TAGS: Final = b"\0"
_TOPIC_ID: Final = b"\1\0\x10"
"""One tagged field, number 0, 16 bytes."""
_as_uuid: Final = lru_cache(_CACHED_KEYS)(lambda content: UUID(bytes=content))


class CachedKeys(Struct[T]):
    """Keys of offsets and members: the same few come again and again."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._decoded = lru_cache(_CACHED_KEYS)(super().decode)
        self._encoded = lru_cache(_CACHED_KEYS)(super().encode)

    def decode(self, data: bytes, newest_version: int) -> T:
        """The key in these bytes."""
        return self._decoded(data, newest_version)

    def encode(self, value: T, version: int) -> bytes:
        """The bytes of a key."""
        return self._encoded(value, version)


class OffsetValues(Struct[T]):
    """Values of offsets, quick in the version that is written."""

    def decode(self, data: bytes, newest_version: int) -> T:
        """The offset in these bytes."""
        if data[:2] != _VERSION_BYTES or len(data) <= _METADATA_AT or not 0 < data[_HEAD.size] <= _LONGEST_SHORT_BYTES:
            return super().decode(data, newest_version)
        _, offset, leader_epoch = _HEAD.unpack_from(data)
        metadata_end = _METADATA_AT + data[_HEAD.size] - 1
        tags_at = metadata_end + _LONG.size
        tags = data[tags_at:]
        topic_id = _as_uuid(tags[3:]) if tags[:3] == _TOPIC_ID and len(tags) == 19 else None
        if tags != _NO_TAGS and topic_id is None:
            return super().decode(data, newest_version)
        try:
            metadata = data[_METADATA_AT:metadata_end].decode()
        except UnicodeDecodeError as error:
            raise CorruptRecordError(str(error)) from error
        made: Callable[..., T] = self._made
        return made(
            offset=offset,
            leader_epoch=leader_epoch,
            metadata=metadata,
            commit_timestamp_ms=_LONG.unpack_from(data, metadata_end)[0],
            topic_id=topic_id,
        )

    def encode(self, value: Any, version: int) -> bytes:
        """The bytes of an offset."""
        metadata = value.metadata.encode()
        if version != _VERSION or len(metadata) > _LONGEST_SHORT_BYTES - 1:
            return super().encode(value, version)
        return b"".join(
            (
                _HEAD.pack(version, value.offset, value.leader_epoch),
                bytes((len(metadata) + 1,)),
                metadata,
                _LONG.pack(value.commit_timestamp_ms),
                _NO_TAGS if value.topic_id is None else _TOPIC_ID + value.topic_id.bytes,
            )
        )
