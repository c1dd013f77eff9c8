"""Waiting for something to read."""

import select


def readable(descriptor: int, within_s: float = 0) -> bool:
    """Whether something can be read there by then, or has ended. `select.select` knows no descriptor above 1,023."""
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(within_s * 1000))
