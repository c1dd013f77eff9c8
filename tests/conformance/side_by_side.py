"""Cases that run with both brokers at once and compare what a tool prints."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from .conftest import Broker

T = TypeVar("T")


def on_each(brokers: Sequence[Broker], story: Callable[[Broker], T]) -> list[T]:
    """Runs the same with each broker, side by side: a tool is a JVM, and they take their time."""
    with ThreadPoolExecutor(len(brokers)) as threads:
        return list(threads.map(story, brokers))


def assert_same(outputs: Sequence[Any]) -> Any:
    """Both brokers' output, once it is clear that it is the same."""
    ours, theirs = outputs
    assert ours == theirs
    return theirs
