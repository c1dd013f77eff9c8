"""Tells nonsense in a request from our own mistakes where a library does not: pyiceberg trusts what it is given."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_MEANINGLESS: Final = (
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    RecursionError,
    AssertionError,
    StopIteration,
)


@contextmanager
def callers_fault(what: str) -> Iterator[None]:
    """A ValueError for whatever goes wrong inside: only for code that works on a request alone and changes nothing."""
    try:
        yield
    except _MEANINGLESS as error:
        raise ValueError(f"{what} makes no sense: {type(error).__name__}: {error!s:.200}") from error
