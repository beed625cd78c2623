"""Calibration: lifetimes that were given, beside what came of them, as plain data for tables and plots. Pure.

A lifetime that ended before any change is right-censored: the result lived at least so long. A mean of the observed ends would be
too short. The distribution of lifetimes is therefore the product-limit estimate (Kaplan and Meier, "Nonparametric estimation from
incomplete observations", JASA 1958). The share that changed in time is compared with the quantile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Outcome of one lifetime that was given.

    given_ms: the lifetime.
    lived_ms: for how long the result was watched, from when it was given.
    changed: whether it changed then; else nobody knows how much longer it lived.
    """

    given_ms: int
    lived_ms: int
    changed: bool

    @property
    def early(self) -> bool:
        """Whether the result changed before the lifetime ended."""
        return self.changed and self.lived_ms <= self.given_ms

    @property
    def judged(self) -> bool:
        """Whether it is known if it did."""
        return self.changed or self.lived_ms >= self.given_ms


def share_changed(outcomes: Iterable[Outcome]) -> tuple[int, float]:
    """Return the number of known outcomes, and the share of them that changed before their lifetime ended (0..1)."""
    judged = [outcome.early for outcome in outcomes if outcome.judged]
    return len(judged), sum(judged) / len(judged) if judged else 0.0


def calibration(outcomes: Sequence[Outcome], *, groups: int = 10) -> list[dict[str, float]]:
    """Share changed in time, by groups of equal size from the shortest lifetimes given to the longest: one row a group.

    Each row: `given_ms`, the mean lifetime given; `judged`; `changed`, the share (0..1).
    """
    judged = sorted((outcome for outcome in outcomes if outcome.judged), key=lambda outcome: outcome.given_ms)
    rows = []
    for i in range(groups):
        group = judged[len(judged) * i // groups : len(judged) * (i + 1) // groups]
        if group:
            mean_ms = sum(outcome.given_ms for outcome in group) / len(group)
            changed = sum(outcome.early for outcome in group) / len(group)
            rows.append({"given_ms": mean_ms, "judged": len(group), "changed": changed})
    return rows


def survival(outcomes: Iterable[Outcome]) -> list[tuple[int, float]]:
    """Kaplan-Meier curve: (ms, share of the results that live longer), a step for each moment at which some changed. O(n log
    n)."""
    ordered = sorted(outcomes, key=lambda outcome: outcome.lived_ms)
    at_risk, alive, steps = len(ordered), 1.0, []
    for lived_ms, same in groupby(ordered, key=lambda outcome: outcome.lived_ms):
        group = list(same)
        changed = sum(outcome.changed for outcome in group)
        if changed:
            alive *= 1 - changed / at_risk
            steps.append((lived_ms, alive))
        at_risk -= len(group)
    return steps


def error_distribution(outcomes: Iterable[Outcome]) -> list[tuple[float, float]]:
    """Distribution of the errors of the lifetimes whose end was seen: (given / lived, share of errors at most so large).

    Above 1 a lifetime was too long, below too short. Lifetimes without an observed end are left out: all that is known of
    them is "too short".
    """
    ratios = sorted(outcome.given_ms / max(1, outcome.lived_ms) for outcome in outcomes if outcome.changed)
    return [(ratio, (i + 1) / len(ratios)) for i, ratio in enumerate(ratios)]
