"""`headwater up`: one broker in the foreground of a process of its own, until a signal ends it."""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import uvloop

from headwater.broker.broker import Broker
from headwater.broker.services.storage import StartupError
from headwater.config import BrokerConfig
from headwater.sparing_log import SparingHandler
from headwater.terminal_text import PrintableFormatter

logger = logging.getLogger(__name__)

_TEMPORARY: Final = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 -- nothing is written there

__all__ = ["BrokerAddress", "StartupError", "run_foreground"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAddress:
    """Where a started broker can be reached and keeps its data."""

    host: str
    port: int
    log_dirs: tuple[str, ...]


def run_foreground(
    config: BrokerConfig, *, on_ready: Callable[[BrokerAddress], None], dirs_are_meant: bool = False
) -> int:
    """Runs a broker until SIGINT or SIGTERM, then stops it cleanly; the exit code. StartupError if it cannot start.

    Dirs among the temporary files are warned of, unless they are meant: files for Kafka name one there, which is easily
    left as it is. A broker that gives up, as its disks have failed, ends too: with 1.
    """
    handler = SparingHandler()
    handler.setFormatter(PrintableFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    return uvloop.run(_run(config, on_ready, dirs_are_meant=dirs_are_meant))


async def _run(config: BrokerConfig, on_ready: Callable[[BrokerAddress], None], *, dirs_are_meant: bool) -> int:
    _raise_file_limit()
    broker = Broker(config)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    starting = asyncio.ensure_future(broker.start())
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    await starting
    if not dirs_are_meant and (fleeting := fleeting_dirs(config.log_dirs)):
        logger.warning(
            "log.dirs has %s among the temporary files of this machine, which the system may remove: name a folder "
            "that lasts, with --data or log.dirs",
            ", ".join(fleeting),
        )
    # What was made at the start stays: the collector need not look at it again, and new garbage is rarely cyclic.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    on_ready(BrokerAddress(host=broker.host, port=broker.port, log_dirs=config.log_dirs))
    giving_up = asyncio.ensure_future(broker.gave_up.wait())
    await asyncio.wait((stopping, giving_up), return_when=asyncio.FIRST_COMPLETED)
    await broker.stop()
    return 1 if broker.gave_up.is_set() else 0


def fleeting_dirs(paths: Iterable[str]) -> list[str]:
    """Those that lie where the system keeps temporary files: gone after a restart, or after some days."""
    places = [os.path.realpath(place) for place in {tempfile.gettempdir(), *_TEMPORARY}]
    return [path for path in paths if any(os.path.realpath(path).startswith(f"{place}/") for place in places)]


def _raise_file_limit() -> None:
    """Takes all the open files that the system lets this process have."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
