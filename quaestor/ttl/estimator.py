"""Estimator of how long a query result will probably live. Pure.

Before anything is known of a query, the writes to the records it contains count: a result changes with the first write to any
of them, so their rates add up. After its first invalidation the lifetimes that were observed count instead: they know of
records that enter the result, and of writes that do not matter to it.

Sources: Gessert et al., "Quaestor: Query Web Caching for Database-as-a-Service Providers" (PVLDB 2017); Wingerath's thesis,
section 5.1. Two deviations. The paper measures a lifetime from the last read before the invalidation; with results that
expire, that read is at most one TTL old, and an estimate that was too short once could never grow again. Here a lifetime is
the whole time a result was guarded since the invalidation before: the time to the next write is memoryless, so expiry and
re-reading in between do not matter, and time in which nobody was watching does not count. And what is averaged is the mean
lifetime, of which the TTL is the quantile, so the quantile keeps its meaning after the first invalidation.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from quaestor.errors import ConfigurationError

_FOR_EVER_MS = 1 << 62


@dataclass(slots=True)
class History:
    """History of one query: its observed lifetimes, and the one that is running.

    mean_ms: moving average of its observed lifetimes, of which there were `lifetimes`.
    watched_ms: guarded time since the last invalidation, up to the interval [from_ms, until_ms] that is still
        running; from_ms is None between an invalidation and the next read.
    """

    mean_ms: float = 0.0
    lifetimes: int = 0
    watched_ms: int = 0
    from_ms: int | None = None
    until_ms: int = 0

    def read(self, now_ms: int, until_ms: int) -> None:
        """Note that it was read, and is watched until then."""
        if self.from_ms is None:
            self.from_ms, self.until_ms = now_ms, until_ms
        elif now_ms <= self.until_ms:
            self.until_ms = max(self.until_ms, until_ms)
        else:
            self.watched_ms += self.until_ms - self.from_ms
            self.from_ms, self.until_ms = now_ms, until_ms

    def quiet_ms(self, now_ms: int) -> int:
        """The time for which it has been watched without an invalidation."""
        if self.from_ms is None:
            return 0
        return self.watched_ms + max(0, min(now_ms, self.until_ms) - self.from_ms)


class TtlEstimator:
    """Estimator that learns from write rates and observed lifetimes; implements LifetimeEstimator. O(1) a query and call.

    Not thread-safe: use it from one event loop.

    quantile: probability that a result has changed before its TTL ends (0..1, exclusive): -ln(1 - p) times the mean
        lifetime.
    alpha: weight of the past when a lifetime is observed (0..1, exclusive of 1); larger is steadier and slower. The
        first few lifetimes are averaged plainly.
    max_queries: beyond this, what is known of the query read longest ago is forgotten.
    """

    def __init__(
        self,
        *,
        ttl_min_ms: int,
        ttl_max_ms: int,
        quantile: float = 0.5,
        alpha: float = 0.8,
        max_queries: int = 50_000,
    ) -> None:
        if not 0 < ttl_min_ms <= ttl_max_ms:
            raise ConfigurationError(f"0 < ttl_min_ms ({ttl_min_ms}) <= ttl_max_ms ({ttl_max_ms}) does not hold")
        if not 0 < quantile < 1 or not 0 <= alpha < 1:
            raise ConfigurationError(f"quantile ({quantile}) or alpha ({alpha}) does not lie between 0 and 1")
        self._ttl_min_ms = ttl_min_ms
        self._ttl_max_ms = ttl_max_ms
        self._means = -math.log1p(-quantile)
        self._alpha = alpha
        self._max_queries = max_queries
        self._histories: OrderedDict[str, History] = OrderedDict()

    def __len__(self) -> int:
        return len(self._histories)

    def estimate_ms(self, query_ids: Sequence[str], *, write_rate_hz: float, now_ms: int) -> int:
        """TTL in ms of a response made of these queries, within the bounds; ttl_max_ms if nothing suggests a write.

        The response changes with the first of its queries, so their rates add up (the minimum of exponentials).

        write_rate_hz: of all their records together; queries without a history get equal shares of it.
        """
        distinct = tuple(dict.fromkeys(query_ids)) or ("",)
        share_per_ms = write_rate_hz / 1_000 / len(distinct)
        rate_per_ms = sum(self._rates_per_ms(distinct, share_per_ms, now_ms))
        if rate_per_ms <= 0:
            return self._ttl_max_ms
        return int(min(max(self._means / rate_per_ms, self._ttl_min_ms), self._ttl_max_ms))

    def _rates_per_ms(self, query_ids: Sequence[str], share_per_ms: float, now_ms: int) -> Iterator[float]:
        for query_id in query_ids:
            history = self._histories.get(query_id)
            if history is not None and history.lifetimes:
                mean_ms = history.mean_ms
            elif share_per_ms > 0:
                mean_ms = 1 / share_per_ms
            else:
                continue
            quiet_ms = 0 if history is None else history.quiet_ms(now_ms)
            if quiet_ms > mean_ms:
                # It has already outlived its mean: as though it were invalidated now, so that a query that was
                # written often and no longer is gets its long life back.
                mean_ms = self._averaged(mean_ms, quiet_ms)
            yield 1 / mean_ms

    def observe_read(self, query_ids: Sequence[str], *, now_ms: int, ttl_ms: int | None = None) -> None:
        """Note that these queries were read from the database and are guarded from now on for ttl_ms; None: for as long as
        it takes.
        """
        until_ms = _FOR_EVER_MS if ttl_ms is None else now_ms + ttl_ms
        for query_id in query_ids:
            history = self._histories.get(query_id)
            if history is None:
                history = self._histories[query_id] = History()
                if len(self._histories) > self._max_queries:
                    self._histories.popitem(last=False)
            else:
                self._histories.move_to_end(query_id)
            history.read(now_ms, until_ms)

    def observe_invalidation(self, query_id: str, *, now_ms: int) -> None:
        """Note that the result of this query changed. Ignored if nobody read it since the last time: writes come in clusters."""
        history = self._histories.get(query_id)
        if history is None or history.from_ms is None:
            return
        history.until_ms = max(history.until_ms, now_ms)  # it was still watched, or nobody would know
        lifetime_ms = max(1, history.quiet_ms(now_ms))
        history.lifetimes += 1
        past = min(self._alpha, 1 - 1 / history.lifetimes)
        history.mean_ms = past * history.mean_ms + (1 - past) * lifetime_ms
        history.watched_ms, history.from_ms = 0, None

    def observe_withdrawal(self, query_id: str, *, now_ms: int) -> None:
        """Note that the result of this query is no longer guarded, though nothing was written: from now on nobody is watching."""
        history = self._histories.get(query_id)
        if history is not None and history.from_ms is not None:
            history.until_ms = max(history.from_ms, min(history.until_ms, now_ms))

    def _averaged(self, mean_ms: float, lifetime_ms: float) -> float:
        return self._alpha * mean_ms + (1 - self._alpha) * lifetime_ms
