"""Chosen estimators: of each kind of result the one that its parameters name, and another when they change. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from quaestor.ports import LifetimeEstimator
from quaestor.ttl.baselines import AgeTtl, DynamicTtl, StaticTtl
from quaestor.ttl.canary import Canary
from quaestor.ttl.canary_arm import CanaryArm
from quaestor.ttl.constrained import Budgets, ConstrainedEstimator
from quaestor.ttl.daily_cycle import DailyCycle
from quaestor.ttl.estimator import TtlEstimator
from quaestor.ttl.outcomes import Outcomes
from quaestor.ttl.parameters import TtlParameters, Tuning

FalsePositiveRate = Callable[[int], float]
"""The sketch's rate of false positives (0..1) with so many keys in it."""
_MOST_REMEMBERED: Final = 1_024
"""Kinds whose estimator is found without looking for it."""


class ChosenEstimators:
    """Estimators of all kinds, as one; implements LifetimeEstimator. Not thread-safe.

    Kinds with the same parameters share one estimator. An observation goes to each different estimator once.

    outcomes: outcomes of the lifetimes, for a page that shows them; None while no page does.
    canary: other parameters for a share of the results; None: there is none.
    """

    def __init__(self, parameters: TtlParameters, *, false_positive_rate: FalsePositiveRate) -> None:
        self._rate = false_positive_rate
        self._estimators: dict[Tuning, LifetimeEstimator] = {}
        self._of_kinds: dict[str, LifetimeEstimator] = {}
        self.parameters = parameters
        self.outcomes: Outcomes | None = None
        self.canary: CanaryArm | None = None
        self.take_up(parameters)

    def take_up(self, parameters: TtlParameters, canary: Canary | None = None) -> None:
        """Go on with other parameters. An estimator whose parameters are still wanted keeps what it has learned; so does the
        one for whatever is not named, if only its numbers have changed. Estimators of a canary begin anew, and end with it."""
        self.canary = None
        if canary is not None:
            of_canary = ChosenEstimators(canary.parameters, false_positive_rate=self._rate)
            self.canary = CanaryArm(canary, of_canary)
        old, before = self._estimators, self.parameters.default
        wanted = dict.fromkeys((parameters.default, *parameters.kinds.values()))
        kept = {tuning: old[tuning] for tuning in wanted if tuning in old}
        default = parameters.default
        if default not in kept and before not in kept and before in old:
            tuned = _tuned(old[before], before, default)
            if tuned is not None:
                kept[default] = tuned
        self._estimators = {
            tuning: kept[tuning] if tuning in kept else built(tuning, false_positive_rate=self._rate)
            for tuning in wanted
        }
        self.parameters = parameters
        self._of_kinds = {}

    def estimate_ms(self, query_ids: Sequence[str], *, write_rate_hz: float, now_ms: int, kind: str = "") -> int:
        """See LifetimeEstimator."""
        if self.canary is not None and self.canary.has(query_ids):
            return self.canary.estimator.estimate_ms(query_ids, write_rate_hz=write_rate_hz, now_ms=now_ms, kind=kind)
        estimator = self._of_kinds.get(kind)
        if estimator is None:
            estimator = self._of_kind(kind)
        return estimator.estimate_ms(query_ids, write_rate_hz=write_rate_hz, now_ms=now_ms, kind=kind)

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
        own_ms = given_ms
        if self.canary is not None and self.canary.observe_read(
            query_ids, now_ms=now_ms, ttl_ms=ttl_ms, given_ms=given_ms, write_rate_hz=write_rate_hz, kind=kind
        ):
            own_ms = None  # the lifetime was not this one's, so nothing that comes of it says anything of this one
        estimator = self._of_kinds.get(kind)
        if estimator is None:
            estimator = self._of_kind(kind)
        estimator.observe_read(
            query_ids, now_ms=now_ms, ttl_ms=ttl_ms, given_ms=own_ms, write_rate_hz=write_rate_hz, kind=kind
        )
        if self.outcomes is not None and given_ms is not None:
            self.outcomes.give(query_ids, kind, now_ms=now_ms, given_ms=given_ms, watched_ms=ttl_ms)

    def observe_invalidation(self, query_id: str, *, now_ms: int) -> None:
        """See LifetimeEstimator."""
        for estimator in self._estimators.values():
            estimator.observe_invalidation(query_id, now_ms=now_ms)
        if self.canary is not None:
            self.canary.observe_invalidation(query_id, now_ms=now_ms)
        if self.outcomes is not None:
            self.outcomes.changed(query_id, now_ms=now_ms)

    def observe_withdrawal(self, query_id: str, *, now_ms: int) -> None:
        """See LifetimeEstimator."""
        for estimator in self._estimators.values():
            estimator.observe_withdrawal(query_id, now_ms=now_ms)
        if self.canary is not None:
            self.canary.observe_withdrawal(query_id, now_ms=now_ms)
        if self.outcomes is not None:
            self.outcomes.withdrawn(query_id, now_ms=now_ms)

    def judged(self) -> dict[str, tuple[int, int, float]]:
        """See TtlEstimator.judged(); of the kinds whose estimators learn."""
        counts: dict[str, tuple[int, int, float]] = {}
        for estimator in map(_learning, self._estimators.values()):
            if estimator is not None:
                counts |= estimator.judged()
        return counts

    def reasons(
        self, query_ids: Sequence[str], *, write_rate_hz: float, now_ms: int, kind: str
    ) -> dict[str, float | str]:
        """The numbers behind the lifetime that these queries would get now, `ttl_ms`: see TtlEstimator.reasons(). For people."""
        if self.canary is not None and self.canary.has(query_ids):
            explanation = self.canary.estimator.reasons(
                query_ids, write_rate_hz=write_rate_hz, now_ms=now_ms, kind=kind
            )
            return {**explanation, "canary": self.canary.canary.share}
        tuning = self.parameters.of(kind)
        estimator = self._estimators[tuning]
        ttl_ms = estimator.estimate_ms(query_ids, write_rate_hz=write_rate_hz, now_ms=now_ms, kind=kind)
        explanation = {
            "estimator": tuning.estimator, "ttl_ms": ttl_ms, "ttl_min_ms": tuning.ttl_min_ms, "ttl_max_ms": tuning.ttl_max_ms,
            "write_rate_hz": write_rate_hz,
        }  # fmt: skip
        if isinstance(estimator, ConstrainedEstimator):
            explanation["budget_factor"] = estimator.factor
        learning = _learning(estimator)
        if learning is not None:
            explanation |= learning.reasons(query_ids, write_rate_hz=write_rate_hz, now_ms=now_ms, kind=kind)
        return explanation

    def _of_kind(self, kind: str) -> LifetimeEstimator:
        """The estimator of a kind, remembered: parameters are looked up by all of their numbers."""
        if len(self._of_kinds) >= _MOST_REMEMBERED:
            self._of_kinds.clear()
        estimator = self._of_kinds[kind] = self._estimators[self.parameters.of(kind)]
        return estimator


