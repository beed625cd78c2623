"""Decayed counts: how much of each key there was lately, in bounded memory. Pure.

Source: Cormode et al., "Forward decay: a practical time decay model for streaming systems", ICDE 2009. Later events weigh more:
the weight doubles every half-life since a landmark. A count is a plain sum of such weights; a reading divides it by the present
weight. Counting is therefore one addition, no count is ever aged, and events may be reported in any order. The landmark moves
before the weights leave the range of floats: every 300 time constants.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from typing import Final

_FARTHEST: Final = 300.0
"""Time constants from the landmark; exp(709) would be the last."""


class DecayedCounts:
    """Exponentially decayed counts by key. Not thread-safe.

    half_life_ms: age at which an event counts half.
    max_keys: beyond this the key counted longest ago is forgotten.
    since_ms: when counting began; by default at the first call, whichever it is.
    constant_ms: half_life_ms / ln 2.
    """

    __slots__ = ("_at_ms", "_counts", "_landmark_ms", "_max_keys", "_weight", "constant_ms", "since_ms")

    def __init__(self, *, half_life_ms: int, max_keys: int, since_ms: int | None = None) -> None:
        self.constant_ms = half_life_ms / math.log(2)
        self.since_ms = since_ms
        self._max_keys = max_keys
        self._counts: OrderedDict[Hashable, float] = OrderedDict()
        self._landmark_ms: int | None = None
        self._at_ms = -1
        self._weight = 1.0

    def __len__(self) -> int:
        return len(self._counts)

    def begin(self, *, now_ms: int) -> None:
        """Begin counting, whether or not there is anything to count. O(1); only the first call matters."""
        if self.since_ms is None:
            self.since_ms = now_ms

    def add(self, key: Hashable, *, now_ms: int, count: float = 1.0) -> None:
        """Count so many events of this key. O(1), and O(keys) once in 300 time constants."""
        counts = self._counts
        if now_ms != self._at_ms:
            self._weigh(now_ms)
        known = counts.get(key)
        if known is not None:
            counts[key] = known + self._weight * count
            counts.move_to_end(key)
            return
        counts[key] = self._weight * count
        if len(counts) > self._max_keys:
            counts.popitem(last=False)

    def of(self, key: Hashable, *, now_ms: int) -> float:
        """Decayed count of the events of this key. O(1)."""
        count = self._counts.get(key)
        if count is None:
            return 0.0
        if now_ms != self._at_ms:
            self._weigh(now_ms)
            count = self._counts[key]
        return count / self._weight

    def total(self, keys: Iterable[Hashable], *, now_ms: int) -> float:
        """Decayed count of the events of all these keys. O(their number)."""
        if now_ms != self._at_ms:
            self._weigh(now_ms)
        counts = self._counts
        return sum([counts[key] for key in keys if key in counts]) / self._weight

    def _weigh(self, now_ms: int) -> None:
        if self._landmark_ms is None:
            self._landmark_ms = now_ms
            self.begin(now_ms=now_ms)
        age = (now_ms - self._landmark_ms) / self.constant_ms
        if age > _FARTHEST:
            shrunk = math.exp(-age) if age < 700 else 0.0
            for key in self._counts:
                self._counts[key] *= shrunk
            self._landmark_ms, age = now_ms, 0.0
        self._at_ms = now_ms
        self._weight = math.exp(max(age, -_FARTHEST))
