"""Who is let in: what is checked of every request before the catalog looks at it. Knows nothing of tables.

A server on loopback is open to every web page that a user of the machine visits, and to every program on it. A browser
sends another site's requests with that site's `Origin` and, after its name was pointed at this machine, with that
name as `Host`; it sends bodies without asking first only as forms and plain text. So all three are looked at. No
answer permits other origins (CORS). A token, where there is one, is compared before a byte of the body is read.
"""

import asyncio
import hmac
import json
import socket
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

MOST_BODY_BYTES: Final = 16 << 20
BODY_TIMEOUT_S: Final = 120.0
"""In this time a body must be here: 16 MiB need it on a line of a megabit a second."""
_BODIES_AT_ONCE: Final = 8
"""So many bodies of the largest size are kept in memory; further ones are asked to come later."""

_JSON: Final = "application/json"
ARROW: Final = "application/vnd.apache.arrow.stream"
_LEDGER: Final = "/headwater/"
_LOOPBACK_NAMES: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
_BODILESS: Final = frozenset({"GET", "HEAD", "DELETE", "OPTIONS"})
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorRules:
    """What a door lets in."""

    names: frozenset[str] = frozenset()
    """Names that this server has besides the address that a connection came to: `catalog`, `catalog.example:8181`."""
    token: str | None = None
    """What every request must carry as its bearer token."""
    most_body_bytes: int = MOST_BODY_BYTES
    body_timeout_s: float = BODY_TIMEOUT_S


class Door:
    """ASGI middleware that hands on only requests which the rules let in, with their whole body."""

    def __init__(self, app: App, rules: DoorRules) -> None:
        self._app = app
        self._rules = rules
        self._token = None if rules.token is None else f"bearer {rules.token}".encode()
        self._kept_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Checks one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"this app serves HTTP only, not {scope['type']}")
        headers = _Headers(scope["headers"])
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await refusal.send(send)
            return
        try:
            body = await self._body(receive)
        except _RefusedError as refused:
            await refused.refusal.send(send)
            return
        except _GoneError:
            return
        try:
            await self._app(scope, _replay(body, receive), send)
        finally:
            self._kept_bytes -= len(body)

    def _refusal(self, scope: Scope, headers: "_Headers") -> "Refusal | None":
        """Why a request is not let in, by its headers; None if it is."""
        hosts = headers.all(b"host")
        if len(hosts) != 1:
            return Refusal(400, "BadRequestException", "a request names the host that it is for, once")
        if not self._is_our_name(hosts[0], scope):
            return Refusal(
                403,
                "ForbiddenException",
                f"this catalog does not serve the host {hosts[0]!r}: ask for it by its address, or start it with "
                "--allow-host NAME",
            )
        foreign = _foreign_page(headers, scope, hosts[0])
        if foreign is not None:
            return Refusal(403, "ForbiddenException", foreign)
        if self._token is not None and not _is_token(self._token, headers.all(b"authorization")):
            return Refusal(
                401, "NotAuthorizedException", "this catalog belongs to a job: its token is missing or wrong"
            )
        return self._body_refusal(scope, headers)

    def _body_refusal(self, scope: Scope, headers: "_Headers") -> "Refusal | None":
        lengths = headers.all(b"content-length")
        has_body = bool(headers.all(b"transfer-encoding")) or any(length != "0" for length in lengths)
        if not has_body and scope["method"] in _BODILESS:
            return None
        kinds = headers.all(b"content-type")
        if has_body and (len(kinds) != 1 or not _is_accepted(kinds[0], scope["path"])):
            sent = f"{', '.join(kinds)!r:.200}" if kinds else "without a Content-Type"
            return Refusal(
                415,
                "UnsupportedMediaTypeException",
                f"a body is sent as {_JSON} (or {ARROW} for files), not {sent}",
            )
        if any(coding.lower() != "identity" for coding in headers.all(b"content-encoding")):
            return Refusal(415, "UnsupportedMediaTypeException", "a body is sent as it is, without Content-Encoding")
        if len(lengths) > 1 or any(not (length.isascii() and length.isdigit()) for length in lengths):
            return Refusal(400, "BadRequestException", "a request says the length of its body once, as a number")
        if any(len(length) > 15 or int(length) > self._rules.most_body_bytes for length in lengths):
            return self._too_large()
        return None

    def _is_our_name(self, host: str, scope: Scope) -> bool:
        server = scope.get("server") or ("127.0.0.1", None)
        name, port = _name_and_port(host.lower())
        if name is None:
            return False
        if name in self._rules.names or f"{name}:{port or 80}" in self._rules.names:
            return True
        if server[1] is not None and (port or _DEFAULT_PORTS.get(scope.get("scheme", "http"))) != server[1]:
            return False
        return name in _names_of(server[0])

    async def _body(self, receive: Receive) -> bytes:
        """The whole body. What it takes in memory counts as kept until the request is answered."""
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._rules.body_timeout_s):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        raise _GoneError
                    chunk = message.get("body", b"")
                    size += len(chunk)
                    self._kept_bytes += len(chunk)
                    chunks.append(chunk)
                    if size > self._rules.most_body_bytes:
                        raise _RefusedError(self._too_large())
                    if self._kept_bytes > _BODIES_AT_ONCE * self._rules.most_body_bytes:
                        words = "too many large requests at once: try again later"
                        raise _RefusedError(Refusal(503, "ServiceUnavailableException", words))
                    if not message.get("more_body", False):
                        return b"".join(chunks)
        except TimeoutError:
            self._kept_bytes -= size
            words = f"the body of the request did not come within {self._rules.body_timeout_s:g} s"
            raise _RefusedError(Refusal(408, "RequestTimeoutException", words)) from None
        except BaseException:
            self._kept_bytes -= size
            raise

    def _too_large(self) -> "Refusal":
        return Refusal(
            413,
            "PayloadTooLargeException",
            f"the body of a request has at most {self._rules.most_body_bytes} bytes: send less at once, or have the "
            "catalog's operator allow more (--max-body-bytes)",
        )


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer in Iceberg's form, after which the connection ends: nobody reads what may still come on it."""

    status: int
    kind: str
    words: str

    async def send(self, send: Send) -> None:
        """Answers."""
        error = {"error": {"message": self.words, "type": self.kind, "code": self.status}}
        body = json.dumps(error).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        if self.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class _RefusedError(Exception):
    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.words)
        self.refusal = refusal


