"""From settings by Kafka's names to what connections are made with. The only reader of the configs about security.

`security.protocol` decides whether connections are encrypted and authenticated. A combination of settings that cannot
be honoured is refused: a client that falls back to plaintext sends passwords and records where anybody may read them.
"""

from dataclasses import fields, replace
from typing import Final

from headwater.client.security import Security
from headwater.client.settings import ConnectionSettings
from headwater.config.client import Resolved
from headwater.config.errors import ConfigError

_NAMES: Final = frozenset(field.name for field in fields(ConnectionSettings)) - {"client_id", "security"}
_WITH_TLS: Final = ("SSL", "SASL_SSL")
_WITH_SASL: Final = ("SASL_PLAINTEXT", "SASL_SSL")


def connection_settings(values: Resolved, *, client_id: str) -> ConnectionSettings:
    """The settings about connections among those that `config.client.resolve` gave; `client_id` stands in for none."""
    given = {name: values[name] for name in _NAMES if name in values}
    return ConnectionSettings(client_id=values["client_id"] or client_id, security=_security(values), **given)


def _security(values: Resolved) -> Security:
    given = values["security"]
    if given is None:
        given = Security()
    elif not isinstance(given, Security):
        raise ConfigError(f"security = {given!r} is not allowed: it must be a headwater.client.security.Security.")
    protocol = _protocol(values, given)
    _check_sasl(protocol, given)
    if protocol not in _WITH_TLS:
        _check_no_tls(protocol, given, values)
        return given
    if given.tls is None:
        # Only a client that speaks TLS pays for this import.
        from headwater.client.tls_settings import tls_context

        return replace(given, tls=tls_context(values))
    if ignored := _tls_settings(values):
        raise ConfigError(
            f"{ignored[0]} would be ignored, as security=Security(tls=...) brings a TLS context of its own. "
            "Remove one of them."
        )
    return given


def _protocol(values: Resolved, given: Security) -> str:
    """`security.protocol`, or what a Security object with a TLS context means where it is not set."""
    if "security_protocol" not in values.asked and given.tls is not None:
        return "SSL" if given.sasl is None else "SASL_SSL"
    return str(values["security_protocol"]).upper()


def _check_sasl(protocol: str, given: Security) -> None:
    if protocol in _WITH_SASL and given.sasl is None:
        raise ConfigError(
            f"security.protocol = {protocol} needs a mechanism of SASL, and this client brings none yet: give a "
            "function that authenticates a fresh connection as security=Security(sasl=...), with the Security of "
            "headwater.client.security."
        )
    if protocol not in _WITH_SASL and given.sasl is not None:
        raise ConfigError(
            f"security.protocol = {protocol} does not authenticate, so security=Security(sasl=...) would be ignored. "
            "Set security.protocol to SASL_SSL, or to SASL_PLAINTEXT if nobody else can listen on the network."
        )


def _check_no_tls(protocol: str, given: Security, values: Resolved) -> None:
    """Nothing that asks for TLS may be ignored without a word."""
    if given.tls is not None:
        ignored = "security=Security(tls=...)"
    elif given.server_hostname is not None:
        ignored = "security=Security(server_hostname=...)"
    elif names := _tls_settings(values):
        ignored = names[0]
    else:
        return
    encrypted = "SASL_SSL" if protocol in _WITH_SASL else "SSL"
    raise ConfigError(
        f"security.protocol = {protocol} does not encrypt, so {ignored} would be ignored. "
        f"Set security.protocol to {encrypted}, or remove {ignored}."
    )


def _tls_settings(values: Resolved) -> list[str]:
    """Names of the settings of TLS that were given. One that repeats the default asks for nothing."""
    from headwater.config.tables.client_common import CLIENT_COMMON

    return [
        definition.name
        for definition in CLIENT_COMMON
        if definition.name.startswith("ssl.")
        and definition.attribute in values.asked
        and values[definition.attribute] != definition.default
    ]
