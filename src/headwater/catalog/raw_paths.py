"""Routing on the path as it was sent, so that a name may contain what separates the parts of a path.

Servers decode a path before an app sees it, which makes two parts of `a%2Fb`. Here the app routes on the raw path, and
each part is decoded on its own: percent signs as everywhere, and `+` as a space, as Java's clients write one.
"""

import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, TypeAlias
from urllib.parse import unquote_plus

from headwater.catalog.names import Name, checked_level, checked_namespace

_SEPARATOR: Final = "\x1f"
_BROKEN_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")

_Scope: TypeAlias = MutableMapping[str, Any]
_App: TypeAlias = Callable[[_Scope, Any, Any], Awaitable[None]]


class RawPaths:
    """ASGI middleware: the app sees the raw path."""

    def __init__(self, app: _App) -> None:
        self._app = app

    async def __call__(self, scope: _Scope, receive: Any, send: Any) -> None:
        """Hands a request on."""
        raw = scope.get("raw_path")
        if raw:
            scope = {**scope, "path": raw.partition(b"?")[0].decode("latin-1")}
        await self._app(scope, receive, send)


def part_of_path(text: str) -> str:
    """One part of a path, decoded; ValueError when it is broken."""
    if _BROKEN_ESCAPE.search(text):
        raise ValueError(f"{text!r:.100} in the path is not percent-encoded: two hex digits follow a percent sign")
    try:
        # A server may hand on bytes beyond ASCII that were never encoded.
        return unquote_plus(text.encode("latin-1").decode(), errors="strict")
    except UnicodeDecodeError:
        raise ValueError(f"{text!r:.100} in the path is not UTF-8") from None


def namespace_of_path(text: str) -> Name:
    """The namespace that a part of a path names; its levels are separated by the unit separator."""
    return checked_namespace(part_of_path(text).split(_SEPARATOR))


def table_of_path(namespace: str, table: str) -> Name:
    """The table that two parts of a path name."""
    return (*namespace_of_path(namespace), checked_level(part_of_path(table)))


def namespace_of_query(text: str) -> Name:
    """The namespace in a parameter of a query, which is decoded already."""
    return checked_namespace(text.split(_SEPARATOR))
