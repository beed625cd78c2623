"""History of the last minutes: the activity of all processes together in each second. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from quaestor.dashboard.process_report import Report

SECONDS: Final = 300

COUNTED: Final[Mapping[str, tuple[str, str]]] = {
    "memory": ("hits", "memory"),
    "redis": ("hits", "redis"),
    "assembled": ("hits", "assembled"),
    "stale": ("hits", "stale"),
    "miss": ("requests", "miss"),
    "coalesced": ("requests", "coalesced"),
    "bypass": ("requests", "bypass"),
    "evicted": ("evicted", "all"),
    "live_messages": ("live_messages", "all"),
}
"""Counters of which the history shows a rate: metric and label."""
SHOWN: Final = ("exact", "widened", "pushed", "live_answers", *COUNTED)
_DELIVERING: Final = ("snapshot", "changes")
"""Answers over HTTP that carry records. A stream does too: its events are live_messages."""
LEVELS: Final = ("lag_ms", "fill", "false_positives", "purges_waiting", "purges_oldest_s", "live_lag_ms")
COLUMNS: Final = ("at_ms", *SHOWN, *LEVELS)


class History:
    """History of one app. Not thread-safe.

    points: one point a second, the oldest first, each a list in the order of COLUMNS. Rates are per second. Of a level, the
        highest of all processes counts.
    """

    def __init__(self) -> None:
        self.points: deque[list[float]] = deque(maxlen=SECONDS)
        self._last: dict[str, tuple[int, list[float]]] = {}

    def add(self, reports: Sequence[Report], *, now_ms: int) -> None:
        """Add the point of this second; without any report no point is added. A process that is new or has restarted counts from
        the next point on."""
        if not reports:
            self._last = {}
            return
        rates, seen = [0.0] * len(SHOWN), {}
        for report in reports:
            counted, at_ms = _counted(report["readings"]), report["at_ms"]
            before_ms, before = self._last.get(report["process"], (at_ms, counted))
            if at_ms > before_ms:
                for i, (new, old) in enumerate(zip(counted, before, strict=True)):
                    rates[i] += max(0.0, new - old) * 1_000 / (at_ms - before_ms)
            seen[report["process"]] = (at_ms, counted)
        self._last = seen
        levels = [max((_levels(report["readings"])[i] for report in reports), default=0.0) for i in range(len(LEVELS))]
        self.points.append([now_ms, *(round(rate, 2) for rate in rates), *(round(level, 5) for level in levels)])


def _counted(readings: Mapping[str, Mapping[str, float]]) -> list[float]:
    by_type = readings.get("invalidations", {})
    judged = [
        sum(count for label, count in by_type.items() if label.endswith(f",{precision}"))
        for precision in ("exact", "widened")
    ]
    pushed = sum(readings.get("follower_events", {}).values())
    over_http = readings.get("live_http", {})
    answers = sum(over_http.get(content, 0.0) for content in _DELIVERING)
    return [*judged, pushed, answers] + [readings.get(metric, {}).get(label, 0.0) for metric, label in COUNTED.values()]


def _levels(readings: Mapping[str, Mapping[str, float]]) -> list[float]:
    def highest(metric: str, wanted: Any = None) -> float:
        values: Iterable[float] = (
            value for label, value in readings.get(metric, {}).items() if wanted is None or wanted(label)
        )
        return max(values, default=0.0)

    return [
        highest("grid_lag_seconds") * 1_000,
        highest("sketch_fill", lambda label: label == "union"),
        highest("sketch_false_positives", lambda label: label == "union,measured"),
        highest("purges_queued", lambda label: label.endswith(",waiting")),
        highest("purges_oldest_seconds"),
        highest("subscriptions_lag_seconds") * 1_000,
    ]
