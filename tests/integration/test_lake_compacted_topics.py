"""A range of a compacted topic ends where it should, also when nothing is left before its end."""

from conformance.actions import eventually
from headwater import Admin, LocalBroker, Producer
from headwater.lake.datasource.brokers import Brokers
from headwater.lake.datasource.topic_offsets import TopicRange
from headwater.lake.datasource.topic_reader import read_range

COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0",
    "internal.segment.bytes": "700",
}


def test_what_was_compacted_away_is_no_reason_to_wait() -> None:
    with LocalBroker(config={"log.cleaner.backoff.ms": 20}) as broker, Brokers(broker.bootstrap, {}) as brokers:

        def read(start: int, end: int) -> list[tuple[int, bytes]]:
            wanted = TopicRange(topic="compacted", partition=0, start=start, end=end, size_bytes=1000)
            batches = read_range(brokers, wanted, columns={"_offset", "value"})
            return [(row["_offset"], row["value"]) for batch in batches for row in batch.to_pylist()]

        with Admin(broker.bootstrap) as admin:
            admin.create_topic("compacted", partitions=1, configs=COMPACTED)
        with Producer(broker.bootstrap, linger_ms=0) as producer:
            for number in range(41):
                producer.send("compacted", b"%d" % number, key=b"same").result()
            producer.send("compacted", b"newest", key=b"same").result()
            # The segment that is written to is never cleaned: others have to come behind.
            for number in range(42, 62):
                producer.send("compacted", bytes(100), key=b"%d" % number).result()
        eventually(lambda: read(0, 41) == [], "all but the newest are compacted away")
        assert read(0, 42) == [(41, b"newest")]
        assert [offset for offset, _ in read(5, 62)] == [*range(41, 62)]
