"""A thin asyncio client for any Kafka: what the command line needs, and no more.

    async with Client("localhost:9092") as client:
        print([topic.name for topic in await list_topics(client)])

It may not import the broker: it meets it only over a socket.
"""

from headwater.client.client import Client, parse_bootstrap
from headwater.client.errors import ClientError, RefusedError

__all__ = ["Client", "ClientError", "RefusedError", "parse_bootstrap"]
