"""headwater: a Kafka that you `pip install`.

>>> import headwater
>>> with headwater.LocalBroker() as broker:
...     print(broker.bootstrap)  # doctest: +SKIP
127.0.0.1:40913
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.broker.local import LocalBroker as LocalBroker

__all__ = ["LocalBroker"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    # Imported when asked for: the command line starts in a fraction of the time that a broker's parts take to load.
    if name == "LocalBroker":
        from headwater.broker.local import LocalBroker

        return LocalBroker
    raise AttributeError(f"module 'headwater' has no attribute {name!r}")
