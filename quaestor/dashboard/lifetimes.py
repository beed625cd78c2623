"""Lifetimes as the dashboard draws them: by kind of result, the lifetimes given beside the times really lived. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from quaestor.ttl.calibration import Outcome, calibration, error_distribution, share_changed, survival

MOST_KINDS: Final = 12
_POINTS: Final = 80


def lifetimes(outcomes: Iterable[Sequence[Any]], judged: Mapping[str, Sequence[float]]) -> list[dict[str, Any]]:
    """Kinds with the most lifetimes, each with its plots. The first kind, "", is all of them together.

    outcomes: kind, given_ms, lived_ms, changed.
    judged: by kind, the judgements of its estimator: number, changed in time, factor.
    """
    by_kind: dict[str, list[Outcome]] = defaultdict(list)
    for kind, given_ms, lived_ms, changed in outcomes:
        by_kind[str(kind)].append(Outcome(given_ms=int(given_ms), lived_ms=int(lived_ms), changed=bool(changed)))
    everything = [outcome for several in by_kind.values() for outcome in several]
    most = sorted(by_kind, key=lambda kind: (-len(by_kind[kind]), kind))[:MOST_KINDS]
    return [_plots("", everything, ())] + [_plots(kind, by_kind[kind], judged.get(kind, ())) for kind in most]


def _plots(kind: str, outcomes: Sequence[Outcome], judged: Sequence[float]) -> dict[str, Any]:
    known, changed = share_changed(outcomes)
    given = sorted(outcome.given_ms for outcome in outcomes)
    return {
        "kind": kind,
        "sampled": len(outcomes),
        "judged": known,
        "changed": round(changed, 4),
        "learned": list(judged),
        "calibration": [
            [round(row["given_ms"]), round(row["changed"], 4), row["judged"]] for row in calibration(outcomes)
        ],
        "survival": [[ms, round(alive, 4)] for ms, alive in _thinned(survival(outcomes))],
        "given": [[ms, round(1 - (i + 1) / len(given), 4)] for i, ms in _thinned(list(enumerate(given)))],
        "errors": [[round(ratio, 4), round(share, 4)] for ratio, share in _thinned(error_distribution(outcomes))],
    }


def _thinned(points: Sequence[Any]) -> list[Any]:
    """At most _POINTS of the points, with the first and the last."""
    if len(points) <= _POINTS:
        return list(points)
    step = (len(points) - 1) / (_POINTS - 1)
    return [points[round(i * step)] for i in range(_POINTS)]
