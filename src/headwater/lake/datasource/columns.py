"""The columns of records before a lane has looked at their values: their names and types. Pure."""

from typing import Final

import pyarrow as pa

VALUE: Final = "value"
CORRUPT: Final = "_corrupt_record"
RESCUED: Final = "_rescued"
SHAPE: Final = "shape"
TOMBSTONE: Final = "_tombstone"
"""True where a record has no value: it says that its key is no more. Given where it is asked for, in every lane."""

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
HEADERS: Final = "_headers"
_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

TOPIC_COLUMNS: Final = pa.schema(
    [
        ("_topic", pa.string()),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_timestamp", TIMESTAMP),
        ("_key", pa.binary()),
        (VALUE, pa.binary()),
        (HEADERS, _HEADERS),
    ]
)
"""A record of a topic as it is."""
