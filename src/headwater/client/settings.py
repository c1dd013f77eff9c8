"""What every client can be told about its connections. Names are Kafka's with `_` for `.`, and so are the defaults."""

from dataclasses import dataclass, field

from headwater.client.security import Security

SYSTEM_SIZED = -1
"""Leaves a socket buffer to the system, which grows it with the traffic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """How a client connects, waits, and tries again.

    >>> ConnectionSettings(client_id="billing", request_timeout_ms=5_000).request_timeout_ms
    5000
    """

    client_id: str = "headwater"
    client_rack: str = ""
    """The rack that this client runs in, for reading from the closest replica."""
    request_timeout_ms: int = 30_000
    """How long an answer may take; then its connection is closed."""
    socket_connection_setup_timeout_ms: int = 10_000
    """How long connecting, TLS, SASL and the exchange of versions may take together."""
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000
    """How old the picture of the cluster may get before it is asked for again."""
    allow_auto_create_topics: bool = True
    """Whether asking about a watched topic may create it, on brokers that do so."""
    connections_max_idle_ms: int = 540_000
    """A connection that was not used for so long is closed; a negative value keeps all."""
    send_buffer_bytes: int = SYSTEM_SIZED
    receive_buffer_bytes: int = SYSTEM_SIZED
    security: Security = field(default_factory=Security)
