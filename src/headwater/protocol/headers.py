"""The header in front of every request. Compiled by Cython (pure Python mode) and correct without it."""
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

from headwater.protocol.apis import SERVED, Api
from headwater.protocol.errors import MalformedRequestError

try:
    import cython
except ImportError:
    from headwater.protocol import without_cython as cython

if cython.compiled:
    from cython.cimports.headwater.protocol.wire import Cursor
else:
    from headwater.protocol.wire import Cursor

_FIXED_SIZE = 10


@cython.final
@cython.cclass
class RequestHeader:
    """Who asks for what, and where in the frame the request's body begins."""

    api: Api = cython.declare(object, visibility="public")
    version: int = cython.declare(cython.int, visibility="public")
    correlation_id: int = cython.declare(cython.int, visibility="public")
    body: int = cython.declare(cython.Py_ssize_t, visibility="public")
    supported: bool = cython.declare(cython.bint, visibility="public")
    _client_id_size: int = cython.declare(cython.int)

    def client_id(self, frame: memoryview) -> str | None:
        """The name that the client gives itself, from the frame that this header is of."""
        if self._client_id_size < 0:
            return None
        return str(frame[_FIXED_SIZE : _FIXED_SIZE + self._client_id_size], "utf-8", "replace")


def read_header(frame: memoryview) -> RequestHeader:
    """The header at the start of `frame`; an API that is not served is as malformed as noise."""
    if len(frame) < _FIXED_SIZE:
        raise MalformedRequestError(f"a frame of {len(frame)} bytes is too short for a request header")
    header: RequestHeader = RequestHeader()
    cursor: Cursor = Cursor(frame, 0)
    key: cython.int = cursor.int16()
    header.version = cursor.int16()
    api = SERVED.get(key)
    if api is None:
        raise MalformedRequestError(f"api key {key} (version {header.version}) is not served")
    header.api = api
    # ApiVersions is answered even in a version that is not served: see `dispatch`.
    header.supported = api.min_version <= header.version <= api.max_version
    header.correlation_id = cursor.int32()
    header._client_id_size = cursor.int16()
    if header._client_id_size > 0:
        cursor.advance(header._client_id_size)
    cursor.tags(header.version >= api.flexible)
    header.body = cursor.position
    return header
