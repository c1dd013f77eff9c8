"""Stands in for `import cython` where that package is absent: the compiled modules also run as plain Python.

Here are the names that those modules evaluate at run time, and no others: annotations are never evaluated.
"""

from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")

compiled = False

# C types are only ever passed to `declare`, which forgets them.
int = longlong = ulonglong = short = uint = schar = Py_ssize_t = bint = None  # noqa: A001


def _unchanged(decorated: _T) -> _T:
    return decorated


cclass = ccall = cfunc = final = inline = _unchanged


class _NoGil:
    """A function or a block that runs without the interpreter's lock when compiled."""

    def __call__(self, decorated: _T) -> _T:
        return decorated

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass


nogil = gil = _NoGil()


def exceptval(value: object = None, *, check: bool = False) -> Callable[[_T], _T]:
    """How a C function reports exceptions: of no concern to a Python function."""
    return _unchanged


def cast(c_type: object, value: _T) -> _T:
    """A value as a C type, which the compiled form does not check."""
    return value


def declare(c_type: object, value: Any = None, *, visibility: str = "private") -> Any:
    """A C variable with its value, or a C attribute of a class, of which instances set their own."""
    return value
