"""The process of `object_store.py`: moto's server, in which an object whose name has `aged` in it was written days ago.

Nobody can set that from outside. `python object_store_server.py -H 127.0.0.1 -p 5000`
"""

import sys
from datetime import timedelta
from typing import Any

from moto.s3.models import FakeKey
from moto.server import main

_AGE = timedelta(days=2)
_make = FakeKey.__init__


def make(self: FakeKey, *given: Any, **named: Any) -> None:
    """An object of its age."""
    _make(self, *given, **named)
    # The parts of an object are numbered.
    if "aged" in str(self.name):
        self.last_modified -= _AGE


if __name__ == "__main__":
    FakeKey.__init__ = make  # type: ignore[method-assign]
    main(sys.argv[1:])