def built(tuning: Tuning, *, false_positive_rate: FalsePositiveRate) -> LifetimeEstimator:
    """The estimator that a tuning names."""
    low_ms, high_ms = tuning.ttl_min_ms, tuning.ttl_max_ms
    if tuning.estimator == "static":
        return StaticTtl(min(max(tuning.static_ms, low_ms), high_ms))
    if tuning.estimator == "age":
        return AgeTtl(fraction=tuning.fraction, ttl_min_ms=low_ms, ttl_max_ms=high_ms)
    inner: LifetimeEstimator
    if tuning.estimator == "dynamic":
        inner = DynamicTtl(quantile=tuning.quantile, ttl_min_ms=low_ms, ttl_max_ms=high_ms)
    else:
        inner = TtlEstimator(
            ttl_min_ms=low_ms, ttl_max_ms=high_ms, quantile=tuning.quantile, alpha=tuning.alpha, exponent=tuning.exponent,
            cycle=DailyCycle() if tuning.daily else None,
        )  # fmt: skip
    if not (tuning.false_positives or tuning.invalidations_hz):
        return inner
    budgets = Budgets(false_positives=tuning.false_positives, invalidations_hz=tuning.invalidations_hz)
    return ConstrainedEstimator(inner, budgets=budgets, ttl_min_ms=low_ms, false_positive_rate=false_positive_rate)


def _learning(estimator: LifetimeEstimator) -> TtlEstimator | None:
    """The estimator that learns from lifetimes, also behind budgets; None: it is another one."""
    inner = estimator.inner if isinstance(estimator, ConstrainedEstimator) else estimator
    return inner if isinstance(inner, TtlEstimator) else None


def _tuned(estimator: LifetimeEstimator, before: Tuning, after: Tuning) -> LifetimeEstimator | None:
    """The same estimator with other numbers; None if it has to be another one."""
    if not isinstance(estimator, TtlEstimator) or after.estimator != "lifetimes" or after.daily != before.daily:
        return None
    if after.false_positives or after.invalidations_hz:
        return None
    estimator.tune(
        ttl_min_ms=after.ttl_min_ms, ttl_max_ms=after.ttl_max_ms, quantile=after.quantile, alpha=after.alpha,
        exponent=after.exponent,
    )  # fmt: skip
    return estimator
