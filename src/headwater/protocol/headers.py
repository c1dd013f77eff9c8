"""The header in front of every request."""

import struct
from typing import Final, NamedTuple

from headwater.protocol.apis import SERVED, Api
from headwater.protocol.errors import MalformedRequestError
from headwater.protocol.wire import Cursor

_FIXED: Final = struct.Struct(">hhih")


class RequestHeader(NamedTuple):
    """Who asks for what, and where in the frame the request's body begins."""

    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    body: int

    @property
    def supported(self) -> bool:
        """Whether the broker serves this version. ApiVersions is answered even where it is not."""
        return self.api.min_version <= self.version <= self.api.max_version


def read_header(frame: memoryview) -> RequestHeader:
    """The header at the start of `frame`; an API that is not served is as malformed as noise."""
    if len(frame) < 10:
        raise MalformedRequestError(f"a frame of {len(frame)} bytes is too short for a request header")
    key, version, correlation_id, client_id_size = _FIXED.unpack_from(frame, 0)
    api = SERVED.get(key)
    if api is None:
        raise MalformedRequestError(f"api key {key} (version {version}) is not served")
    cursor = Cursor(frame, 10)
    client_id = None if client_id_size < 0 else cursor.text(client_id_size)
    if version >= api.flexible:
        cursor.tags(True)
    return RequestHeader(api, version, correlation_id, client_id, cursor.position)
