"""Quantile tracking: lifetimes that were given are judged by what came of them, and the next ones corrected. Pure.

A model of the writes is never quite true: they come in bursts, by day more than by night, and a mean of a few lifetimes is
itself a guess. What is wanted can be measured, though: the share of results that changed before their lifetime ended. So a
factor stands before the model's answer, one for each kind of result, and moves a step down when a result changed too early,
a step up when it did not; the steps have the ratio in which both happen if the share is right. After n judged lifetimes the
share is off by at most (range of the logarithm of the factor) / (step * n), whatever the writes are like (Gibbs and Candès,
"Adaptive conformal inference under distribution shift", NeurIPS 2021, proposition 4.1, which is the same recursion).
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final

STEP: Final = 0.02
"""Of the logarithm of a factor, once enough was judged. The first steps are longer: 1 / (n + 4)."""
FARTHEST: Final = math.log(64)
"""A factor lies within 1/64 and 64: what is farther off has another cause than the model."""
MOST_KINDS: Final = 1_024
_SPARE = 1_000


@dataclass(slots=True)
class Correction:
    """Correction of one kind of result.

    log_factor: natural logarithm of what the model's lifetimes are multiplied by.
    judged: lifetimes that have had their time.
    changed: of them those within which the result changed.
    """

    log_factor: float = 0.0
    judged: int = 0
    changed: int = 0

    def learn(self, changed: bool, quantile: float) -> None:
        """Note what came of one lifetime."""
        step = max(STEP, 1 / (self.judged + 4))
        self.judged += 1
        self.changed += changed
        self.log_factor = min(max(self.log_factor + step * (quantile - changed), -FARTHEST), FARTHEST)


@dataclass(slots=True)
class Given:
    """Lifetime that was given to a response, of which it is not known yet what comes of it."""

    query_ids: tuple[str, ...]
    kind: str
    quantile: float
    until_ms: int
    judged: bool = False


class QuantileTracker:
    """The tracker of one estimator. O(log n) a call. Not thread-safe.

    max_open: lifetimes under watch; with more under way, some are not judged.
    """

    def __init__(self, *, max_open: int) -> None:
        self._max_open = max_open
        self._open: dict[str, Given] = {}
        self._ends: list[tuple[int, int, Given]] = []
        self._number = 0
        self.corrections: OrderedDict[str, Correction] = OrderedDict()

    def factor(self, kind: str) -> float:
        """Factor before the model's answer for this kind."""
        correction = self.corrections.get(kind)
        return math.exp(correction.log_factor) if correction is not None else 1.0

    def give(self, query_ids: tuple[str, ...], kind: str, *, quantile: float, now_ms: int, until_ms: int) -> None:
        """Note a lifetime that was given to a response made of these queries. While one of theirs is open, no other is opened:
        nobody could tell whose end a change is.

        quantile: the share of such lifetimes within which the result is to change (0..1, exclusive).
        """
        self.judge(now_ms)
        if len(self._open) >= self._max_open or any(query_id in self._open for query_id in query_ids):
            return
        given = Given(query_ids, kind, quantile, until_ms)
        for query_id in query_ids:
            self._open[query_id] = given
        if len(self._ends) > 2 * len(self._open) + _SPARE:  # most of them are judged
            self._ends = [one for one in self._ends if not one[2].judged]
            heapify(self._ends)
        self._number += 1
        heappush(self._ends, (until_ms, self._number, given))

    def changed(self, query_id: str, *, now_ms: int) -> None:
        """Note that a query's result has changed."""
        given = self._open.get(query_id)
        if given is not None:
            self._close(given)
            self._learn(given, changed=now_ms <= given.until_ms)

    def withdrawn(self, query_id: str) -> None:
        """Note that nobody will know what comes of a query's lifetime."""
        given = self._open.get(query_id)
        if given is not None:
            self._close(given)

    def judge(self, now_ms: int) -> None:
        """Judge the lifetimes that have ended by now."""
        ends = self._ends
        while ends and ends[0][0] < now_ms:
            given = heappop(ends)[2]
            if not given.judged:
                self._close(given)
                self._learn(given, changed=False)

    def _close(self, given: Given) -> None:
        given.judged = True
        for query_id in given.query_ids:
            self._open.pop(query_id, None)

    def _learn(self, given: Given, *, changed: bool) -> None:
        correction = self.corrections.get(given.kind)
        if correction is None:
            if len(self.corrections) >= MOST_KINDS:
                self.corrections.popitem(last=False)
            correction = self.corrections[given.kind] = Correction()
        correction.learn(changed, given.quantile)
