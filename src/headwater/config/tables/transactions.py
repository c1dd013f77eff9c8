"""Broker configs about transactions and idempotent producers."""

from headwater.config.definitions import ConfigDef, at_least, define
from headwater.config.tables.vocabulary import BOOLEAN, CLUSTER_WIDE, HIGH, INT, LOW, SHORT

# Two lines a row read best as a table; the formatter would make six of them.
# fmt: off
TRANSACTIONS: tuple[ConfigDef, ...] = (
    define("transactional.id.expiration.ms", INT, 604_800_000, at_least(1), importance=HIGH,
        doc="How long a transactional id without a running transaction is remembered."),
    define("transaction.max.timeout.ms", INT, 900_000, at_least(1), importance=HIGH,
        doc="Longest transaction timeout that a producer may ask for."),
    define("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10_000, at_least(1),
        importance=LOW,
        doc="How often transactions that ran out of time are aborted."),
    define("transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3_600_000, at_least(1),
        importance=LOW,
        doc="How often expired transactional ids are removed."),
    define("transaction.partition.verification.enable", BOOLEAN, True, importance=LOW, update=CLUSTER_WIDE,
        doc="Refuse transactional records for partitions that were not added to the transaction."),
    define("transaction.two.phase.commit.enable", BOOLEAN, False, importance=LOW,
        doc="Allow transactions that an outside coordinator commits or aborts."),
    define("transaction.state.log.num.partitions", INT, 50, at_least(1), importance=HIGH,
        doc="Partitions of __transaction_state. Never change it once the topic exists."),
    define("transaction.state.log.replication.factor", SHORT, 3, at_least(1), importance=HIGH,
        doc="Replicas of __transaction_state."),
    define("transaction.state.log.min.isr", INT, 2, at_least(1), importance=HIGH,
        doc="Replicas of __transaction_state that must hold a write before it counts."),
    define("transaction.state.log.segment.bytes", INT, 104_857_600, at_least(1), importance=HIGH,
        doc="Segment size of __transaction_state; small ones load and compact faster."),
    define("transaction.state.log.load.buffer.size", INT, 5_242_880, at_least(1), importance=HIGH,
        doc="Bytes read at a time when the state of transactions is loaded."),
    define("add.partitions.to.txn.retry.backoff.ms", INT, 20, at_least(1), importance=HIGH,
        doc="Pause before the broker tries again to add a partition to a transaction."),
    define("add.partitions.to.txn.retry.backoff.max.ms", INT, 100, at_least(0), importance=HIGH,
        doc="Longest time that the broker spends on such tries."),
    define("producer.id.expiration.ms", INT, 86_400_000, at_least(1), importance=LOW, update=CLUSTER_WIDE,
        doc="How long a partition remembers a producer that writes nothing, to recognise its "
            "duplicates."),
    define("producer.id.expiration.check.interval.ms", INT, 600_000, at_least(1), importance=LOW,
        internal=True,
        doc="How often forgotten producers are removed."),
)
