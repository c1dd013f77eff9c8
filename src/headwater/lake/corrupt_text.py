"""What `_corrupt_record` holds: text from which the bytes can be had back. Pure.

A record that is UTF-8 stands there as it is. `base64:` is before the bytes of other records, and `batch-base64:` before
those of a whole batch of a topic of which something could not be read.
"""

import base64
from typing import Final

AS_BASE64: Final = "base64:"
BATCH_AS_BASE64: Final = "batch-base64:"


def record_text(raw: bytes) -> str:
    """A record; in base64 where it is no UTF-8, or might be taken for base64."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = AS_BASE64
    return text if not text.startswith((AS_BASE64, BATCH_AS_BASE64)) else AS_BASE64 + _base64(raw)


def batch_text(raw: bytes) -> str:
    """A batch; nothing follows the mark where the broker kept it back."""
    return BATCH_AS_BASE64 + _base64(raw)


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")
