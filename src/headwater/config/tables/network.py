"""Broker configs about who the broker is, its sockets, limits and quotas."""

from headwater.config.definitions import INT_MAX, ConfigDef, at_least, define, one_of
from headwater.config.tables.vocabulary import CLUSTER_WIDE, HIGH, INT, LONG, LOW, PER_BROKER, STRING

# Two lines a row read best as a table; the formatter would make six of them.
# fmt: off
NETWORK: tuple[ConfigDef, ...] = (
    define("node.id", INT, 1, at_least(0), importance=HIGH,
        doc="Number of this broker, unique in its cluster. Given as broker.id as well, both must "
            "agree. Kafka has no default; a single broker here is node 1."),
    define("broker.id", INT, -1, importance=HIGH,
        doc="Older name of node.id; -1 means that node.id decides."),
    define("broker.rack", STRING, None,
        doc="Rack or zone that this broker stands in; replicas of a partition are spread over racks."),
    define("listeners", STRING, "PLAINTEXT://:9092", importance=HIGH, update=PER_BROKER,
        doc="Addresses to listen on, as NAME://host:port, separated by commas. An empty host means "
            "every interface; port 0 means any free port."),
    define("advertised.listeners", STRING, None, importance=HIGH,
        doc="Addresses told to clients, where they differ from listeners, for example behind a proxy. "
            "Unset: the same as listeners."),
    define("listener.security.protocol.map", STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", importance=LOW,
        update=PER_BROKER,
        doc="Which protocol (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL) each listener name speaks, as "
            "NAME:PROTOCOL pairs."),
    define("inter.broker.listener.name", STRING, None,
        doc="Listener that brokers use among themselves. Unset: the first one that speaks "
            "security.inter.broker.protocol."),
    define("security.inter.broker.protocol", STRING, "PLAINTEXT",
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        doc="Protocol that brokers speak among themselves when inter.broker.listener.name is unset."),
    define("socket.listen.backlog.size", INT, 50, at_least(1),
        doc="Connections that may wait to be accepted. The kernel caps it at net.core.somaxconn."),
    define("socket.receive.buffer.bytes", INT, -1, importance=HIGH,
        doc="Receive buffer (SO_RCVBUF) of client sockets; -1 leaves it to the system. Ours: -1, as Kafka's 100 KiB "
            "keeps the system from growing it and about halves what one connection can send."),
    define("socket.send.buffer.bytes", INT, -1, importance=HIGH,
        doc="Send buffer (SO_SNDBUF) of client sockets; -1 leaves it to the system. Ours: -1, as above."),
    define("socket.request.max.bytes", INT, 104_857_600, at_least(1), importance=HIGH,
        doc="Largest request. A longer or negative length closes the connection before anything is "
            "allocated. Only Produce may be as large: other requests have bounds of 128 KiB to 8 MiB."),
    define("socket.connection.setup.timeout.ms", LONG, 10_000,
        doc="How long a connection from this broker to another may take to open at first."),
    define("socket.connection.setup.timeout.max.ms", LONG, 30_000,
        doc="Limit up to which the time to open a connection grows after repeated failures."),
    define("max.connections", INT, INT_MAX, at_least(0), update=CLUSTER_WIDE,
        doc="Connections that this broker holds at once, over all listeners."),
    define("max.connections.per.ip", INT, INT_MAX, at_least(0), update=CLUSTER_WIDE,
        doc="Connections held at once from one address."),
    define("max.connections.per.ip.overrides", STRING, "", update=CLUSTER_WIDE,
        doc="Limits for single addresses or host names, as host:count pairs, separated by commas."),
    define("max.connection.creation.rate", INT, INT_MAX, at_least(0), update=CLUSTER_WIDE,
        doc="New connections accepted in a second."),
    define("connections.max.idle.ms", LONG, 600_000,
        doc="A connection without traffic for this long is closed, also while a request of it waits."),
    define("connection.failed.authentication.delay.ms", INT, 100, at_least(0), importance=LOW,
        doc="Pause before a connection that failed to authenticate is closed; slows down guessing."),
    define("connections.max.reauth.ms", LONG, 0,
        doc="Longest life of a SASL session before the client must authenticate again; 0 means no "
            "limit."),
    define("queued.max.requests", INT, 500, at_least(1), importance=HIGH,
        doc="Requests read but not yet answered, over all connections, before no more are read."),
    define("queued.max.request.bytes", LONG, -1,
        doc="Bytes of requests read but not yet answered before no more are read; -1 means no limit."),
    define("request.timeout.ms", INT, 30_000, importance=HIGH,
        doc="How long a request that this broker sends to another may stay unanswered."),
    define("fetch.max.bytes", INT, 57_671_680, at_least(1024),
        doc="Most bytes in one answer to a fetch, whatever the client asks for; one whole batch is "
            "sent even if larger."),
    define("max.incremental.fetch.session.cache.slots", INT, 1000, at_least(0),
        doc="Fetch sessions kept for clients that ask only for what changed."),
    define("max.request.partition.size.limit", INT, 2000, at_least(1),
        doc="Partitions described in one answer to DescribeTopicPartitions."),
    define("background.threads", INT, 10, at_least(1), importance=HIGH, update=CLUSTER_WIDE,
        doc="Threads for work that must not hold up requests: flushing, deleting files, reading cold "
            "data."),
    define("quota.window.num", INT, 11, at_least(1), importance=LOW,
        doc="Samples kept to work out a client's rate for its quota."),
    define("quota.window.size.seconds", INT, 1, at_least(1), importance=LOW,
        doc="Length of one sample of a client's rate."),
    define("controller.quota.window.num", INT, 11, at_least(1), importance=LOW,
        doc="Samples kept to work out the rate of topic and partition changes for their quota."),
    define("controller.quota.window.size.seconds", INT, 1, at_least(1), importance=LOW,
        doc="Length of one sample of the rate of topic and partition changes."),
    define("metrics.num.samples", INT, 2, at_least(1), importance=LOW,
        doc="Samples kept for a rate or an average among the metrics."),
    define("metrics.sample.window.ms", LONG, 30_000, at_least(1), importance=LOW,
        doc="Length of one sample of a metric."),
    define("telemetry.max.bytes", INT, 1_048_576, at_least(1), importance=LOW,
        doc="Largest set of metrics that a client may push to the broker."),
)
