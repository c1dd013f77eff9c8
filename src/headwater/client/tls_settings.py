"""From settings by Kafka's names (`ssl.*`) to the TLS of Python's ssl module. Stores are PEM, in files or as text.

What Java alone can do is refused by name, in `config/client.py`.
"""

import os
import ssl
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from headwater.config.errors import ConfigError

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_SUITES_OF_TLS_1_3: Final = ("TLS_AES_", "TLS_CHACHA20_")
# What is called otherwise by OpenSSL than by Java, in this order.
_OPENSSL_NAMES: Final = (
    ("TLS_RSA_WITH_", ""),
    ("TLS_", ""),
    ("_WITH_", "_"),
    ("AES_", "AES"),
    ("_CBC", ""),
    ("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305"),
    ("_", "-"),
)


def tls_context(values: Mapping[str, Any]) -> ssl.SSLContext:
    """TLS as these settings want it; `ConfigError` says what cannot be used."""
    try:
        context = ssl.create_default_context(
            cafile=_one_of_two(values, "ssl_truststore_location", "ssl_truststore_certificates"),
            cadata=values["ssl_truststore_certificates"],
        )
    except OSError as error:
        raise _unusable("ssl.truststore.location or ssl.truststore.certificates", error) from error
    _show_certificate(context, values)
    _choose_versions(context, values)
    if values["ssl_cipher_suites"]:
        _choose_ciphers(context, values["ssl_cipher_suites"])
    context.check_hostname = bool(values["ssl_endpoint_identification_algorithm"])
    return context


def _show_certificate(context: ssl.SSLContext, values: Mapping[str, Any]) -> None:
    """Has the client show who it is, if it was given a certificate."""
    location = _one_of_two(values, "ssl_keystore_location", "ssl_keystore_certificate_chain")
    chain, key = values["ssl_keystore_certificate_chain"], values["ssl_keystore_key"]
    if (chain is None) != (key is None):
        raise ConfigError("ssl.keystore.certificate.chain and ssl.keystore.key belong together. Set both or neither.")

    def password() -> str:
        # Without a function OpenSSL would ask whoever sits at the terminal.
        if values["ssl_key_password"] is None:
            raise ConfigError("the private key is encrypted: set ssl.key.password.")
        return str(values["ssl_key_password"])

    try:
        if location is not None:
            context.load_cert_chain(location, password=password)
        elif chain is not None:
            with _file_of(f"{key}\n{chain}\n") as written:
                context.load_cert_chain(written, password=password)
    except OSError as error:
        raise _unusable("ssl.keystore.location or ssl.keystore.key", error) from error


def _choose_versions(context: ssl.SSLContext, values: Mapping[str, Any]) -> None:
    enabled = sorted(_VERSIONS[name] for name in values["ssl_enabled_protocols"])
    if not enabled:
        raise ConfigError("ssl.enabled.protocols is empty: name TLSv1.2, TLSv1.3 or both.")
    newest = _VERSIONS.get(values["ssl_protocol"], enabled[-1])
    context.minimum_version, context.maximum_version = enabled[0], min(enabled[-1], newest)
    if context.minimum_version > context.maximum_version:
        raise ConfigError(
            f"ssl.protocol = {values['ssl_protocol']} is older than all of ssl.enabled.protocols. Remove one of them."
        )


def _choose_ciphers(context: ssl.SSLContext, suites: Sequence[str]) -> None:
    """Suites by Java's names or OpenSSL's. They are TLSv1.2's, and so is what is spoken with them."""
    if newer := [suite for suite in suites if suite.startswith(_SUITES_OF_TLS_1_3)]:
        raise ConfigError(
            f"ssl.cipher.suites names {', '.join(newer)}, and Python's ssl cannot choose among the suites of TLSv1.3. "
            "Name those of TLSv1.2, or none; ssl.enabled.protocols = TLSv1.3 has only good ones."
        )
    for suite in suites:
        try:
            context.set_ciphers(_openssl_name(suite))
        except ssl.SSLError:
            raise ConfigError(f"ssl.cipher.suites names {suite}, which this Python's OpenSSL does not have.") from None
    context.set_ciphers(":".join(_openssl_name(suite) for suite in suites))
    if context.minimum_version == ssl.TLSVersion.TLSv1_3:
        raise ConfigError("ssl.cipher.suites names suites of TLSv1.2, which ssl.enabled.protocols leaves out.")
    context.maximum_version = ssl.TLSVersion.TLSv1_2


def _openssl_name(suite: str) -> str:
    if suite.startswith("TLS_"):
        for java, openssl in _OPENSSL_NAMES:
            suite = suite.replace(java, openssl)
    return suite


def _one_of_two(values: Mapping[str, Any], location: str, text: str) -> str | None:
    """The file that is named, where the same is not given as text too."""
    for name in (location, text):
        # OpenSSL would take the system's certificates for an empty one: more than was to be trusted.
        if values[name] is not None and not values[name].strip():
            raise ConfigError(f"{name.replace('_', '.')} is empty: give it a value, or leave it out.")
    found: str | None = values[location]
    if found is not None and values[text] is not None:
        names = f"{location} and {text}".replace("_", ".")
        raise ConfigError(f"{names} say the same thing twice. Remove one of them.")
    return found


def _unusable(names: str, error: OSError) -> ConfigError:
    return ConfigError(f"{names} cannot be used ({error.strerror or error}): it is PEM here.")


@contextmanager
def _file_of(pem: str) -> Iterator[str]:
    """A file that nobody else may read, for as long as it takes: OpenSSL takes keys by no other way here."""
    descriptor, name = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(pem)
        yield name
    finally:
        os.unlink(name)
