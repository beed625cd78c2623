"""Estimator of how long a query result will probably live. Pure.

A query without a history is estimated from the writes to its records. A result changes with the first write to any of them, so
their rates add up. After the first invalidation the observed lifetimes count instead. Observed lifetimes include records that
enter the result, and ignore writes that do not change it.

Sources: Gessert et al., "Quaestor: Query Web Caching for Database-as-a-Service Providers" (PVLDB 2017); Wingerath's thesis,
section 5.1. Two deviations. The paper measures a lifetime from the last read before the invalidation; with results that
expire, that read is at most one TTL old, and an estimate that was too short once could never grow again. Here a lifetime is
the whole time of guard since the invalidation before. The time to the next write is memoryless, so expiry and re-reading in
between do not matter. Time without a guard does not count. The second deviation: the mean lifetime is averaged, and the TTL is
its quantile. The quantile therefore keeps its meaning after the first invalidation.

The rate at which records enter a result is added to the members' rates (`collection_rates`). A mean lifetime and an exponential
distribution leave an error. A factor for each kind of result corrects it (`quantile_tracking`). The share of results that change
before their TTL ends stays at the quantile, for any pattern of writes. Derivations: docs/ttl_theory.md.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence

from quaestor.errors import ConfigurationError
from quaestor.ttl.collection_rates import CollectionRates
from quaestor.ttl.daily_cycle import DailyCycle
from quaestor.ttl.history import FOR_EVER_MS, History, plain
from quaestor.ttl.quantile_tracking import QuantileTracker
from quaestor.ttl.typical_lifetimes import TypicalLifetimes


class TtlEstimator:
    """Estimator that learns from write rates and observed lifetimes; implements LifetimeEstimator. O(log n) a query and call.

    Not thread-safe: use it from one event loop.

    quantile: probability that a result has changed before its TTL ends (0..1, exclusive): -ln(1 - p) times the mean
        lifetime.
    alpha: weight of the past when a lifetime is observed (0..1, exclusive of 1); larger is steadier and slower. The
        first few lifetimes are averaged plainly.
    max_queries: beyond this, what is known of the query read longest ago is forgotten.
    tracked: whether the outcomes of earlier TTLs correct the next ones.
    cycle: of the day, if the writes follow one.
    exponent: of the mean lifetime (0.25..4). 1: every query has the quantile. Above 1 a result that lives longer than is usual
        for its kind gets more, and a shorter-lived one less. The quantile is then the share over the whole kind.
    """

    def __init__(
        self,
        *,
        ttl_min_ms: int,
        ttl_max_ms: int,
        quantile: float = 0.5,
        alpha: float = 0.8,
        max_queries: int = 50_000,
        tracked: bool = True,
        cycle: DailyCycle | None = None,
        exponent: float = 1.0,
    ) -> None:
        self.tune(ttl_min_ms=ttl_min_ms, ttl_max_ms=ttl_max_ms, quantile=quantile, alpha=alpha, exponent=exponent)
        self._typical = TypicalLifetimes()
        self._max_queries = max_queries
        self._histories: OrderedDict[str, History] = OrderedDict()
        self._tracker = QuantileTracker(max_open=max_queries if tracked else 0)
        self._rates = CollectionRates(max_queries=max_queries)
        self._cycle = cycle
        self._elapsed = plain if cycle is None else cycle.elapsed

    def __len__(self) -> int:
        return len(self._histories)

    def tune(self, *, ttl_min_ms: int, ttl_max_ms: int, quantile: float, alpha: float, exponent: float = 1.0) -> None:
        """Go on with other parameters, and with everything that was learned. Raises ConfigurationError."""
        if not 0 < ttl_min_ms <= ttl_max_ms:
            raise ConfigurationError(f"0 < ttl_min_ms ({ttl_min_ms}) <= ttl_max_ms ({ttl_max_ms}) does not hold")
        if not 0 < quantile < 1 or not 0 <= alpha < 1:
            raise ConfigurationError(f"quantile ({quantile}) or alpha ({alpha}) does not lie between 0 and 1")
        if not 0.25 <= exponent <= 4:
            raise ConfigurationError(f"exponent ({exponent}) must lie in 0.25..4")
        self._exponent = exponent
        self._ttl_min_ms = ttl_min_ms
        self._ttl_max_ms = ttl_max_ms
        self._quantile, self._means = quantile, -math.log1p(-quantile)
        self._alpha = alpha

    def estimate_ms(self, query_ids: Sequence[str], *, write_rate_hz: float, now_ms: int, kind: str = "") -> int:
        """TTL in ms of a response made of these queries, within the bounds; ttl_max_ms if nothing suggests a write.

        The response changes with the first of its queries, so their rates add up (the minimum of exponentials).

        write_rate_hz: of all their records together; queries without a history get equal shares of it.
        """
        distinct = _distinct(query_ids) or ("",)
        share_hz = write_rate_hz / len(distinct) + self._rates.unexplained_hz(kind)
        rate_per_ms = self._rate_per_ms(distinct, share_hz / 1_000, now_ms)
        if rate_per_ms <= 0:
            return self._ttl_max_ms
        mean_ms = 1 / rate_per_ms
        if self._exponent != 1:
            mean_ms = self._typical.scaled(kind, mean_ms, self._exponent)
        ttl_ms = self._means * mean_ms * self._tracker.factor(kind)
        if self._cycle is not None:
            ttl_ms = self._cycle.clock_ms(now_ms, min(ttl_ms, 1e15))
        if ttl_ms <= self._ttl_min_ms:
            return self._ttl_min_ms
        return int(ttl_ms) if ttl_ms < self._ttl_max_ms else self._ttl_max_ms

    def reasons(
        self, query_ids: Sequence[str], *, write_rate_hz: float, now_ms: int, kind: str
    ) -> dict[str, float | str]:
        """Return the numbers behind estimate_ms(), for people.

        unexplained_hz: records that enter the result, a second.
        rate_hz: estimated changes a second.
        means: number of mean lifetimes in the quantile.
        factor: learned correction of the model.
        queries, known: number of queries, and of queries with a history.
        lifetimes: observed lifetimes of all the queries.
        mean_ms, quiet_ms: of the query with the longest history, its mean lifetime and the time since its last change.
        """
        distinct = _distinct(query_ids) or ("",)
        unexplained_hz = self._rates.unexplained_hz(kind)
        share_hz = write_rate_hz / len(distinct) + unexplained_hz
        known = [
            self._histories[query_id]
            for query_id in distinct
            if query_id in self._histories and self._histories[query_id].lifetimes
        ]
        best = max(known, key=lambda history: history.lifetimes, default=None)
        return {
            "quantile": self._quantile, "alpha": self._alpha, "means": self._means, "factor": self._tracker.factor(kind),
            "unexplained_hz": unexplained_hz, "rate_hz": self._rate_per_ms(distinct, share_hz / 1_000, now_ms) * 1_000,
            "queries": len(distinct), "known": len(known), "lifetimes": sum(history.lifetimes for history in known),
            "mean_ms": 0.0 if best is None else best.mean_ms,
            "quiet_ms": 0.0 if best is None else best.quiet_ms(now_ms, self._elapsed),
        }  # fmt: skip

    def _rate_per_ms(self, query_ids: Sequence[str], share_per_ms: float, now_ms: int) -> float:
        rate_per_ms = 0.0
        for query_id in query_ids:
            history = self._histories.get(query_id)
            if history is not None and history.lifetimes:
                mean_ms = history.mean_ms
            elif share_per_ms > 0:
                mean_ms = 1 / share_per_ms
            else:
                continue
            quiet_ms = 0.0 if history is None else history.quiet_ms(now_ms, self._elapsed)
            if quiet_ms > mean_ms:
                # The result has outlived its mean. Count it as invalidated now: a query that was
                # written often and no longer is gets its long life back.
                mean_ms = self._alpha * mean_ms + (1 - self._alpha) * quiet_ms
            rate_per_ms += 1 / mean_ms
        return rate_per_ms

    def observe_read(
        self,
        query_ids: Sequence[str],
        *,
        now_ms: int,
        ttl_ms: int | None = None,
        given_ms: int | None = None,
        write_rate_hz: float = 0.0,
        kind: str = "",
    ) -> None:
        """Note that these queries were read from the database and are guarded from now on for ttl_ms; None: for as long as
        it takes.
        """
        until_ms = FOR_EVER_MS if ttl_ms is None else now_ms + ttl_ms
        distinct = _distinct(query_ids)
        histories, rate_hz = self._histories, write_rate_hz / (len(distinct) or 1)
        for query_id in distinct:
            history = histories.get(query_id)
            if history is None:
                history = histories[query_id] = History()
                if len(histories) > self._max_queries:
                    self._forget()
            else:
                histories.move_to_end(query_id)
            history.read(now_ms, until_ms, self._elapsed)
            self._rates.watch(query_id, kind, now_ms=now_ms, until_ms=until_ms, rate_hz=rate_hz)
        if given_ms is not None and self._ttl_min_ms < given_ms < self._ttl_max_ms:
            # A lifetime that a bound has cut is no evidence about the model.
            self._tracker.give(distinct, kind, quantile=self._quantile, now_ms=now_ms, until_ms=now_ms + given_ms)

    def observe_invalidation(self, query_id: str, *, now_ms: int) -> None:
        """Note that the result of this query changed. Ignored if nobody read it since the last time: writes come in clusters."""
        history = self._histories.get(query_id)
        if history is None or history.from_ms is None:
            return
        if self._cycle is not None and history.lifetimes:
            self._cycle.watched(history.from_ms, max(now_ms, history.from_ms), history.mean_ms)
            self._cycle.changed(now_ms)
        history.changed(now_ms, self._alpha, self._elapsed)
        self._rates.changed(query_id, now_ms=now_ms)
        self._tracker.changed(query_id, now_ms=now_ms)

    def observe_withdrawal(self, query_id: str, *, now_ms: int) -> None:
        """Note that the result of this query is no longer guarded, though no write came: no registration guards it from now
        on."""
        history = self._histories.get(query_id)
        if history is not None and history.from_ms is not None:
            history.until_ms = max(history.from_ms, min(history.until_ms, now_ms))
            self._rates.withdrawn(query_id, now_ms=history.until_ms)
            self._tracker.withdrawn(query_id)

    def judged(self) -> dict[str, tuple[int, int, float]]:
        """By kind: TTLs that have had their time, those of them within which the result changed, and the factor before the
        model's answer. For people."""
        corrections = self._tracker.corrections
        return {
            kind: (correction.judged, correction.changed, correction.factor) for kind, correction in corrections.items()
        }

    def _forget(self) -> None:
        query_id, history = self._histories.popitem(last=False)
        self._rates.forget(query_id, until_ms=history.until_ms)
        self._tracker.withdrawn(query_id)


def _distinct(query_ids: Sequence[str]) -> tuple[str, ...]:
    """The queries, each once, in their order. Most results are made of one."""
    return tuple(query_ids) if len(query_ids) < 2 else tuple(dict.fromkeys(query_ids))
