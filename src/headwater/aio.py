"""The clients for asyncio: the names of `headwater`, awaited.

>>> from headwater import aio
>>> async def main() -> None:
...     async with aio.Producer("localhost:9092") as producer:
...         handle = await producer.send("orders", b"six bottles", key="ann")
...         print(await handle)
"""

from typing import TYPE_CHECKING, Final

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


def __getattr__(name: str) -> object:
    # Imported when asked for: who only consumes does not wait for a producer to load.
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module 'headwater.aio' has no attribute {name!r}")
    found: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found
