"""Histogram at the cost of one list entry for each observation."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any, Final

from prometheus_client import Histogram, Metric

_MOST_WAITING: Final = 1_000


class Gathered(Histogram):
    """Histogram without labels, at the cost of one list entry for each observation. Thread-safe.

    Observations are sorted into buckets on collection, or at 1,000 observations: all at once, by one addition for each bucket.
    A thousand single additions would hold the event loop for some milliseconds.
    """

    _type = "histogram"

    def __init__(self, name: str, documentation: str, **options: Any) -> None:
        self._waiting: list[float] = []
        self._sorting = threading.Lock()
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
        with self._sorting:  # other threads may append meanwhile: behind what is taken
            amounts = self._waiting[:]
            del self._waiting[: len(amounts)]
            self._sum.inc(sum(amounts))
            amounts.sort()
            begin = 0
            for bucket, bound in zip(self._buckets, self._upper_bounds, strict=True):
                end = bisect_right(amounts, bound, begin)
                if end > begin:
                    bucket.inc(end - begin)
                begin = end
