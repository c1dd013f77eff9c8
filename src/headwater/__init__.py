"""headwater: a Kafka that you `pip install`, and clients for any Kafka.

>>> import headwater
>>> with headwater.LocalBroker() as broker, headwater.Producer(broker.bootstrap) as producer:
...     print(producer.send("orders", b"six bottles", key="ann").result())  # doctest: +SKIP
RecordMetadata(topic='orders', partition=0, offset=0, timestamp_ms=1763296365123)

`Producer`, `Consumer` and `Admin` block; `headwater.aio` has the same names for asyncio.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headwater import aio as aio
    from headwater.broker.local import LocalBroker as LocalBroker
    from headwater.client.blocking.admin import Admin as Admin
    from headwater.client.blocking.consumer import Consumer as Consumer
    from headwater.client.blocking.producer import Producer as Producer
    from headwater.client.consumer.records import Record as Record
    from headwater.client.errors import ClientError as ClientError
    from headwater.client.errors import RefusedError as RefusedError
    from headwater.client.errors import TimedOutError as TimedOutError
    from headwater.client.producer.handles import RecordMetadata as RecordMetadata
    from headwater.client.producer.handles import SendHandle as SendHandle
    from headwater.types import TopicPartition as TopicPartition

__all__ = [
    "Admin",
    "ClientError",
    "Consumer",
    "LocalBroker",
    "Producer",
    "Record",
    "RecordMetadata",
    "RefusedError",
    "SendHandle",
    "TimedOutError",
    "TopicPartition",
    "aio",
]
__version__ = "0.1.0"

_HOMES: Final = {
    "Admin": "headwater.client.blocking.admin",
    "ClientError": "headwater.client.errors",
    "Consumer": "headwater.client.blocking.consumer",
    "LocalBroker": "headwater.broker.local",
    "Producer": "headwater.client.blocking.producer",
    "Record": "headwater.client.consumer.records",
    "RecordMetadata": "headwater.client.producer.handles",
    "RefusedError": "headwater.client.errors",
    "SendHandle": "headwater.client.producer.handles",
    "TimedOutError": "headwater.client.errors",
    "TopicPartition": "headwater.types",
}


def __getattr__(name: str) -> object:
    # Imported when asked for: the command line starts in a fraction of the time that a broker's parts take to load,
    # and who only consumes does not wait for a producer.
    from importlib import import_module

    if name == "aio":
        return import_module("headwater.aio")
    if name not in _HOMES:
        raise AttributeError(f"module 'headwater' has no attribute {name!r}")
    found: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found
