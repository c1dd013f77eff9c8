"""How long `headwater consume` waits: for news where it was told how long, and for brokers that do not answer."""

import time
from typing import Final

from headwater.client.consumer.consumer import Consumer
from headwater.client.errors import TimedOutError

_LONGEST_POLL_S: Final = 1.0
_SHORTEST_POLL_S: Final = 0.02


class Patience:
    """Asked after each poll. `timeout_s` is how long nothing new may come; None: for ever.

    The time that writing takes does not count: what waits meanwhile is found by the next poll.
    """

    def __init__(self, consumer: Consumer, timeout_s: float | None) -> None:
        self._consumer = consumer
        self._timeout_s = timeout_s
        self._last_news_s = self._last_answer_s = time.monotonic()
        self._answers = 0

    @property
    def left_s(self) -> float:
        """How long the next poll may take."""
        if self._timeout_s is None:
            return _LONGEST_POLL_S
        left_s = self._last_news_s + self._timeout_s - time.monotonic()
        return min(max(left_s, _SHORTEST_POLL_S), _LONGEST_POLL_S)

    def is_over(self, news: bool) -> bool:
        """Whether nothing new came for too long; `TimedOutError` when not even an answer came."""
        now_s = time.monotonic()
        if news:
            self._last_news_s = self._last_answer_s = now_s
            return False
        # A fetch in flight counts as answered: one that fails takes it back, one that succeeds is followed by another.
        statistics = self._consumer.statistics
        answers = statistics.fetches - statistics.fetch_failures
        if answers > self._answers:
            self._answers, self._last_answer_s = answers, now_s
        limit_s = self._consumer.client.timeout_s
        if now_s - self._last_answer_s > limit_s:
            raise TimedOutError(f"gave up after {limit_s:g} s: no broker answers; is it running?")
        return self._timeout_s is not None and now_s - self._last_news_s >= self._timeout_s and self._asked_once()

    def _asked_once(self) -> bool:
        return all(self._consumer.lag(partition) is not None for partition in self._consumer.assignment())
