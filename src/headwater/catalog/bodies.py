"""How the apps' handlers, which run in threads, get at a request's raw body and its idempotency key."""

import hashlib
from typing import Annotated, TypeAlias

from fastapi import Depends, Header, Request


async def _read_body(request: Request) -> bytes:
    return await request.body()


async def _read_key(request: Request, key: Annotated[str | None, Header(alias="Idempotency-Key")] = None) -> str | None:
    """The key together with what was asked: a client that uses one key for two requests gets both carried out."""
    if key is None:
        return None
    asked = f"{request.method} {request.url.path}?{request.url.query}\n".encode() + await request.body()
    return f"{key[:64]}:{hashlib.sha256(asked).hexdigest()}"


Body: TypeAlias = Annotated[bytes, Depends(_read_body)]
Key: TypeAlias = Annotated[str | None, Depends(_read_key)]
