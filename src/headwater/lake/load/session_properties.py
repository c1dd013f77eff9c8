"""Properties of a commit that Spark takes from its session, and the turns in which commits of one process have it.

A MERGE and a REPLACE TABLE take their snapshot properties from the session's conf only, where every other commit of the
session finds them too: one from another thread would be taken for a load that it is not, or move another's position.
So whoever puts properties there has the session alone; those who bring theirs as options of a write go beside each
other. There is one Spark a process, hence one row of turns.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SESSION_PROPERTY: Final = "spark.sql.iceberg.snapshot-property."


class Turns:
    """Many beside each other, or one alone. Who waits to be alone is not overtaken by others who come later."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._beside = 0
        self._alone = False
        self._waiting = 0

    @contextmanager
    def beside_others(self) -> Iterator[None]:
        """As long as nobody is alone."""
        with self._changed:
            self._changed.wait_for(lambda: not self._alone and not self._waiting)
            self._beside += 1
        try:
            yield
        finally:
            with self._changed:
                self._beside -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """As soon as nobody else is there."""
        with self._changed:
            self._waiting += 1
            try:
                self._changed.wait_for(lambda: not self._alone and not self._beside)
            finally:
                self._waiting -= 1
                self._changed.notify_all()
            self._alone = True
        try:
            yield
        finally:
            with self._changed:
                self._alone = False
                self._changed.notify_all()


_TURNS: Final = Turns()


@contextmanager
def session_properties(spark: "SparkSession", properties: Mapping[str, str]) -> Iterator[None]:
    """The session has these properties for as long as this lasts, and nobody else commits.

    Views that the statement reads have the same name in every thread: make them in here too.
    """
    with _TURNS.alone():
        try:
            for name, value in properties.items():
                spark.conf.set(_SESSION_PROPERTY + name, value)
            yield
        finally:
            for name in properties:
                spark.conf.unset(_SESSION_PROPERTY + name)


@contextmanager
def own_properties() -> Iterator[None]:
    """For a commit that brings its properties itself: nothing in the session adds to them."""
    with _TURNS.beside_others():
        yield
