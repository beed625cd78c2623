"""Windows of a process's counters: counts of the last minute, five minutes and hour, also while no client looks.

The counters are sampled at fixed times. Samples older than the shortest windows are thinned to one a minute: memory is bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

WINDOWS_S: Final = (60, 300, 3_600)
EVERY_S: Final = 5.0
"""Seconds between two samples."""
EVICTED: Final = "evicted_s"
"""Number of writes by the time until their entries were evicted: cumulative buckets by their upper bound."""
COUNTED: Final = (
    "requests", "hits", "misses", "uncacheable", "invalidations", "reexecuted", "verifications", "failures", "live_ended",
    "live_http", "followers_ended", EVICTED,
)  # fmt: skip
_FINE_MS: Final = 310_000
_COARSE_MS: Final = 60_000

Readings = Mapping[str, Mapping[str, float]]


class Windows:
    """Windows of one process. Not thread-safe."""

    def __init__(self) -> None:
        self._samples: list[tuple[int, dict[str, dict[str, float]]]] = []

    def __len__(self) -> int:
        return len(self._samples)

    def sample(self, readings: Readings, *, now_ms: int) -> None:
        """Keep the present counts."""
        if self._samples and now_ms <= self._samples[-1][0]:
            return
        self._samples.append((now_ms, _counted(readings)))
        self._thin(now_ms)

    def report(self, readings: Readings, *, now_ms: int) -> dict[str, dict[str, dict[str, float]]]:
        """Counts of each window, by its seconds as text. A younger process counts from its beginning."""
        counted = _counted(readings)
        return {str(seconds): self._since(counted, now_ms - seconds * 1_000) for seconds in WINDOWS_S}

    def _since(self, counted: Mapping[str, Mapping[str, float]], from_ms: int) -> dict[str, dict[str, float]]:
        before = next((sample for at_ms, sample in reversed(self._samples) if at_ms <= from_ms), {})
        return {
            metric: {
                label: grown
                for label, value in labels.items()
                if (grown := value - before.get(metric, {}).get(label, 0.0)) > 0
            }
            for metric, labels in counted.items()
        }

    def _thin(self, now_ms: int) -> None:
        """Keep one old sample a minute, and one that is older than the longest window."""
        oldest_ms = now_ms - WINDOWS_S[-1] * 1_000
        kept: list[tuple[int, dict[str, dict[str, float]]]] = []
        for at_ms, sample in self._samples:
            if at_ms <= oldest_ms:
                kept = [(at_ms, sample)]
            elif at_ms > now_ms - _FINE_MS or not kept or at_ms // _COARSE_MS != kept[-1][0] // _COARSE_MS:
                kept.append((at_ms, sample))
        self._samples = kept


def _counted(readings: Readings) -> dict[str, dict[str, float]]:
    return {name: {label: value for label, value in readings.get(name, {}).items() if value} for name in COUNTED}
