"""Monitor of query partitions that lag behind the database: a metric for each, and a log line at each begin and end of a lag."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from quaestor.observability.telemetry import Telemetry

UNHEARD: Final = (
    "no cell has reported since this process began: MongoDB does not answer, or no grid runs; nothing is cached"
)


class LagMonitor:
    """Lag of each query partition, measured and reported. Not thread-safe.

    bound_ms: lag from which a partition counts as lagging, and its queries are not served from cache.
    begun_ms: start of this process: the lag of an unheard partition counts from it.
    """

    def __init__(self, telemetry: Telemetry, *, bound_ms: int, begun_ms: int) -> None:
        self._telemetry = telemetry
        self._bound_ms = bound_ms
        self._begun_ms = begun_ms
        self._lagging: set[int] = set()
        self._ahead = False
        self._measured = 0

    def observe(self, fresh_as_of_ms: Sequence[int], *, now_ms: int) -> None:
        """Report changes of the lag. Called once a second.

        fresh_as_of_ms: time of the slowest cell of each query partition; 0: unheard.
        """
        self._measure(fresh_as_of_ms, now_ms)
        self._compare_clocks(max(fresh_as_of_ms, default=0) - now_ms)
        lagging = {
            partition
            for partition, fresh_ms in enumerate(fresh_as_of_ms)
            if self.lag_ms(fresh_ms, now_ms=now_ms) > self._bound_ms
        }
        more = lagging - self._lagging
        if unheard := {partition for partition in more if not fresh_as_of_ms[partition]}:
            self._telemetry.failure("grid", "registry.column_unheard", UNHEARD, columns=sorted(unheard))
        if behind := more - unheard:
            self._telemetry.failure(
                "grid", "registry.column_lags", f"more than {self._bound_ms} ms", columns=sorted(behind)
            )
        if fewer := self._lagging - lagging:
            self._telemetry.event("registry.column_caught_up", columns=sorted(fewer))
        self._lagging = lagging

    def lag_ms(self, fresh_ms: int, *, now_ms: int) -> int:
        """Return the lag behind the database.

        fresh_ms: time up to which all writes were processed; 0: unheard.
        """
        return max(0, now_ms - (fresh_ms or self._begun_ms))

    def _measure(self, fresh_as_of_ms: Sequence[int], now_ms: int) -> None:
        for gone in range(len(fresh_as_of_ms), self._measured):  # after a new partitioning there are fewer
            self._telemetry.grid.partition_lag_ms.remove(str(gone))
        self._measured = len(fresh_as_of_ms)
        for partition, fresh_ms in enumerate(fresh_as_of_ms):
            self._telemetry.grid.partition_lag_ms.labels(str(partition)).set(self.lag_ms(fresh_ms, now_ms=now_ms))

    def _compare_clocks(self, ahead_ms: int) -> None:
        ahead = ahead_ms > self._bound_ms
        if ahead and not self._ahead:
            self._telemetry.failure("grid", "registry.clocks_disagree", f"the grid's clock is ahead by {ahead_ms} ms")
        self._ahead = ahead
