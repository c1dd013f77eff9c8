"""The process of `object_store.py`: moto's server, in which an object whose name has `aged` in it was written days ago.

It tells of no more objects in one answer than its first argument says, however many were asked for. Nobody can set
either from outside. `python object_store_server.py 20 -H 127.0.0.1 -p 5000`
"""

import sys
from datetime import timedelta
from typing import Any

from moto.s3.models import FakeKey
from moto.s3.responses import S3Response
from moto.server import main

_AGE = timedelta(days=2)
_make = FakeKey.__init__
_list = S3Response.list_objects_v2


def make(self: FakeKey, *given: Any, **named: Any) -> None:
    """An object of its age."""
    _make(self, *given, **named)
    # The parts of an object are numbered.
    if "aged" in str(self.name):
        self.last_modified -= _AGE


def list_objects(self: S3Response) -> Any:
    """One page of them."""
    page = sys.argv[1]
    asked = self.querystring.get("max-keys", [page])[0]
    self.querystring["max-keys"] = [min(asked, page, key=int)]
    return _list(self)


if __name__ == "__main__":
    FakeKey.__init__ = make  # type: ignore[method-assign]
    S3Response.list_objects_v2 = list_objects  # type: ignore[method-assign]
    main(sys.argv[2:])
