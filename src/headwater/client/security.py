"""How a connection proves who is on either end: the hooks for TLS and SASL. Mechanisms plug in here.

TLS is an `ssl.SSLContext`, made by whoever knows the certificates. SASL is an async callable that is given the fresh
connection, versions already negotiated, before anybody else may use it: it sends SaslHandshake and SaslAuthenticate
through `connection.send` and raises what it thinks of the answers.

    async def plain(connection: Connection) -> None:
        await connection.send(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, timeout_s=5)
        ...

    Security(tls=ssl.create_default_context(cafile="ca.pem"), sasl=plain)
"""

import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from headwater.client.connection import Connection

Authenticate: TypeAlias = Callable[["Connection"], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """TLS, SASL, both or neither (plaintext)."""

    tls: ssl.SSLContext | None = None
    """Encrypts every connection; None speaks plaintext."""
    server_hostname: str | None = None
    """The name that the brokers' certificates must carry; None: the host that each connection was made to."""
    sasl: Authenticate | None = None
    """Run on every fresh connection before its first use."""


def tls_failure(error: ssl.SSLError) -> str:
    """Why a TLS handshake failed, for people, with what to look at next."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message}): is the right CA configured?"
    reason = (error.reason or str(error)).lower().replace("_", " ")
    return f"the TLS handshake failed ({reason}): is it a TLS listener?"
