"""What a consumer has lived through in its group: rebalances, heartbeats and commits, as Java's coordinator metrics.

Who takes part counts; `statistics.py` shows it. Times are seconds: of any one clock where they are passed in, since
1970 where they are kept, so that they mean something to whoever reads them later.
"""

import time
from typing import Any, Final

from headwater.client.latency import LatencyHistogram
from headwater.client.statistics import shown

COUNTERS: Final = ("rebalances", "rebalances_failed", "heartbeats", "heartbeats_failed", "commits", "commits_failed")
GAUGES: Final = ("last_rebalance_duration_s", "last_rebalance_at_s", "last_heartbeat_at_s")
LATENCIES: Final = ("rebalance_latency", "heartbeat_latency", "commit_latency")


class GroupStatistics:
    """Counts that only rise, how long things took, and when they last happened (0.0: never).

    >>> statistics = GroupStatistics()
    >>> statistics.rebalance_begins(10.0)
    >>> statistics.rebalance_ended(12.5)
    >>> statistics.rebalances, statistics.last_rebalance_duration_s
    (1, 2.5)
    """

    def __init__(self) -> None:
        self.rebalances = 0
        """Rebalances that ended with an assignment for this consumer."""
        self.rebalances_failed = 0
        """Attempts to take part in one that failed; most are repeated, and end well later."""
        self.rebalance_latency = LatencyHistogram()
        self.last_rebalance_duration_s = 0.0
        self.last_rebalance_at_s = 0.0
        self.heartbeats = 0
        """Heartbeats that the coordinator has answered."""
        self.heartbeats_failed = 0
        """Heartbeats without an answer."""
        self.heartbeat_latency = LatencyHistogram()
        self.last_heartbeat_at_s = 0.0
        self.commits = 0
        """Requests to commit that the group has taken, automatic ones too."""
        self.commits_failed = 0
        """Requests to commit that it has not; those that may pass are repeated."""
        self.commit_latency = LatencyHistogram()
        self._began_s: float | None = None

    def rebalance_begins(self, now_s: float) -> None:
        """This consumer begins to take part in a rebalance; in one that goes on, nothing begins."""
        if self._began_s is None:
            self._began_s = now_s

    def rebalance_ended(self, now_s: float) -> None:
        """The rebalance has ended well, if one was going on."""
        if self._began_s is None:
            return
        self.rebalances += 1
        self.last_rebalance_duration_s = now_s - self._began_s
        self.rebalance_latency.add(self.last_rebalance_duration_s)
        self.last_rebalance_at_s = time.time()
        self._began_s = None

    def rebalance_failed(self) -> None:
        """An attempt has failed, if one was going on; the next one goes on with the same rebalance."""
        self.rebalances_failed += self._began_s is not None

    def rebalance_given_up(self) -> None:
        """This consumer takes part no longer, as it leaves."""
        self._began_s = None

    def heartbeat_answered(self, latency_s: float) -> None:
        """The coordinator has answered a heartbeat, with whatever."""
        self.heartbeats += 1
        self.heartbeat_latency.add(latency_s)
        self.last_heartbeat_at_s = time.time()

    def commit_answered(self, latency_s: float, *, taken: bool) -> None:
        """The coordinator has answered a commit."""
        self.commits += taken
        self.commits_failed += not taken
        self.commit_latency.add(latency_s)

    def snapshot(self) -> dict[str, Any]:
        """All numbers as they are now."""
        found: dict[str, Any] = {name: getattr(self, name) for name in (*COUNTERS, *GAUGES)}
        for name in LATENCIES:
            latency: LatencyHistogram = getattr(self, name)
            found[f"{name}_average_ms"] = latency.average_s * 1e3
            found[f"{name}_max_ms"] = latency.largest_s * 1e3
        return found

    def __repr__(self) -> str:
        return shown(self, self.snapshot())
