"""Objects of the user that see records before they are handed out, and offsets once they are committed."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from headwater.client.consumer.records import Record
from headwater.types import TopicPartition

logger = logging.getLogger(__name__)


class ConsumerInterceptor(Protocol):
    """What an interceptor may have; a method that it lacks is not called."""

    def on_consume(self, records: list[Record]) -> list[Record]:
        """Sees what a poll is about to hand out, and gives what it hands out instead."""
        ...

    def on_commit(self, offsets: Mapping[TopicPartition, Any]) -> None:
        """Sees what the group has taken, asked for or automatic, also before partitions go and at the end."""
        ...


class Interceptors:
    """Calls interceptors in their order. One that fails is logged and passed over: it may not stop the reading."""

    def __init__(self, interceptors: Sequence[Any]) -> None:
        self._interceptors = interceptors

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def consume(self, records: list[Record]) -> list[Record]:
        """What the interceptors make of records that are about to be handed out."""
        for interceptor in self._interceptors:
            if hasattr(interceptor, "on_consume"):
                try:
                    records = interceptor.on_consume(records)
                except Exception:
                    logger.exception("%r failed on records; they are handed out without it", interceptor)
        return records

    def committed(self, offsets: Mapping[TopicPartition, Any]) -> None:
        """Tells all interceptors."""
        for interceptor in self._interceptors:
            if hasattr(interceptor, "on_commit"):
                try:
                    interceptor.on_commit(offsets)
                except Exception:
                    logger.exception("%r failed on committed offsets", interceptor)
