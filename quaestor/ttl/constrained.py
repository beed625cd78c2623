"""Constrained estimation: lifetimes as another estimator gives them, shortened while what they cost exceeds its budget. Pure.

Long lifetimes have two costs. A result that changes while copies of it live is purged, and the Cache Sketch lists it until the
last copy ends. A fuller sketch has more false positives. Both costs fall with the lifetimes: a copy that has ended before the
write costs neither. The lifetimes are therefore multiplied by a factor of at most 1. The worse of the two costs moves the factor:
down while its budget is exceeded, up while there is room. The controller is integral, of limited speed. After the idea of CATE,
the constrained adaptive TTL estimation of Gessert's thesis; there the factor is the quantile.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

from quaestor.errors import ConfigurationError
from quaestor.ports import LifetimeEstimator
from quaestor.ttl.decay import DecayedCounts

_SPEED: Final = 0.05
"""Of the factor's logarithm, a second, when the budget is exceeded by all of it, or nothing is used."""
_LEAST: Final = math.log(1e-3)
_HALF_LIFE_MS: Final = 10_000
_MOST_QUERIES: Final = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """Budgets of what lifetimes may cost; 0: without limit.

    false_positives: share of what is not stale that the sketch lists by mistake (0..1).
    invalidations_hz: invalidations a second that reach copies outside.
    """

    false_positives: float = 0.0
    invalidations_hz: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.false_positives < 1:
            raise ConfigurationError(f"the budget of false positives must lie in 0..1, not {self.false_positives}")
        if not 0 <= self.invalidations_hz < math.inf:
            raise ConfigurationError(
                f"the budget of invalidations must be a rate a second, not {self.invalidations_hz}"
            )


class ConstrainedEstimator:
    """Estimator within budgets; implements LifetimeEstimator. Not thread-safe. O(log n) a call.

    inner: gives lifetimes as though nothing were limited.
    ttl_min_ms: no lifetime falls below it.
    false_positive_rate: of the sketch with so many keys in it.
    """

    def __init__(
        self,
        inner: LifetimeEstimator,
        *,
        budgets: Budgets,
        ttl_min_ms: int,
        false_positive_rate: Callable[[int], float],
    ) -> None:
        self.inner = inner
        self._budgets = budgets
        self._ttl_min_ms = ttl_min_ms
        self._rate = false_positive_rate
        self._log_factor = 0.0
        self._at_ms: int | None = None
        self._until_ms: OrderedDict[str, int] = OrderedDict()
        self._listed: list[int] = []
        self._notified = DecayedCounts(half_life_ms=_HALF_LIFE_MS, max_keys=1)

    @property
    def factor(self) -> float:
        """Present factor before the lifetimes (0..1)."""
        return math.exp(self._log_factor)

    def estimate_ms(self, query_ids: Sequence[str], *, write_rate_hz: float, now_ms: int, kind: str = "") -> int:
        """See LifetimeEstimator."""
        ttl_ms = self.inner.estimate_ms(query_ids, write_rate_hz=write_rate_hz, now_ms=now_ms, kind=kind)
        return ttl_ms if not self._log_factor else max(self._ttl_min_ms, int(ttl_ms * self.factor))

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
            for query_id in query_ids:
                self._until_ms[query_id] = max(self._until_ms.get(query_id, 0), now_ms + given_ms)
                self._until_ms.move_to_end(query_id)
            while len(self._until_ms) > _MOST_QUERIES:
                self._until_ms.popitem(last=False)
        self.inner.observe_read(
            query_ids, now_ms=now_ms, ttl_ms=ttl_ms, write_rate_hz=write_rate_hz, kind=kind,
            given_ms=given_ms if not self._log_factor else None,  # what was shortened says nothing of the inner one
        )  # fmt: skip
        self._control(now_ms)

    def observe_invalidation(self, query_id: str, *, now_ms: int) -> None:
        """See LifetimeEstimator."""
        self.inner.observe_invalidation(query_id, now_ms=now_ms)
        until_ms = self._until_ms.pop(query_id, 0)
        if until_ms > now_ms and len(self._listed) < _MOST_QUERIES:
            heappush(self._listed, until_ms)
            self._notified.add("", now_ms=now_ms)
        self._control(now_ms)

    def observe_withdrawal(self, query_id: str, *, now_ms: int) -> None:
        """See LifetimeEstimator."""
        self.inner.observe_withdrawal(query_id, now_ms=now_ms)

    def usage(self, now_ms: int) -> tuple[float, float]:
        """Present cost of lifetimes: share of false positives, and invalidations a second."""
        while self._listed and self._listed[0] <= now_ms:
            heappop(self._listed)
        notified_hz = self._notified.of("", now_ms=now_ms) * 1_000 / self._notified.constant_ms
        return self._rate(len(self._listed)), notified_hz

    def _control(self, now_ms: int) -> None:
        since_ms, self._at_ms = self._at_ms, max(now_ms, self._at_ms or now_ms)
        if since_ms is None or now_ms <= since_ms:
            return
        false_positives, notified_hz = self.usage(now_ms)
        budgets, used = self._budgets, 0.0
        if budgets.false_positives:
            used = false_positives / budgets.false_positives
        if budgets.invalidations_hz:
            used = max(used, notified_hz / budgets.invalidations_hz)
        spell_s = min(now_ms - since_ms, 10_000) / 1_000
        step = _SPEED * spell_s * min(max(1.0 - used, -1.0), 1.0)
        self._log_factor = min(max(self._log_factor + step, _LEAST), 0.0)
