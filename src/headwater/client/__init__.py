"""Clients for any Kafka. They may not import the broker: they meet it only over a socket."""

from headwater.client.client import Client, parse_bootstrap
from headwater.client.errors import ClientError, RefusedError

__all__ = ["Client", "ClientError", "RefusedError", "parse_bootstrap"]
