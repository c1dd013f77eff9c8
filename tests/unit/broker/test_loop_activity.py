"""Threads in the background can tell whether the event loop has work."""

import time
from concurrent.futures import ThreadPoolExecutor

from headwater.broker.services.loop_activity import LoopActivity


def work_for(cpu_s: float) -> None:
    began_s = time.thread_time()
    while time.thread_time() - began_s < cpu_s:
        pass


def rest_until_idle(activity: LoopActivity) -> None:
    while activity.is_busy():
        time.sleep(0.02)


def test_a_thread_that_works_is_busy_and_one_that_waits_is_not() -> None:
    activity = LoopActivity()
    with ThreadPoolExecutor(1) as other:
        for _ in range(2):
            work_for(0.002)
            assert other.submit(activity.is_busy).result()
            # This thread does nothing meanwhile.
            other.submit(rest_until_idle, activity).result(timeout=20)
