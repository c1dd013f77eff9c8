"""The clients for asyncio: the names of `headwater`, awaited.

>>> from headwater import aio
>>> async def main() -> None:
...     async with aio.Producer("localhost:9092") as producer:
...         handle = await producer.send("orders", b"six bottles", key="ann")
...         print(await handle)
"""

from typing import TYPE_CHECKING, Final

from headwater.lazy_names import lazy_names

if TYPE_CHECKING:
    from headwater.client.admin.admin import Admin as Admin
    from headwater.client.consumer.consumer import Consumer as Consumer
    from headwater.client.producer.producer import Producer as Producer

__all__ = ["Admin", "Consumer", "Producer"]

_HOMES: Final = {
    "Admin": "headwater.client.admin.admin",
    "Consumer": "headwater.client.consumer.consumer",
    "Producer": "headwater.client.producer.producer",
}

# Who only consumes does not wait for a producer to load.
__getattr__ = lazy_names(__name__, _HOMES)
