"""Shipped to users: a real broker for tests, the pytest plugin that offers it, and a disk and a network that fail.

pytest loads the plugin in every run of whoever has headwater installed, so nothing heavy is imported before it is used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.broker.local import LocalBroker as LocalBroker
    from headwater.testing.faulty_filesystem import FaultyFileSystem as FaultyFileSystem
    from headwater.testing.flaky_proxy import FlakyProxy as FlakyProxy

__all__ = ["FaultyFileSystem", "FlakyProxy", "LocalBroker"]


def __getattr__(name: str) -> object:
    if name == "LocalBroker":
        from headwater.broker.local import LocalBroker

        return LocalBroker
    if name == "FaultyFileSystem":
        from headwater.testing.faulty_filesystem import FaultyFileSystem

        return FaultyFileSystem
    if name == "FlakyProxy":
        from headwater.testing.flaky_proxy import FlakyProxy

        return FlakyProxy
    raise AttributeError(f"module 'headwater.testing' has no attribute {name!r}")
