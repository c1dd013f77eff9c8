"""Threads in the background can tell whether clients are being served."""

import time

import pytest

from headwater.broker.services import loop_activity
from headwater.broker.services.loop_activity import LoopActivity


def test_a_loop_that_serves_is_busy_and_one_that_does_not_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, requests = [100.0], [5]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    activity = LoopActivity(lambda: requests[0])
    assert not activity.is_busy()
    for _ in range(2):
        requests[0] += 1
        now_s[0] += 2 * loop_activity._WINDOW_S
        assert activity.is_busy()
        now_s[0] += loop_activity._WINDOW_S / 2
        assert activity.is_busy(), "a moment ago is now"
        now_s[0] += 2 * loop_activity._WINDOW_S
        assert not activity.is_busy()
