"""Which query partitions lag behind the database, for people: a metric for each, and a log line when one begins or ends to."""

from __future__ import annotations

from collections.abc import Sequence

from quaestor.observability.telemetry import Telemetry


class LagMonitor:
    """bound_ms: more than that is lagging; none of its queries is served from cache then. Not thread-safe."""

    def __init__(self, telemetry: Telemetry, *, bound_ms: int, begun_ms: int) -> None:
        self._telemetry = telemetry
        self._bound_ms = bound_ms
        self._begun_ms = begun_ms
        self._lagging: set[int] = set()
        self._ahead = False
        self._told = 0

    def observe(self, fresh_as_of_ms: Sequence[int], *, now_ms: int) -> None:
        """fresh_as_of_ms: of the slowest cell of each column; 0: not heard of. Called once a second."""
        lagging: set[int] = set()
        for gone in range(len(fresh_as_of_ms), self._told):  # partitioned anew, there are fewer
            self._telemetry.grid.partition_lag_ms.remove(str(gone))
        self._told = len(fresh_as_of_ms)
        for column, fresh_ms in enumerate(fresh_as_of_ms):
            lag_ms = max(0, now_ms - (fresh_ms or self._begun_ms))
            self._telemetry.grid.partition_lag_ms.labels(str(column)).set(lag_ms)
            if lag_ms > self._bound_ms:
                lagging.add(column)
        ahead_ms = max(fresh_as_of_ms, default=0) - now_ms
        if ahead_ms > self._bound_ms and not self._ahead:
            self._telemetry.failure("grid", "registry.clocks_disagree", f"the grid's is ahead by {ahead_ms} ms")
        self._ahead = ahead_ms > self._bound_ms
        if more := lagging - self._lagging:
            self._telemetry.failure(
                "grid", "registry.column_lags", f"more than {self._bound_ms} ms", columns=sorted(more)
            )
        if fewer := self._lagging - lagging:
            self._telemetry.event("registry.column_caught_up", columns=sorted(fewer))
        self._lagging = lagging
