"""Shipped to users: a real broker for tests, and the pytest plugin that offers it as a fixture.

pytest loads the plugin in every run of whoever has headwater installed, so nothing heavy is imported before it is used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.broker.local import LocalBroker as LocalBroker

__all__ = ["LocalBroker"]


def __getattr__(name: str) -> object:
    if name == "LocalBroker":
        from headwater.broker.local import LocalBroker

        return LocalBroker
    raise AttributeError(f"module 'headwater.testing' has no attribute {name!r}")
