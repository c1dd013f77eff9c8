"""`security.protocol` decides, in every client: what it cannot honour is refused, never sent in plaintext instead."""

import ssl
from collections.abc import Callable

import pytest

import headwater
from headwater import aio
from headwater.client.configured import connection_settings
from headwater.client.connection import Connection
from headwater.client.security import Security
from headwater.config.client import ADMIN, resolve
from headwater.config.errors import ConfigError
from headwater.lake.datasource.brokers import Brokers

CLIENTS: dict[str, Callable[[dict[str, object]], object]] = {
    "aio producer": aio.Producer.from_config,
    "aio consumer": aio.Consumer.from_config,
    "aio admin": aio.Admin.from_config,
    "producer": headwater.Producer.from_config,
    "consumer": headwater.Consumer.from_config,
    "admin": headwater.Admin.from_config,
    "lake": lambda settings: Brokers(str(settings.pop("bootstrap.servers")), settings),
}


async def prove_nothing(_: Connection) -> None:
    raise AssertionError("no connection is made here")


TLS = ssl.create_default_context()


def security_for(**settings: object) -> Security:
    return connection_settings(resolve(ADMIN, settings), client_id="test").security


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (
            {"security_protocol": "SASL_SSL", "security": Security(tls=TLS)},
            r"security\.protocol = SASL_SSL needs a mechanism of SASL",
        ),
        ({"security_protocol": "SASL_PLAINTEXT", "security": Security()}, "needs a mechanism of SASL"),
        ({"security_protocol": "sasl_ssl"}, "SASL_SSL needs a mechanism of SASL"),
        (
            {"security_protocol": "SSL", "security": Security(tls=TLS, sasl=prove_nothing)},
            r"SSL does not authenticate, so security=Security\(sasl=\.\.\.\) would be ignored",
        ),
        ({"security": Security(sasl=prove_nothing)}, "PLAINTEXT does not authenticate"),
        (
            {"security_protocol": "PLAINTEXT", "security": Security(tls=TLS)},
            r"PLAINTEXT does not encrypt, so security=Security\(tls=\.\.\.\) would be ignored\. "
            r"Set security\.protocol to SSL, or remove",
        ),
        (
            {"security_protocol": "SASL_PLAINTEXT", "security": Security(tls=TLS, sasl=prove_nothing)},
            r"SASL_PLAINTEXT does not encrypt.* Set security\.protocol to SASL_SSL",
        ),
        (
            {"security": Security(server_hostname="kafka.example")},
            r"Security\(server_hostname=\.\.\.\) would be ignored",
        ),
        (
            {"ssl_truststore_location": "ca.pem"},
            r"PLAINTEXT does not encrypt, so ssl\.truststore\.location would be ignored",
        ),
        ({"security_protocol": "PLAINTEXT", "ssl_keystore_location": "me.pem"}, r"ssl\.keystore\.location would be"),
        (
            {"security_protocol": "SSL", "security": Security(tls=TLS), "ssl_truststore_location": "ca.pem"},
            r"ssl\.truststore\.location would be ignored, as .* brings a TLS context of its own",
        ),
        ({"security_protocol": "SSL", "ssl_truststore_location": ""}, r"ssl\.truststore\.location is empty"),
        ({"security_protocol": "SSL", "ssl_truststore_certificates": " "}, r"ssl\.truststore\.certificates is empty"),
        ({"security_protocol": "TLS"}, r"security\.protocol = 'TLS' is not allowed"),
        ({"sasl_mechanism": "PLAIN"}, r"sasl\.mechanism is not taken yet"),
    ],
)
def test_what_cannot_be_honoured_is_refused(settings: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        security_for(**settings)


@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_refuses_to_fall_back_to_plaintext(client: str) -> None:
    settings = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SASL_SSL", "security": Security()}
    with pytest.raises(ConfigError, match="SASL_SSL needs a mechanism of SASL"):
        CLIENTS[client](settings)


def test_sasl_over_tls_takes_the_tls_of_the_settings() -> None:
    """This combination spoke plaintext before: the object has no TLS context, and it alone was looked at."""
    found = security_for(security_protocol="SASL_SSL", security=Security(sasl=prove_nothing, server_hostname="kafka"))
    assert found.tls is not None
    assert (found.tls.verify_mode, found.tls.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert (found.sasl, found.server_hostname) == (prove_nothing, "kafka")
    assert security_for(security_protocol="SSL", security=Security()).tls is not None


def test_an_object_says_enough_where_no_protocol_is_set() -> None:
    assert security_for(security=Security(tls=TLS)).tls is TLS
    both = security_for(security=Security(tls=TLS, sasl=prove_nothing))
    assert (both.tls, both.sasl) == (TLS, prove_nothing)


def test_what_fits_is_taken_as_it_is() -> None:
    assert security_for(security_protocol="SSL", security=Security(tls=TLS)).tls is TLS
    assert security_for(security_protocol="SASL_PLAINTEXT", security=Security(sasl=prove_nothing)).tls is None
    assert security_for(security_protocol="PLAINTEXT", security=Security()) == Security()
    assert security_for(ssl_endpoint_identification_algorithm="https", ssl_protocol="TLSv1.3") == Security()
