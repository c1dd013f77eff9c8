"""What members of a classic group of protocol type "consumer" read, from the metadata they join with."""

from collections.abc import Iterable

from headwater.coordinator.schema import INT16, STRING, CorruptRecordError, Reader, array

_TOPICS = array(STRING)


def subscribed_topics(subscriptions: Iterable[bytes | None]) -> frozenset[str] | None:
    """The topics of all subscriptions; None when one of them is absent or cannot be understood.

    Every version of a subscription begins with the topics, so the version does not matter.
    """
    topics: set[str] = set()
    for subscription in subscriptions:
        if subscription is None:
            return None
        reader = Reader(subscription)
        try:
            INT16.read(reader, 0, False)
            topics.update(_TOPICS.read(reader, 0, False) or ())
        except CorruptRecordError:
            return None
    return frozenset(topics)
