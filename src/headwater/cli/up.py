"""`headwater up` without Typer: reading plain arguments, making the config, running the broker.

Imports as little as it can, because its start is measured.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headwater.config import BrokerConfig

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 9092


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    """What `headwater up` was asked for; None leaves a value to the config file, or to the default."""

    host: str | None = None
    port: int | None = None
    data: str | None = None
    config: str | None = None
    settings: tuple[str, ...] = ()
    json: bool = False


_TAKES_VALUE: Final = {
    "--host": "host",
    "--port": "port",
    "--data": "data",
    "--config": "config",
    "-o": "settings",
}


def parse_plain(arguments: Sequence[str]) -> UpOptions | None:
    """Reads well-formed arguments; None for all else (help, mistakes), which Typer reads and explains.

    >>> parse_plain(["--port", "9093", "-o", "num.partitions=3"])
    UpOptions(host=None, port=9093, data=None, config=None, settings=('num.partitions=3',), json=False)
    >>> parse_plain(["--prot", "9093"])
    """
    found: dict[str, Any] = {"settings": ()}
    rest = iter(arguments)
    for argument in rest:
        if argument == "--json":
            found["json"] = True
            continue
        name, separator, value = argument.partition("=")
        if name not in _TAKES_VALUE:
            return None
        if not separator or name == "-o":
            value = next(rest, "") if argument == name else ""
        if not value or value.startswith("-"):
            return None
        if name == "-o":
            found["settings"] += (value,)
        elif name == "--port" and not (value.isascii() and value.isdigit() and int(value) < 65536):
            return None
        else:
            found[_TAKES_VALUE[name]] = int(value) if name == "--port" else value
    return UpOptions(**found)


def run(options: UpOptions) -> int:
    """Runs the broker until SIGINT or SIGTERM and returns the exit code; a refusal is one sentence."""
    from headwater.config import ConfigError

    try:
        config = broker_config(options)
    except ConfigError as error:
        return _refuse(str(error), 2)
    from headwater.broker.app import BrokerAddress, StartupError, run_foreground

    data = ",".join(config.log_dirs)

    def announce(address: BrokerAddress) -> None:
        _announce(f"{address.host}:{address.port}", data, as_json=options.json)

    try:
        return run_foreground(config, on_ready=announce, dirs_are_meant=options.data is not None)
    except StartupError as error:
        return _refuse(str(error), 1)
    except ConfigError as error:
        return _refuse(str(error), 2)


def broker_config(options: UpOptions) -> "BrokerConfig":
    """The config file, with the command line's wishes on top and our defaults below."""
    from headwater.config import BrokerConfig

    given = _given_values(options)
    if not options.config or options.host or options.port is not None:
        host, port = options.host or DEFAULT_HOST, DEFAULT_PORT if options.port is None else options.port
        given.setdefault("listeners", f"PLAINTEXT://[{host}]:{port}" if ":" in host else f"PLAINTEXT://{host}:{port}")
    if options.config:
        from headwater.config.files import read_file

        given = read_file(options.config) | given
    if not given.keys() & {"log.dirs", "log.dir"}:
        given["log.dirs"] = default_data_dir(os.environ)
    given.setdefault("listeners", f"PLAINTEXT://{DEFAULT_HOST}:{DEFAULT_PORT}")
    return BrokerConfig.from_values(given)


def _given_values(options: UpOptions) -> dict[str, str]:
    """What the command line says in Kafka's own names; an `-o` says it more exactly than any other option."""
    from headwater.config import ConfigError

    given = {} if options.data is None else {"log.dirs": os.path.abspath(options.data)}
    for setting in options.settings:
        name, separator, value = setting.partition("=")
        if not separator or not name.strip():
            raise ConfigError(f"-o {setting} is not name=value")
        given[name.strip()] = value.strip()
    return given


def default_data_dir(environment: Mapping[str, str]) -> str:
    """Where the data of this user's broker lies, by the XDG rules.

    >>> default_data_dir({"XDG_DATA_HOME": "/home/ann/data"})
    '/home/ann/data/headwater'
    """
    base = environment.get("XDG_DATA_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(os.path.expanduser("~"), ".local", "share")
    return os.path.join(base, "headwater")


def _announce(address: str, data: str, *, as_json: bool) -> None:
    if as_json:
        import json

        line = json.dumps({"bootstrap": address, "data": data})
    else:
        line = f"headwater is ready at {address}, data in {data}"
    print(line, flush=True)


def _refuse(message: str, code: int) -> int:
    from headwater.terminal_text import printable

    print(printable(f"headwater: {message}", keep="\n\t"), file=sys.stderr)
    return code
