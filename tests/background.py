"""Work beside a test, in a thread that nobody waits for when the test has failed."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


def in_background(work: Callable[[], Result]) -> "Future[Result]":
    """Begins at once. The end of a ThreadPoolExecutor would wait for work that hangs, and so would the whole run."""
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
