"""Fitting of parameters to a recorded workload, checked on a part of the time that is held back. For each kind of result the fit
finds the quantile and the exponent with the most fresh hits in browsers, within a bound on staleness."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np

from quaestor.simulation.comparison import production
from quaestor.simulation.simulate import Figures, System, simulated
from quaestor.simulation.workload import Workload
from quaestor.ttl.parameters import MOST_KINDS, TtlParameters, Tuning

QUANTILES: Final = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
EXPONENTS: Final = (1.0, 1.5, 2.0)
LEAST_READS: Final = 200
"""Fewest reads of a kind for a fit of its own; with fewer the kind shares the default parameters."""
LEAST_HELD: Final = LEAST_READS // 4
"""Fewest reads in the time held back for its figures to confirm anything."""
TRAINED: Final = 2 / 3
"""Share of the time for the fit; the rest is held back."""


class Judged(Protocol):
    """Figures by which candidates are judged: shares of the requests (0..1)."""

    @property
    def browser_fresh(self) -> float:
        """Share of requests that the browser's own copy answered, in its newest version."""
        ...

    @property
    def stale(self) -> float:
        """Share of requests whose answer was older than the newest version."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Fit of one kind of result.

    reads: reads of the kind in the whole trace.
    tuning: best parameters in the time of the fit.
    before, after: figures of the time held back, with the present parameters, and with the fitted ones.
    confirmed: whether the fitted parameters are better in the time held back; otherwise the present ones stay.
    """

    kind: str
    reads: int
    tuning: Tuning
    before: Figures
    after: Figures
    confirmed: bool


def fitted(
    workload: Workload,
    *,
    base: Tuning,
    stale_at_most: float,
    system: System,
    on_fit: Callable[[Fit], None] = lambda _: None,
) -> tuple[TtlParameters, list[Fit]]:
    """Parameters that the time held back confirms, and the fit of each kind. Takes one simulation for each candidate and kind.

    base: present parameters of all kinds; bounds and budgets stay.
    stale_at_most: share of the requests (0..1) that may receive an older answer. If no candidate keeps that, the least
        stale is taken.
    on_fit: receives each fit when it is made, to show progress.
    """
    kinds = sorted(set(workload.kinds))
    reads = np.bincount(workload.read_of, minlength=workload.results)
    of_kind = {kind: np.array([of_read == kind for of_read in workload.kinds]) for kind in kinds}
    fits: list[Fit] = []
    for kind in sorted(kinds, key=lambda name: -int(reads[of_kind[name]].sum()))[:MOST_KINDS]:
        count = int(reads[of_kind[kind]].sum())
        if count >= LEAST_READS:
            fits.append(_fit(_part(workload, of_kind[kind]), kind, count, base, stale_at_most, system))
            on_fit(fits[-1])
    return TtlParameters(default=base, kinds={fit.kind: fit.tuning for fit in fits if fit.confirmed}), fits


def _fit(workload: Workload, kind: str, reads: int, base: Tuning, stale_at_most: float, system: System) -> Fit:
    cut_s = workload.length_s * TRAINED
    trained, held_back = between(workload, 0.0, cut_s), between(workload, cut_s, np.inf)
    tried = candidates(base)
    figures = [simulated(trained, production(TtlParameters(default=tuning)), system) for tuning in tried]
    chosen = tried[best(figures, stale_at_most)]
    before, after = (
        simulated(held_back, production(TtlParameters(default=tuning)), system) for tuning in (base, chosen)
    )
    enough = len(held_back.read_s) >= LEAST_HELD
    return Fit(
        kind=kind, reads=reads, tuning=chosen, before=before, after=after,
        confirmed=enough and better(after, before, stale_at_most),
    )  # fmt: skip


def candidates(present: Tuning) -> list[Tuning]:
    """Parameters to try, the present ones first; bounds and budgets stay."""
    tried = [
        replace(present, estimator="lifetimes", quantile=quantile, exponent=exponent)
        for exponent in EXPONENTS
        for quantile in QUANTILES
    ]
    return [present, *(tuning for tuning in tried if tuning != present)]


def best(figures: Sequence[Judged], stale_at_most: float) -> int:
    """Index of the candidate with the most fresh hits within the bound on staleness (0..1), the first of equals. If none keeps
    the bound, index of the least stale."""
    allowed = [i for i, judged in enumerate(figures) if judged.stale <= stale_at_most]
    if allowed:
        return max(allowed, key=lambda i: figures[i].browser_fresh)
    return min(range(len(figures)), key=lambda i: figures[i].stale)


def better(after: Judged, before: Judged, stale_at_most: float) -> bool:
    """Whether parameters may replace others. Three cases allow it: their excess over the bound on staleness is less; or it is
    equal, with more fresh hits; or both are equal, and fewer answers are stale."""

    def cost(figures: Judged) -> tuple[float, float, float]:
        return max(0.0, figures.stale - stale_at_most), -figures.browser_fresh, figures.stale

    return cost(after) < cost(before)


def _part(workload: Workload, wanted: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Workload:
    """Part of a workload that concerns only some results."""
    read, written = wanted[workload.read_of], wanted[workload.write_of]
    return replace(
        workload,
        read_s=workload.read_s[read], read_of=workload.read_of[read], read_by=workload.read_by[read],
        write_s=workload.write_s[written], write_of=workload.write_of[written],
    )  # fmt: skip


def between(workload: Workload, from_s: float, until_s: float) -> Workload:
    """Part of a workload between two times; it begins at time 0."""
    read = (workload.read_s >= from_s) & (workload.read_s < until_s)
    written = (workload.write_s >= from_s) & (workload.write_s < until_s)
    return replace(
        workload,
        read_s=workload.read_s[read] - from_s, read_of=workload.read_of[read], read_by=workload.read_by[read],
        write_s=workload.write_s[written] - from_s, write_of=workload.write_of[written],
    )  # fmt: skip
