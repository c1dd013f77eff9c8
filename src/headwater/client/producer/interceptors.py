"""Interceptors: objects that see each record before it is sent, and what became of it. They may change the record.

What an interceptor raises is logged and otherwise ignored, as in Java's client: it must not stop a producer. Knows no
batch and no broker.
"""

import logging
from collections.abc import Iterable
from typing import Any, NamedTuple

from headwater.client.producer.handles import RecordMetadata, SendHandle
from headwater.client.producer.sending import Headers

_log = logging.getLogger(__name__)


class ProducerRecord(NamedTuple):
    """A record as it was given to `send`, before serializers and partitioner have seen it.

    >>> ProducerRecord("orders", "six bottles")._replace(headers=[("by", b"till 3")]).headers
    [('by', b'till 3')]
    """

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: "Headers | None" = None


class ProducerInterceptor:
    """To be subclassed; what is not overridden does nothing."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record to send in place of this one: called by whoever calls `send`, before anything else is done."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        """Called on the sender's thread when the record was written or has failed; be quick."""

    def close(self) -> None:
        """The producer is closed."""


class Interceptors:
    """All interceptors of a producer, in order: each sees what the one before has made of the record."""

    def __init__(self, interceptors: Iterable[Any]) -> None:
        self._interceptors = tuple(interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record after all have seen it."""
        for interceptor in self._interceptors:
            try:
                record = interceptor.on_send(record)
            except Exception:
                _log.exception("on_send of the interceptor %r raised; the record is sent without it", interceptor)
        return record

    def watch(self, handle: SendHandle) -> None:
        """Tells all what becomes of the record."""
        handle.add_done_callback(self._acknowledged)

    def close(self) -> None:
        """Tells all that nothing more comes."""
        for interceptor in self._interceptors:
            try:
                interceptor.close()
            except Exception:
                _log.exception("close of the interceptor %r raised", interceptor)

    def failed(self, error: Exception) -> None:
        """Tells all that a record did not even get into a batch."""
        self._tell(None, error)

    def _acknowledged(self, handle: SendHandle) -> None:
        error = handle.exception()
        self._tell(None if error is not None else handle.result(), error)

    def _tell(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        for interceptor in self._interceptors:
            try:
                interceptor.on_acknowledgement(metadata, error)
            except Exception:
                _log.exception("on_acknowledgement of the interceptor %r raised", interceptor)
