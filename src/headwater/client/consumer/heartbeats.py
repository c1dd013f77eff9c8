"""When a member must be heard of: heartbeats, its session, and how long it may go without a poll. Sans-IO.

Times are seconds of any one clock, and passed in.
"""

from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class Heartbeats:
    """The three clocks of a member. A session or a poll interval of 0 s never ends."""

    interval_s: float
    session_s: float = 0.0
    max_poll_interval_s: float = 0.0
    retry_s: float = 0.1
    _next_s: float = field(default=0.0, init=False)
    _heard_s: float = field(default=0.0, init=False)
    _polled_s: float = field(default=0.0, init=False)
    _reminded: bool = field(default=False, init=False)

    def begin(self, now_s: float) -> None:
        """A membership begins, or begins anew: all three clocks do."""
        self._heard_s = now_s
        self._next_s = now_s + self.interval_s
        self.polled(now_s)

    def polled(self, now_s: float) -> None:
        """The user polls."""
        self._polled_s = now_s
        self._reminded = False

    def sent(self, now_s: float) -> None:
        """A heartbeat is under way."""
        self._next_s = now_s + self.interval_s

    def heard(self, now_s: float) -> None:
        """The coordinator has answered: the session begins anew."""
        self._heard_s = now_s

    def failed(self, now_s: float) -> None:
        """The last heartbeat did not arrive, or not where it should: it is sent again soon."""
        self._next_s = now_s + self.retry_s

    def hurry(self, now_s: float) -> None:
        """Something must be told to the coordinator at once."""
        self._next_s = now_s

    def due(self, now_s: float) -> bool:
        """Whether a heartbeat is to be sent."""
        return now_s >= self._next_s

    def session_ended(self, now_s: float) -> bool:
        """Whether the coordinator has been silent for a whole session: it may have moved."""
        return 0 < self.session_s <= now_s - self._heard_s

    def poll_missed(self, now_s: float) -> bool:
        """Whether the user has not polled for longer than is allowed."""
        return 0 < self.max_poll_interval_s <= now_s - self._polled_s

    def reminder_due(self, now_s: float) -> bool:
        """Whether half of the poll interval is over; once for each poll, so that one that waits can say it is there."""
        if self._reminded or not 0 < self.max_poll_interval_s / 2 <= now_s - self._polled_s:
            return False
        self._reminded = True
        return True

    def wait_s(self, now_s: float) -> float:
        """How long nothing has to be done."""
        ends = [self._next_s]
        if self.session_s:
            ends.append(self._heard_s + self.session_s)
        if self.max_poll_interval_s:
            ends.append(self._polled_s + self.max_poll_interval_s / (1 if self._reminded else 2))
        return max(0.0, min(ends) - now_s)
