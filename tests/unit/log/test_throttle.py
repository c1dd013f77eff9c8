"""A bound on bytes a second holds over several threads, and changes at once."""

import threading
import time

from headwater.log.throttle import Throttle


def test_spending_takes_the_time_that_the_limit_says() -> None:
    throttle = Throttle(lambda: 1_000_000, threading.Event())
    began_s = time.monotonic()
    spenders = [threading.Thread(target=throttle.spend, args=(150_000,)) for _ in range(2)]
    for spender in spenders:
        spender.start()
    for spender in spenders:
        spender.join()
    assert time.monotonic() - began_s >= 0.29


def test_a_raised_limit_frees_who_waits() -> None:
    rates = [10.0]
    throttle = Throttle(lambda: rates[0], threading.Event())
    spender = threading.Thread(target=throttle.spend, args=(1_000_000,), daemon=True)
    spender.start()
    spender.join(0.1)
    assert spender.is_alive()
    rates[0] = 1e12
    spender.join(10)
    assert not spender.is_alive()


def test_a_stop_frees_who_waits() -> None:
    stopped = threading.Event()
    throttle = Throttle(lambda: 1.0, stopped)
    spender = threading.Thread(target=throttle.spend, args=(1_000_000,), daemon=True)
    spender.start()
    stopped.set()
    spender.join(10)
    assert not spender.is_alive()
