"""The one loop over librdkafka's messages that Python would make slower than the broker: handing them back.

Compiled it runs at C speed (see rdloop.pxd); `rdkafka.py` has a slower way for a machine without a compiler.
"""

import cython

COMPILED = cython.compiled


def hand_back(messages_address: int, count: int, destroy_address: int) -> int:
    """Destroys `count` messages of a consumed batch; the bytes of their values, or -1 if one was an error."""
    messages: cython.pointer[cython.pointer[Message]] = cython.cast(  # noqa: F821
        cython.pointer[cython.pointer[Message]],  # type: ignore[name-defined]  # noqa: F821
        cython.cast(cython.size_t, messages_address),
    )
    destroy: Destroy = cython.cast(Destroy, cython.cast(cython.size_t, destroy_address))  # type: ignore[name-defined]  # noqa: F821
    total: cython.longlong = 0
    failed: cython.bint = False
    index: cython.Py_ssize_t
    size: cython.Py_ssize_t = count
    for index in range(size):
        failed = failed or messages[index].err != 0
        total += messages[index].size
        destroy(messages[index])
    return -1 if failed else total
