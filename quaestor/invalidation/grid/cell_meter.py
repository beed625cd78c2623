"""Measurement of a cell's figures (`cell_stats.py`)."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from quaestor.event_layer.bounds import PipelineBounds
from quaestor.invalidation.grid.cell_stats import CellStats, PipelineStats, TenantStats
from quaestor.invalidation.matching.node import MatchingNode

_MOST_LAGS: Final = 10_000
_STATM: Final = Path("/proc/self/statm")


class CellMeter:
    """Figures of one cell between two reports. Not thread-safe.

    writes: writes matched since the cell started.
    """

    def __init__(self) -> None:
        self.writes = 0
        self._lags_ms: list[int] = []
        self._begun_s = time.monotonic()
        self._writes_before = 0
        self._tried_before = 0

    def matched(self, *, wall_ms: int, now_ms: int) -> None:
        """Count one write. O(1); the lag is measured for at most 10,000 writes a period.

        wall_ms: time of the write in the database; 0: not known.
        """
        self.writes += 1
        if wall_ms and len(self._lags_ms) < _MOST_LAGS:
            self._lags_ms.append(now_ms - wall_ms)

    def take(
        self,
        node: MatchingNode,
        *,
        now_ms: int,
        pipelines: Sequence[PipelineStats] = (),
        bounds: PipelineBounds | None = None,
    ) -> CellStats:
        """Return figures of the period since the last call, and of the node's present content.

        pipelines, bounds: pipelines around the cell, as far as known, and their bounds.
        """
        tally, now_s = node.tally, time.monotonic()
        writes, tried = tally.writes - self._writes_before, tally.tried - self._tried_before
        lags_ms, seconds = sorted(self._lags_ms), max(now_s - self._begun_s, 1e-3)
        self._lags_ms, self._begun_s, self._writes_before, self._tried_before = [], now_s, tally.writes, tally.tried
        return CellStats(
            cell=node.cell,
            shape=node.shape,
            at_ms=now_ms,
            queries=node.queries,
            registrations=node.registrations,
            bytes=node.bytes,
            writes=tally.writes,
            tried=tally.tried,
            failed=tally.failed,
            evicted=tally.evicted,
            writes_per_s=writes / seconds,
            tried_per_write=tried / writes if writes else 0.0,
            lag_p50_ms=_quantile(lags_ms, 0.5),
            lag_p99_ms=_quantile(lags_ms, 0.99),
            rss_bytes=rss_bytes(),
            tenants=tuple(
                TenantStats(
                    tenant=tenant.name,
                    registrations=tenant.registrations,
                    bytes=tenant.bytes,
                    tried_per_s=tried_per_s,
                    failed=tenant.failed,
                )
                for tenant, tried_per_s in node.largest_tenants()
            ),
            pipelines=tuple(pipelines),
            pipeline_max_entries=0 if bounds is None else bounds.entries,
            pipeline_max_bytes=0 if bounds is None else bounds.bytes,
        )


def _quantile(ordered: list[int], quantile: float) -> float:
    return float(ordered[min(int(len(ordered) * quantile), len(ordered) - 1)]) if ordered else -1.0


def rss_bytes() -> int:
    """Return the resident memory of this process in bytes; 0 where /proc does not report it."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
