"""Configs of a producer: what is gathered into batches, how they are sent, and what is promised about them."""

from headwater.config.definitions import INT_MAX, ConfigDef, at_least, between, define, not_empty, one_of, only
from headwater.config.tables.vocabulary import BOOLEAN, CLASS, HIGH, INT, LONG, LOW, STRING

# Two lines a row read best as a table; the formatter would make six of them.
# fmt: off
PRODUCER_ROWS: tuple[ConfigDef, ...] = (
    define("acks", STRING, "all", one_of("all", "-1", "0", "1"), importance=LOW,
        doc="Who must have a record before it counts as sent: nobody (0), the leader (1), all replicas in sync (all)."),
    define("batch.size", INT, 16_384, at_least(0),
        doc="Bytes of records of one partition that are gathered into one batch; a larger record is a batch alone."),
    define("linger.ms", LONG, 5, at_least(0),
        doc="How long a batch that is not full waits for more records."),
    define("buffer.memory", LONG, 33_554_432, at_least(0), importance=HIGH,
        doc="Bytes of records that may wait to be sent or acknowledged; then send waits for up to max.block.ms."),
    define("max.block.ms", LONG, 60_000, at_least(0),
        doc="How long send may wait for memory or for word of its topic, and how long transactional calls may take."),
    define("max.request.size", INT, 1_048_576, at_least(0),
        doc="Most bytes of records in one request; a single record larger than that is refused."),
    define("max.in.flight.requests.per.connection", INT, 5, at_least(1), importance=LOW,
        doc="Requests sent to a broker and not answered yet. More than one can break the order of records when a "
            "request is tried again, unless enable.idempotence keeps it; that needs 5 at most."),
    define("retries", INT, INT_MAX, between(0, INT_MAX), importance=HIGH,
        doc="How often a batch is sent again after an error that may pass; delivery.timeout.ms is the better limit."),
    define("delivery.timeout.ms", INT, 120_000, at_least(0),
        doc="How long after send a record is acknowledged or fails. Not below linger.ms plus request.timeout.ms."),
    define("enable.idempotence", BOOLEAN, True, importance=LOW,
        doc="Whether each record is written once and in order, however often it was sent. Needs acks=all, retries and "
            "5 requests in flight at most: with others it is switched off, unless it was asked for."),
    define("transactional.id", STRING, None, not_empty(), importance=LOW,
        doc="Name under which transactions are written; whoever takes it later ends those of whoever had it before."),
    define("transaction.timeout.ms", INT, 60_000, at_least(1), importance=LOW,
        doc="How long a transaction may stay open before its coordinator aborts it."),
    define("transaction.two.phase.commit.enable", BOOLEAN, False,
        only(False, "false, as transactions are not prepared here"), importance=LOW,
        doc="Whether transactions take part in a two-phase commit."),
    define("compression.type", STRING, "none", one_of("none", "gzip", "snappy", "lz4", "zstd"), importance=HIGH,
        doc="How batches are compressed."),
    define("compression.gzip.level", INT, -1, between(-1, 9),
        doc="From 1 (fast) to 9 (small); -1 leaves it to the library."),
    define("compression.lz4.level", INT, 9, between(1, 17),
        doc="From 1 (fast) to 17 (small)."),
    define("compression.zstd.level", INT, 3, between(-131_072, 22),
        doc="From -131072 (fast) to 22 (small)."),
    define("key.serializer", CLASS, None, importance=HIGH,
        doc="Function that turns a key into bytes; None stays None. Unset: keys are bytes, text (UTF-8) or None."),
    define("value.serializer", CLASS, None, importance=HIGH,
        doc="Function that turns a value into bytes; None stays None. Unset: values are bytes, text (UTF-8) or None."),
    define("partitioner.class", CLASS, None,
        doc="Who chooses a record's partition: sticky (by the key's hash, murmur2, and without a key one partition "
            "for a batch at a time), round_robin, or a function of topic, key, value and the number of partitions. "
            "Unset: sticky."),
    define("partitioner.ignore.keys", BOOLEAN, False,
        doc="Whether records with a key are spread like those without."),
    define("partitioner.adaptive.partitioning.enable", BOOLEAN, True, importance=LOW,
        doc="Whether partitions that more waits for get fewer of the records without a key."),
    define("partitioner.availability.timeout.ms", LONG, 0, at_least(0), importance=LOW,
        doc="After how long a broker that takes no requests gets none of the records without a key; 0 means never. "
            "Needs partitioner.adaptive.partitioning.enable."),
    define("interceptor.classes", CLASS, (), importance=LOW,
        doc="Objects that see each record before it is sent (on_send) and what became of it (on_acknowledgement)."),
    define("metadata.max.idle.ms", LONG, 300_000, at_least(5_000), importance=LOW,
        doc="A topic that nothing was sent to for this long is asked about no more; the next record has to wait for "
            "word of it."),
)
