"""Baselines: simple estimators that others are measured against; two of them are what browsers and CDNs do unasked. Pure.

`StaticTtl` is what most configurations say. `AgeTtl` is the Alex protocol (Cate 1992), RFC 9111's heuristic freshness, Squid's
LM-factor: a share of the time since the last change. `DynamicTtl` is d-TTL (Basu et al., "Adaptive TTL-Based Caching for Content
Delivery", arXiv:1704.04448): one lifetime for each kind, moved by stochastic approximation; there towards a hit rate, here
towards the share that changes too early, because a server does not see the hits in browsers. `OracleTtl` knows the future:
the bound of what any estimator can reach.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

from quaestor.errors import ConfigurationError
from quaestor.ttl.quantile_tracking import QuantileTracker

_MOST_QUERIES = 50_000
_START_MS = 60_000


class StaticTtl:
    """Estimator that always says the same; implements LifetimeEstimator. Raises ConfigurationError."""

    def __init__(self, ttl_ms: int) -> None:
        if ttl_ms <= 0:
            raise ConfigurationError(f"a static lifetime must be positive, not {ttl_ms} ms")
        self._ttl_ms = ttl_ms

    def estimate_ms(self, query_ids: Sequence[str], *, write_rate_hz: float, now_ms: int, kind: str = "") -> int:
        """See LifetimeEstimator."""
        return self._ttl_ms

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
        """See LifetimeEstimator."""

    def observe_invalidation(self, query_id: str, *, now_ms: int) -> None:
        """See LifetimeEstimator."""

    def observe_withdrawal(self, query_id: str, *, now_ms: int) -> None:
        """See LifetimeEstimator."""


class OracleTtl(StaticTtl):
    """Estimator that knows the future; implements LifetimeEstimator.

    next_change_ms: when a query's result changes next after a moment; None: never.
    """

    def __init__(self, next_change_ms: Callable[[str, int], int | None], *, ttl_min_ms: int, ttl_max_ms: int) -> None:
        super().__init__(ttl_max_ms)
        self._next_change_ms = next_change_ms
        self._ttl_min_ms, self._ttl_max_ms = ttl_min_ms, ttl_max_ms

    def estimate_ms(self, query_ids: Sequence[str], *, write_rate_hz: float, now_ms: int, kind: str = "") -> int:
        """See LifetimeEstimator."""
        changes = (self._next_change_ms(query_id, now_ms) for query_id in query_ids)
        ttl_ms = min((at_ms - now_ms for at_ms in changes if at_ms is not None), default=self._ttl_max_ms)
        return min(max(ttl_ms, self._ttl_min_ms), self._ttl_max_ms)


class AgeTtl(StaticTtl):
    """Estimator that goes by the age: a share of the time since the last change; implements LifetimeEstimator. Unlike others
    it makes
    a result older by the time for which nobody watched it: it knows no better.

    fraction: the share (0..1); 0.1 is usual.
    """

    def __init__(self, *, fraction: float, ttl_min_ms: int, ttl_max_ms: int) -> None:
        super().__init__(ttl_min_ms)
        if not 0 < fraction <= 1 or not ttl_min_ms <= ttl_max_ms:
            raise ConfigurationError(
                f"fraction ({fraction}) must lie in 0..1 and ttl_min_ms ({ttl_min_ms}) below ttl_max_ms ({ttl_max_ms})"
            )
        self._fraction = fraction
        self._ttl_min_ms, self._ttl_max_ms = ttl_min_ms, ttl_max_ms
        self._changed_ms: OrderedDict[str, int] = OrderedDict()

    def estimate_ms(self, query_ids: Sequence[str], *, write_rate_hz: float, now_ms: int, kind: str = "") -> int:
        """See LifetimeEstimator."""
        ages_ms = [now_ms - self._changed_ms.get(query_id, now_ms) for query_id in query_ids]
        return int(min(max(min(ages_ms, default=0) * self._fraction, self._ttl_min_ms), self._ttl_max_ms))

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
        """See LifetimeEstimator."""
        for query_id in query_ids:
            self._changed_ms.setdefault(query_id, now_ms)
            self._changed_ms.move_to_end(query_id)
        while len(self._changed_ms) > _MOST_QUERIES:
            self._changed_ms.popitem(last=False)

    def observe_invalidation(self, query_id: str, *, now_ms: int) -> None:
        """See LifetimeEstimator."""
        if query_id in self._changed_ms:
            self._changed_ms[query_id] = now_ms


class DynamicTtl(StaticTtl):
    """Estimator with one lifetime for each kind, moved by the outcomes of earlier lifetimes; implements LifetimeEstimator.

    quantile: share of the results that are to change before their lifetime ends (0..1, exclusive).
    """

    def __init__(self, *, quantile: float, ttl_min_ms: int, ttl_max_ms: int) -> None:
        super().__init__(min(max(_START_MS, ttl_min_ms), ttl_max_ms))
        if not 0 < quantile < 1 or not ttl_min_ms <= ttl_max_ms:
            raise ConfigurationError(
                f"quantile ({quantile}) must lie between 0 and 1 and ttl_min_ms ({ttl_min_ms}) below ttl_max_ms ({ttl_max_ms})"
            )
        self._quantile = quantile
        self._ttl_min_ms, self._ttl_max_ms = ttl_min_ms, ttl_max_ms
        self._tracker = QuantileTracker(max_open=_MOST_QUERIES)

    def estimate_ms(self, query_ids: Sequence[str], *, write_rate_hz: float, now_ms: int, kind: str = "") -> int:
        """See LifetimeEstimator."""
        return int(min(max(_START_MS * self._tracker.factor(kind), self._ttl_min_ms), self._ttl_max_ms))

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
        """See LifetimeEstimator."""
        if given_ms is not None:
            distinct = tuple(dict.fromkeys(query_ids))
            until_ms = now_ms + given_ms
            self._tracker.give(distinct, kind, quantile=self._quantile, now_ms=now_ms, until_ms=until_ms)

    def observe_invalidation(self, query_id: str, *, now_ms: int) -> None:
        """See LifetimeEstimator."""
        self._tracker.changed(query_id, now_ms=now_ms)

    def observe_withdrawal(self, query_id: str, *, now_ms: int) -> None:
        """See LifetimeEstimator."""
        self._tracker.withdrawn(query_id)
