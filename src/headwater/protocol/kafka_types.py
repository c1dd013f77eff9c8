"""The door to `kio`: other modules take kio's primitive types from here, so that kio is always imported the cheap way.

kio registers Hypothesis strategies when Hypothesis is installed, which costs a third of a second that only kio's own
tests need. Hiding Hypothesis for the length of the first import keeps a broker's start short on developers' machines.
"""

import sys
from datetime import timedelta
from typing import Final

_MISSING: Final = object()
_hypothesis = sys.modules.get("hypothesis", _MISSING)
if _hypothesis is _MISSING:
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
try:
    from kio.schema.errors import ErrorCode
    from kio.schema.types import BrokerId, ProducerId, TopicName
    from kio.static.primitive import i8, i16, i32, i32Timedelta, i64
finally:
    if _hypothesis is _MISSING:
        del sys.modules["hypothesis"]

NO_THROTTLE: Final = i32Timedelta.parse(timedelta(0))

__all__ = [
    "NO_THROTTLE",
    "BrokerId",
    "ErrorCode",
    "ProducerId",
    "TopicName",
    "i8",
    "i16",
    "i32",
    "i32Timedelta",
    "i64",
]
