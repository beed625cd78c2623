"""Typical lifetimes: for each kind of result the geometric mean over its queries, which single ones are held against. Pure."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Final

MOST_KINDS: Final = 1_024
_MOST = 1_000
"""With so many the past is forgotten as fast as it is added to."""


class TypicalLifetimes:
    """Typical lifetimes of one estimator's kinds. Not thread-safe."""

    def __init__(self) -> None:
        self._logs: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def scaled(self, kind: str, mean_ms: float, exponent: float) -> float:
        """The typical lifetime times this power of how many times as long a query's mean lifetime is. O(1)."""
        log_ms = math.log(max(mean_ms, 1.0))
        count, typical = self._logs.get(kind, (0, log_ms))
        count = min(count + 1, _MOST)
        typical += (log_ms - typical) / count
        if kind not in self._logs and len(self._logs) >= MOST_KINDS:
            self._logs.popitem(last=False)
        self._logs[kind] = (count, typical)
        return math.exp(min(typical + exponent * (log_ms - typical), 50.0))
