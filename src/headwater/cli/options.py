"""The options and arguments that several commands share, and how their values are read."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

if TYPE_CHECKING:
    from headwater.client import Client

DEFAULT_BOOTSTRAP = "localhost:9092"
_COMPLETION_TIMEOUT_S = 1.0


def complete_topic(ctx: typer.Context, incomplete: str) -> list[str]:
    """Topic names for the shell."""

    async def names(client: "Client") -> list[str]:
        from headwater.client.admin.topic_descriptions import list_topics

        return [topic.name for topic in await list_topics(client)]

    return complete_from(ctx, incomplete, names)


def complete_from(ctx: typer.Context, incomplete: str, names: "Callable[[Client], Awaitable[list[str]]]") -> list[str]:
    """Those names of a cluster that go on from `incomplete`; one that does not answer at once has none."""
    import asyncio

    from headwater.client import Client, ClientError

    async def ask() -> list[str]:
        async with asyncio.timeout(_COMPLETION_TIMEOUT_S), Client(_bootstrap_of(ctx)) as client:
            return await names(client)

    try:
        return [name for name in asyncio.run(ask()) if name.startswith(incomplete)]
    except (ClientError, OSError, ValueError, TimeoutError):
        return []


def _bootstrap_of(ctx: typer.Context) -> str:
    import os

    given: Any = ctx.params.get("bootstrap")
    return str(given or os.environ.get("HEADWATER_BOOTSTRAP") or DEFAULT_BOOTSTRAP)


def _checked_bootstrap(value: str) -> str:
    from headwater.client.client import parse_bootstrap

    try:
        parse_bootstrap(value)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return value


Bootstrap: TypeAlias = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        envvar="HEADWATER_BOOTSTRAP",
        help="A broker of the cluster; several separated by commas.",
        callback=_checked_bootstrap,
    ),
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Write JSON for machines.")]
Topic: TypeAlias = Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=complete_topic, show_default=False)]


def pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """`name=value` options as a mapping; a usage error names the one that is none."""
    found = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise typer.BadParameter(f"{text!r} is not name=value", param_hint=option)
        found[name.strip()] = value
    return found


def timestamp_ms(text: str) -> int | None:
    """Epoch milliseconds of an ISO date or time (local where it names no zone); None when it is neither.

    >>> timestamp_ms("2024-01-01T00:00:00Z")
    1704067200000
    """
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return round(moment.astimezone(UTC).timestamp() * 1000)


def unescaped(text: str) -> bytes:
    r"""The bytes that `\n`, `\t`, `\0`, `\x41` and the like in an option stand for; all else as it is.

    >>> unescaped(r"\t")
    b'\t'
    """
    import re

    named = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}

    def replace(match: "re.Match[bytes]") -> bytes:
        escape = match[1].decode()
        return bytes([int(escape[1:], 16)]) if escape[0] == "x" else named[escape]

    return re.sub(rb"\\(x[0-9a-fA-F]{2}|[ntr0\\])", replace, text.encode("utf-8", "surrogateescape"))
