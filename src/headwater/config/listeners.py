"""Listener addresses, as `listeners` and `advertised.listeners` write them. Parses only; opens nothing."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from headwater.config.errors import ConfigError

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class Listener(NamedTuple):
    """One address: its name, what is spoken there, and where. An empty host means every interface."""

    name: str
    security_protocol: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_protocol_map(text: str) -> dict[str, str]:
    """`listener.security.protocol.map` as a mapping from listener name to protocol."""
    pairs: dict[str, str] = {}
    for item in _items(text):
        name, separator, protocol = (part.strip() for part in item.partition(":"))
        if not name or not separator or protocol.upper() not in _PROTOCOLS:
            raise ConfigError(
                f"listener.security.protocol.map = {text!r} is not allowed: {item!r} must be NAME:PROTOCOL "
                f"with a protocol out of {', '.join(_PROTOCOLS)}."
            )
        pairs[name.upper()] = protocol.upper()
    return pairs


def parse_listeners(config: str, text: str, protocols: Mapping[str, str]) -> tuple[Listener, ...]:
    """The listeners that the value `text` of `config` names, in order."""
    listeners = tuple(_parse_listener(config, item, protocols) for item in _items(text))
    if not listeners:
        raise ConfigError(f"{config} = {text!r} is not allowed: it must name at least one NAME://host:port.")
    names = [listener.name for listener in listeners]
    if len(set(names)) < len(names):
        raise ConfigError(f"{config} = {text!r} is not allowed: each listener needs a name of its own.")
    return listeners


def _parse_listener(config: str, item: str, protocols: Mapping[str, str]) -> Listener:
    scheme, separator, address = item.partition("://")
    host, colon, port = address.rpartition(":")
    name = scheme.strip().upper()
    bracketed = host.startswith("[") and host.endswith("]")
    port_is_valid = port.isascii() and port.isdigit() and int(port) <= 65535
    if not (name and separator and colon and port_is_valid) or (":" in host and not bracketed):
        raise ConfigError(
            f"{config}: {item!r} is not an address. Write NAME://host:port, for example "
            "PLAINTEXT://127.0.0.1:9092; an IPv6 host stands in brackets."
        )
    if name not in protocols:
        raise ConfigError(
            f"{config}: nothing says what the listener {name} speaks. Call it one of "
            f"{', '.join(_PROTOCOLS)}, or name it in listener.security.protocol.map."
        )
    return Listener(
        name=name,
        security_protocol=protocols[name],
        host=host[1:-1] if bracketed else host,
        port=int(port),
    )


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
