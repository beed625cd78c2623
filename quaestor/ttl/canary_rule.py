"""Rule that a canary is judged by: figures of its results against those of the rest, moved by what was predicted. Pure.

The rule compares odds (events over the others). Let requests come at random, r a second. A copy that lives for G seconds answers
r G of them for each one that it cannot answer. The ratio of the odds of `hits` is therefore the ratio of the lifetimes, for any
r. For rare events the odds are the share. Busy hours, and traffic that differs from the trace, move canary and rest alike: the
ratio stays.

The band is the rest's figure (both ends of its interval) moved by the predicted log odds ratio. A figure is worse than
predicted when all of the canary's interval lies beyond the band's bad end. A figure breaks a guard when all of the interval lies
beyond the guard (see `canary_guards`). Intervals are Wilson's (JASA 1927), at 99.9 %: the rule runs every few seconds, and each
run is a chance to be wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from quaestor.ttl.canary import Canary, Prediction
from quaestor.ttl.canary_counts import Counts

Z: Final = 3.29
"""Of the standard normal distribution, two-sided 99.9 %."""
LEAST: Final = 100
"""Observations of a figure, in canary and rest, before anything is said of it."""
TOLERANCE: Final = math.log(1.25)
"""Added to both ends of a prediction: a trace is of another hour."""


class Figure(NamedTuple):
    """Figure that is compared: a share.

    events, trials: counts of it.
    more_is_worse: on which side of the band it is worse than predicted.
    """

    events: str
    trials: str
    more_is_worse: bool


FIGURES: Final[Mapping[str, Figure]] = {
    "hits": Figure("hits", "requests", more_is_worse=False),
    "invalidations": Figure("invalidations", "lifetimes", more_is_worse=True),
    "stale": Figure("stale", "requests", more_is_worse=True),
}
"""Client hits a request, invalidations of living copies a lifetime, requests that may have been answered with something older."""


class Verdict(StrEnum):
    """Verdict on a canary.

    WAITING: too little was observed.
    INSIDE: nothing is worse than predicted, after as many requests as were asked for.
    WORSE: some figure is.
    BROKEN: some guard is broken.
    """

    WAITING = "waiting"
    INSIDE = "inside"
    WORSE = "worse"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One figure of a canary. Shares (0..1).

    canary, canary_low, canary_high: measured, with its interval.
    rest: measured.
    low, high: the band.
    observed: trials of the canary.
    enough: whether anything can be said.
    worse: whether it is worse than predicted.
    """

    name: str
    canary: float
    canary_low: float
    canary_high: float
    rest: float
    low: float
    high: float
    observed: int
    enough: bool
    worse: bool

    def __str__(self) -> str:
        """One sentence for people."""
        where = "worse than" if self.worse else "within" if self.low <= self.canary <= self.high else "beside"
        comparison = (
            f"{self.name}: {self.canary:.4f} ({self.canary_low:.4f} to {self.canary_high:.4f}) of {self.observed}, "
        )
        if not self.enough:
            return f"{comparison}too few to be judged"
        return f"{comparison}{where} the band of {self.low:.4f} to {self.high:.4f}; the rest: {self.rest:.4f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardJudged:
    """One guard of a canary. Shares (0..1).

    name: of the figure.
    canary, low, high: measured, with its interval.
    observed: requests for the canary's results.
    enough: whether anything can be said; never of hits behind a CDN.
    kept: whether the measured share keeps the limit.
    broken: whether all of its interval lies beyond.
    """

    name: str
    limit: float
    more_is_worse: bool
    canary: float
    low: float
    high: float
    observed: int
    enough: bool
    kept: bool
    broken: bool

    def __str__(self) -> str:
        """One sentence for people."""
        bound = f"{self.name} {'at most' if self.more_is_worse else 'at least'} {self.limit:g}"
        if not self.enough:
            return f"guard {bound}: not judged yet ({self.observed} requests)"
        how = "broken" if self.broken else "kept" if self.kept else "not kept, within the interval"
        return f"guard {bound}: {how}, {self.canary:.4f} ({self.low:.4f} to {self.high:.4f}) of {self.observed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Judgement on a canary at one moment.

    requests: for its results so far.
    """

    verdict: Verdict
    figures: tuple[Judged, ...]
    guards: tuple[GuardJudged, ...]
    requests: int

    @property
    def why(self) -> str:
        """The guards that are broken and the figures that are worse than predicted, in one sentence."""
        broken = [str(guard) for guard in self.guards if guard.broken]
        return "; ".join([*broken, *(str(figure) for figure in self.figures if figure.worse)])

    def plain(self) -> dict[str, Any]:
        """The judgement as plain data for JSON."""
        return {
            "verdict": self.verdict.value, "requests": self.requests,
            "figures": [
                {
                    "name": figure.name, "canary": figure.canary, "interval": [figure.canary_low, figure.canary_high],
                    "rest": figure.rest, "band": [figure.low, figure.high],
                    "observed": figure.observed, "enough": figure.enough, "worse": figure.worse,
                }
                for figure in self.figures
            ],
            "guards": [
                {
                    "name": guard.name, "limit": guard.limit, "more_is_worse": guard.more_is_worse, "canary": guard.canary,
                    "interval": [guard.low, guard.high], "observed": guard.observed, "enough": guard.enough, "kept": guard.kept,
                    "broken": guard.broken,
                }
                for guard in self.guards
            ],
        }  # fmt: skip


def judged(canary: Canary, own: Counts, rest: Counts, *, cdn: bool) -> Judgement:
    """Judge a canary by what was counted.

    cdn: whether one stands before the app: it answers what copies can answer, so the app sees no hits to compare.
    """
    figures = tuple(
        _figure(name, canary.predicted[name], own, rest)
        for name in FIGURES
        if name in canary.predicted and not (cdn and name == "hits")
    )
    guards = tuple(_guard(*limit, own, cdn=cdn) for limit in canary.guards.limits())
    if any(guard.broken for guard in guards):
        verdict = Verdict.BROKEN
    elif any(figure.worse for figure in figures):
        verdict = Verdict.WORSE
    elif (
        figures
        and own.requests >= canary.after
        and all(figure.enough for figure in figures)
        and all(guard.kept for guard in guards)
    ):
        verdict = Verdict.INSIDE
    else:
        verdict = Verdict.WAITING
    return Judgement(verdict=verdict, figures=figures, guards=guards, requests=own.requests)


def wilson(events: int, trials: int, z: float = Z) -> tuple[float, float]:
    """Interval of a share of which `events` in `trials` were seen. Without trials: everything."""
    if trials < 1:
        return 0.0, 1.0
    share = events / trials
    scale = 1 + z * z / trials
    middle = (share + z * z / (2 * trials)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return max(0.0, middle - half), min(1.0, middle + half)


def log_odds(events: float, trials: float) -> float:
    """Logarithm of the odds, half an event added on both sides: also of nothing there is one."""
    return math.log((events + 0.5) / (trials - events + 0.5))


def _figure(name: str, predicted: Prediction, own: Counts, rest: Counts) -> Judged:
    figure = FIGURES[name]
    events, trials = getattr(own, figure.events), getattr(own, figure.trials)
    of_rest, rest_trials = getattr(rest, figure.events), getattr(rest, figure.trials)
    canary_low, canary_high = wilson(events, trials)
    rest_low, rest_high = wilson(of_rest, rest_trials)
    low = _moved(rest_low, rest_trials, predicted.low - TOLERANCE)
    high = _moved(rest_high, rest_trials, predicted.high + TOLERANCE)
    enough = min(trials, rest_trials) >= LEAST
    beyond = canary_low > high if figure.more_is_worse else canary_high < low
    return Judged(
        name=name, canary=events / max(1, trials), canary_low=canary_low, canary_high=canary_high,
        rest=of_rest / max(1, rest_trials), low=low, high=high, observed=trials, enough=enough, worse=enough and beyond,
    )  # fmt: skip


def _guard(name: str, limit: float, more_is_worse: bool, own: Counts, *, cdn: bool) -> GuardJudged:
    figure = FIGURES[name]
    events, trials = getattr(own, figure.events), getattr(own, figure.trials)
    low, high = wilson(events, trials)
    enough = trials >= LEAST and not (cdn and name == "hits")
    share = events / max(1, trials)
    kept = share <= limit if more_is_worse else share >= limit
    beyond = low > limit if more_is_worse else high < limit
    return GuardJudged(
        name=name, limit=limit, more_is_worse=more_is_worse, canary=share, low=low, high=high, observed=trials, enough=enough,
        kept=enough and kept, broken=enough and beyond,
    )  # fmt: skip


def _moved(share: float, trials: int, by: float) -> float:
    return 1 / (1 + math.exp(-log_odds(share * trials, trials) - by))
