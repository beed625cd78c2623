"""Histogram at the cost of one list entry for each observation."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from prometheus_client import Histogram, Metric

_MOST_WAITING: Final = 1_000


class Gathered(Histogram):
    """Histogram without labels, at the cost of one list entry for each observation. Thread-safe.

    Observations are sorted into buckets on collection, or at 1,000 observations.
    """

    _type = "histogram"

    def __init__(self, name: str, documentation: str, **options: Any) -> None:
        self._waiting: deque[float] = deque()
        super().__init__(name, documentation, **options)

    def observe(self, amount: float, exemplar: dict[str, str] | None = None) -> None:
        """Add one observation."""
        self._waiting.append(amount)
        if len(self._waiting) >= _MOST_WAITING:
            self._sort_in()

    def collect(self) -> Iterable[Metric]:
        """See prometheus_client."""
        self._sort_in()
        return super().collect()

    def _sort_in(self) -> None:
        with suppress(IndexError):
            while True:
                super().observe(self._waiting.popleft())
