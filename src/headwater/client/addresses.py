"""Where brokers listen, and how people write it down. No I/O: names are not looked up here."""

from typing import Final, NamedTuple

DEFAULT_PORT: Final = 9092


class Address(NamedTuple):
    """Where a broker listens.

    >>> str(Address("localhost", 9092))
    'localhost:9092'
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bootstrap(text: str) -> list[Address]:
    """The addresses in `host:port,host:port`; a missing port is 9092.

    >>> parse_bootstrap("localhost:9092,[::1]:9093,kafka")
    [Address(host='localhost', port=9092), Address(host='::1', port=9093), Address(host='kafka', port=9092)]
    """
    addresses = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        host, separator, port = part.rpartition(":")
        if not separator or port.endswith("]"):
            host, port = part, str(DEFAULT_PORT)
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"{part!r} is not HOST:PORT")
        addresses.append(Address(host.removeprefix("[").removesuffix("]"), int(port)))
    if not addresses:
        raise ValueError("no address given: use HOST:PORT")
    return addresses
