"""Configs of a consumer: what it reads, how much at a time, and how it takes part in a group."""

from headwater.config.definitions import (
    ConfigDef,
    accept,
    at_least,
    between,
    define,
    not_empty,
    one_of,
    one_of_any_case,
)
from headwater.config.tables.vocabulary import BOOLEAN, CLASS, HIGH, INT, LIST, LONG, LOW, STRING

# Two lines a row read best as a table; the formatter would make six of them.
# fmt: off
CONSUMER_ROWS: tuple[ConfigDef, ...] = (
    define("fetch.min.bytes", INT, 1, at_least(0), importance=HIGH,
        doc="A broker answers a fetch once it has this much, or when fetch.max.wait.ms is over."),
    define("fetch.max.bytes", INT, 52_428_800, at_least(0),
        doc="Most bytes in one answer; a single batch that is larger is still sent, so that reading goes on."),
    define("fetch.max.wait.ms", INT, 500, at_least(0), importance=LOW,
        doc="How long a broker may wait for fetch.min.bytes."),
    define("max.partition.fetch.bytes", INT, 1_048_576, at_least(0), importance=HIGH,
        doc="Most bytes of one partition in one answer, with the same exception as for fetch.max.bytes. A partition "
            "of which this much waits is not fetched from."),
    define("prefetch.max.bytes", LONG, 67_108_864, at_least(0),
        doc="Most bytes that are fetched, or asked for, and wait to be handed out, over all partitions but paused "
            "ones. Ours: Kafka's clients have no such bound, or another name for it."),
    define("max.poll.records", INT, 500, at_least(1),
        doc="Most records that one poll hands out. poll_arrow hands out all that waits."),
    define("check.crcs", BOOLEAN, True, importance=LOW,
        doc="Whether the checksum of every batch is checked before its records are handed out."),
    define("corrupt.records", STRING, "fail", one_of("fail", "skip"),
        doc="What becomes of records that cannot be read, in a batch whose checksum, compression or content is broken: "
            "an error that names the place, where the position stays, or they are skipped, counted and logged. Ours."),
    define("corrupt.records.listener", CLASS, None, importance=LOW,
        doc="Function that is told of each batch before it is skipped, with its raw bytes; if it raises, the batch is "
            "not skipped. Ours."),
    define("decompressed.batch.max.bytes", INT, 134_217_728, between(1, 1_073_741_824), importance=LOW,
        doc="Most bytes that one batch may become by decompression; one that would be larger counts as corrupt. Ours."),
    define("isolation.level", STRING, "read_uncommitted", one_of("read_committed", "read_uncommitted"),
        doc="Whether records of transactions are seen as they arrive, or only when they are committed."),
    define("auto.offset.reset", STRING, "latest",
        doc="Where to begin without a committed offset, or when it lies outside of the log: earliest, latest, "
            "by_duration:<ISO 8601 duration> (that long ago), or none (an error)."),
    define("allow.auto.create.topics", BOOLEAN, True,
        doc="Whether subscribing to a topic may create it, where the broker creates topics by itself."),
    define("exclude.internal.topics", BOOLEAN, True,
        doc="Whether a pattern leaves out the cluster's own topics, such as __consumer_offsets."),
    define("default.api.timeout.ms", INT, 60_000, at_least(0),
        doc="How long calls without a time limit of their own may take."),
    define("group.id", STRING, None, not_empty(), importance=HIGH,
        doc="Group whose members share the partitions, and whose committed offsets reading begins at."),
    define("group.instance.id", STRING, None, not_empty(),
        doc="Name of this member that outlives it: back within session.timeout.ms, it has its partitions as before."),
    define("group.protocol", STRING, "classic", one_of_any_case("classic", "consumer"), importance=HIGH,
        doc="Whether members work out the assignment (classic), or the broker does (consumer)."),
    define("group.remote.assignor", STRING, None, not_empty(),
        doc="Assignor of the broker to use with group.protocol=consumer; unset, the broker chooses."),
    define("partition.assignment.strategy", LIST, ("range", "cooperative-sticky"),
        doc="Assignors that this member can use, best first: range, roundrobin, sticky, cooperative-sticky."),
    define("session.timeout.ms", INT, 45_000, at_least(1), importance=HIGH,
        doc="A member that sends no heartbeat for this long is taken for dead."),
    define("heartbeat.interval.ms", INT, 3_000, at_least(1), importance=HIGH,
        doc="How often heartbeats are sent; a third of session.timeout.ms at most."),
    define("max.poll.interval.ms", INT, 300_000, at_least(1),
        doc="A member that does not poll for this long leaves its group, as its records make no progress."),
    define("enable.auto.commit", BOOLEAN, True,
        doc="Whether offsets are committed regularly: only of records that an earlier poll handed out."),
    define("auto.commit.interval.ms", INT, 5_000, at_least(0), importance=LOW,
        doc="How often."),
    define("key.deserializer", CLASS, None, importance=HIGH,
        doc="Function that turns the bytes of a key into an object; not called for a missing key. Unset: bytes."),
    define("value.deserializer", CLASS, None, importance=HIGH,
        doc="Function that turns the bytes of a value into an object; not called for a missing value. Unset: bytes."),
    define("interceptor.classes", CLASS, (), importance=LOW,
        doc="Objects that see records before they are handed out (on_consume) and offsets once they are committed "
            "(on_commit)."),
    accept("share.acknowledgement.mode", STRING, "implicit", one_of("implicit", "explicit"),
        doc="How records of share groups are acknowledged."),
)