class _GoneError(Exception):
    """The client has gone before its request was complete."""


class _Headers:
    """The headers of a request by name, in small letters."""

    def __init__(self, raw: Iterable[tuple[bytes, bytes]]) -> None:
        self._raw = [(name.lower(), value.decode("latin-1").strip()) for name, value in raw]

    def all(self, name: bytes) -> list[str]:
        """All values of a header."""
        return [value for known, value in self._raw if known == name]


def names_of_listener(host: str) -> frozenset[str]:
    """Names of a server that listens there: what it was told, and the machine's name where others can reach it."""
    if host in ("127.0.0.1", "localhost", "::1"):
        return frozenset()
    names = {socket.gethostname().lower()}
    with suppress(ValueError):
        # An address is compared with that of the connection.
        ip_address(host)
        return frozenset(names)
    return frozenset({*names, host.lower()} if host else names)


def allowed_name(text: str) -> str:
    """A name (or `name:port`) that an operator allows; ValueError for what no request can name.

    >>> allowed_name("Catalog.example")
    'catalog.example'
    """
    name, port = _name_and_port(text.lower())
    if name is None:
        raise ValueError(f"{text!r} is no host: write NAME or NAME:PORT, as clients have it in their URL")
    return name if port is None else f"{name}:{port}"


def _name_and_port(host: str) -> tuple[str | None, int | None]:
    """The two parts of a Host header; no name when it is none."""
    if host.startswith("["):
        name, bracket, rest = host.partition("]")
        name += bracket
        if not bracket or (rest and not rest.startswith(":")):
            return None, None
        port = rest[1:] if rest else None
    else:
        name, colon, rest = host.partition(":")
        port = rest if colon else None
    if not name or any(not (letter.isalnum() or letter in "-._[]:") for letter in name) or not name.isascii():
        return None, None
    if port is None:
        return name, None
    return (name, int(port)) if port.isascii() and port.isdigit() and len(port) < 6 else (None, None)


def _names_of(address: str) -> frozenset[str]:
    """What the address of a connection may be called."""
    try:
        found = ip_address(address)
    except ValueError:
        return frozenset({address.lower()})
    mapped = getattr(found, "ipv4_mapped", None) or found
    own = f"[{found}]" if found.version == 6 else str(found)
    names = {own, str(mapped) if mapped.version == 4 else own}
    return frozenset({*names, *_LOOPBACK_NAMES} if mapped.is_loopback else names)


def _foreign_page(headers: _Headers, scope: Scope, host: str) -> str | None:
    """Why a request is one that a browser sends for a page from elsewhere; None if it is not."""
    own = f"{scope.get('scheme', 'http')}://{host}".lower()
    for origin in headers.all(b"origin"):
        if origin.lower() != own:
            return f"this catalog takes no requests from pages of {origin!r:.200}"
    for site in headers.all(b"sec-fetch-site"):
        if site.lower() not in ("same-origin", "none"):
            return "this catalog takes no requests from pages of other sites"
    return None


def _is_token(token: bytes, given: list[str]) -> bool:
    if len(given) != 1:
        return False
    scheme, _, rest = given[0].partition(" ")
    found = f"{scheme.lower()} {rest.strip()}".encode(errors="surrogatepass")
    return hmac.compare_digest(found, token)


def _is_accepted(content_type: str, path: str) -> bool:
    kind, *parameters = (part.strip().lower() for part in content_type.split(";"))
    charsets = [parameter.partition("=")[2].strip('"') for parameter in parameters if parameter.startswith("charset=")]
    is_ours = kind == _JSON or (kind == ARROW and path.startswith(_LEDGER))
    return is_ours and all(charset in ("utf-8", "utf8") for charset in charsets)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Gives the body once, then what else comes: that the client has gone."""
    is_told = False

    async def replayed() -> Message:
        nonlocal is_told
        if is_told:
            return await receive()
        is_told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed
