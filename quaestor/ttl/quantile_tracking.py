"""Quantile tracking: lifetimes that were given are judged by what came of them, and the next ones corrected. Pure.

A model of the writes is never quite true. Writes come in bursts, by day more than by night, and a mean of a few lifetimes is
itself a guess. The aim can be measured, though: the share of results that changed before their lifetime ended. Each kind of
result therefore has a factor before the model's answer. The factor moves a step down when a result changed too early, and a step
up when it did not. The two steps balance when the share is right.

Let R be the range of the logarithm of the factor. After n judged lifetimes the error of the share is at most R / (step * n), for
any writes. The recursion is that of Gibbs and Candès, "Adaptive conformal inference under distribution shift", NeurIPS 2021,
proposition 4.1.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final

STEP: Final = 0.02
"""Of the logarithm of a factor, once enough was judged. The first steps are longer: 1 / (n + 4)."""
_FEW: Final = 1 / STEP - 4
"""Judged lifetimes before the steps have this length."""
FARTHEST: Final = math.log(64)
"""A factor lies within 1/64 and 64: what is farther off has another cause than the model."""
MOST_KINDS: Final = 1_024
_SPARE = 1_000


@dataclass(slots=True)
class Correction:
    """Correction of one kind of result.

    factor, log_factor: what the model's lifetimes are multiplied by, and its natural logarithm.
    judged: lifetimes that have had their time.
    changed: of them those within which the result changed.
    """

    log_factor: float = 0.0
    judged: int = 0
    changed: int = 0
    factor: float = 1.0

    def learn(self, changed: bool, quantile: float) -> None:
        """Note what came of one lifetime."""
        step = 1 / (self.judged + 4) if self.judged < _FEW else STEP
        self.judged += 1
        self.changed += changed
        moved = self.log_factor + step * (quantile - changed)
        if not -FARTHEST <= moved <= FARTHEST:
            moved = math.copysign(FARTHEST, moved)
        self.log_factor = moved
        self.factor = math.exp(self.log_factor)


_Given = tuple[int, int, tuple[str, ...], str, float]
"""Lifetime of a response without an outcome yet: its end (ms), its number, the queries of the response, its kind, and the
quantile. A plain tuple, because there are as many as results: it is made fast, and garbage collection ignores it.
"""


class QuantileTracker:
    """The tracker of one estimator. O(log n) a call. Not thread-safe.

    max_open: lifetimes under watch; with more under way, some are not judged.
    """

    def __init__(self, *, max_open: int) -> None:
        self._max_open = max_open
        self._open: dict[str, _Given] = {}
        self._ends: list[_Given] = []
        self._number = 0
        self.corrections: OrderedDict[str, Correction] = OrderedDict()

    def factor(self, kind: str) -> float:
        """Factor before the model's answer for this kind."""
        correction = self.corrections.get(kind)
        return correction.factor if correction is not None else 1.0

    def give(self, query_ids: tuple[str, ...], kind: str, *, quantile: float, now_ms: int, until_ms: int) -> None:
        """Note a lifetime that was given to a response made of these queries. While one of theirs is open, no other is opened:
        nobody could tell whose end a change is.

        quantile: the share of such lifetimes within which the result is to change (0..1, exclusive).
        """
        if self._ends and self._ends[0][0] < now_ms:
            self.judge(now_ms)
        watched = self._open
        if len(watched) >= self._max_open or not watched.keys().isdisjoint(query_ids):
            return
        if len(self._ends) > 2 * len(watched) + _SPARE:  # most of them are judged
            self._ends = [end for end in self._ends if self._is_open(end)]
            heapify(self._ends)
        self._number += 1
        given = (until_ms, self._number, query_ids, kind, quantile)
        for query_id in query_ids:
            watched[query_id] = given
        heappush(self._ends, given)

    def changed(self, query_id: str, *, now_ms: int) -> None:
        """Note that a query's result has changed."""
        given = self._open.get(query_id)
        if given is not None:
            self._close(given)
            self._learn(given, changed=now_ms <= given[0])

    def withdrawn(self, query_id: str) -> None:
        """Note that nobody will know what comes of a query's lifetime."""
        given = self._open.get(query_id)
        if given is not None:
            self._close(given)

    def judge(self, now_ms: int) -> None:
        """Judge the lifetimes that have ended by now."""
        ends = self._ends
        while ends and ends[0][0] < now_ms:
            given = heappop(ends)
            if self._is_open(given):
                self._close(given)
                self._learn(given, changed=False)

    def _is_open(self, given: _Given) -> bool:
        query_ids = given[2]
        return not query_ids or self._open.get(query_ids[0]) is given

    def _close(self, given: _Given) -> None:
        for query_id in given[2]:
            del self._open[query_id]

    def _learn(self, given: _Given, *, changed: bool) -> None:
        kind, quantile = given[3], given[4]
        correction = self.corrections.get(kind)
        if correction is None:
            if len(self.corrections) >= MOST_KINDS:
                self.corrections.popitem(last=False)
            correction = self.corrections[kind] = Correction()
        correction.learn(changed, quantile)
