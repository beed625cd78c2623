"""Activity that the live page shows: totals, recent events and latencies. Pure state, fed by the live server."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel

_LATENCIES_KEPT = 1_000
_EVENTS_KEPT = 200


class Effect(BaseModel):
    """Effect of one finished invalidation. Times are ms since the epoch."""

    keys: tuple[str, ...]
    written_at_ms: int
    evicted_at_ms: int
    purged_at_ms: int | None = None
    exact: bool = False


class WorkerReport(BaseModel):
    """Report of one app worker, several times a second. Counts are totals since it started."""

    worker: int
    requests: dict[str, int]
    invalidations: dict[str, int]
    """Invalidations by precision: exact, widened."""
    uncacheable: dict[str, int]
    evicted: int
    registrations: int
    serving: bool
    effects: tuple[Effect, ...] = ()


class Activity:
    """State of the live page.

    Totals survive the death of a worker: its last report stays counted.
    """

    def __init__(self) -> None:
        self._workers: dict[int, WorkerReport] = {}
        self._latest_worker_ms: dict[int, int] = {}
        self._evicted_ms: deque[int] = deque(maxlen=_LATENCIES_KEPT)
        self._purged_ms: deque[int] = deque(maxlen=_LATENCIES_KEPT)
        self._events: deque[dict[str, Any]] = deque(maxlen=_EVENTS_KEPT)
        self._sequence = 0
        self.writes = 0
        self.clock: str | None = None
        self.varnish: dict[str, int] | None = None

    def absorb(self, report: WorkerReport, *, now_ms: int) -> None:
        """Add a worker's report."""
        self._workers[report.worker] = report
        self._latest_worker_ms[report.worker] = now_ms
        for effect in report.effects:
            evicted_ms = max(0, effect.evicted_at_ms - effect.written_at_ms)
            self._evicted_ms.append(evicted_ms)
            purged_ms = None
            if effect.purged_at_ms is not None:
                purged_ms = max(0, effect.purged_at_ms - effect.written_at_ms)
                self._purged_ms.append(purged_ms)
            self._add(
                "evict", now_ms,
                keys=list(effect.keys), evicted_ms=evicted_ms, purged_ms=purged_ms, exact=effect.exact,
            )  # fmt: skip

    def wrote(self, text: str, *, now_ms: int) -> None:
        """Add a write to the database."""
        self.writes += 1
        self._add("write", now_ms, text=text)

    def say(self, text: str, *, now_ms: int) -> None:
        """Add a remark to the feed, e.g. that a part went away."""
        self._add("note", now_ms, text=text)

    def _add(self, kind: str, now_ms: int, **fields: Any) -> None:
        self._sequence += 1
        self._events.append({"sequence": self._sequence, "kind": kind, "at_ms": now_ms} | fields)

    @property
    def sequence(self) -> int:
        """Sequence number of the newest event."""
        return self._sequence

    def snapshot(self, *, after: int, now_ms: int) -> dict[str, Any]:
        """Snapshot of everything that the page needs: totals, and the events after the given sequence number."""
        reports = self._workers.values()
        requests = _total(report.requests for report in reports)
        # Every worker receives every invalidation: the largest count of one worker counts, not the sum.
        invalidations = max(
            (report.invalidations for report in reports), key=lambda counts: sum(counts.values()), default={}
        )
        alive = [self._workers[worker] for worker, at_ms in self._latest_worker_ms.items() if now_ms - at_ms < 3_000]
        return {
            "at_ms": now_ms,
            "clock": self.clock,
            "varnish": self.varnish,
            "app": {
                "requests": sum(requests.values()),
                "hits": requests["hit"] + requests["coalesced"],
                "misses": requests["miss"],
                "bypassed": requests["bypass"],
            },
            "uncacheable": _total(report.uncacheable for report in reports),
            "writes": self.writes,
            "invalidations": {name: invalidations.get(name, 0) for name in ("exact", "widened")},
            "evicted": sum(report.evicted for report in reports),
            "evicted_ms": percentiles(self._evicted_ms),
            "purged_ms": percentiles(self._purged_ms),
            "registrations": sum(report.registrations for report in alive),
            "workers": len(alive),
            "serving": bool(alive) and all(report.serving for report in alive),
            "events": [event for event in self._events if event["sequence"] > after],
        }


def percentiles(values: Sequence[float] | deque[int]) -> dict[str, float] | None:
    """p50 and p99 by the nearest rank; None without values."""
    if not values:
        return None
    ordered = sorted(values)
    return {
        "p50": ordered[max(0, -(-len(ordered) * 50 // 100) - 1)],
        "p99": ordered[max(0, -(-len(ordered) * 99 // 100) - 1)],
    }


def _total(counts: Iterable[dict[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return total
