"""Recurrence: how long after its result an equal row can become a result again (I3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlglot import exp

from quaestor.continuous.rules.derivations import Derivation
from quaestor.continuous.sql.bounds import distance, instant_of, leasts


class _Span(NamedTuple):
    """Distances between a selected instant and the instant of the result, in ticks."""

    least: int
    most: int


def recurrence(derivations: Sequence[Derivation]) -> int | None:
    """Return the most ticks between two results of equal rows; None: there is no bound.

    Equal rows have equal values of a selected instant. Conditions may keep each result near this instant.
    """
    spans = [
        span
        for place in range(len(derivations[0].columns))
        if (span := _joined([_span(item, item.columns[place][1]) for item in derivations])) is not None
    ]
    return min((span.most - span.least for span in spans), default=None)


def _span(item: Derivation, selected: exp.Expr) -> _Span | None:
    """Return the distances of a derivation's results from a selected instant; None: not bounded on both sides."""
    chosen = instant_of(selected)
    if chosen is None:
        return None
    name, shift = chosen
    known = [least for condition in item.conditions for least in leasts(condition.unnest())]
    after, before = [], []
    for moment in item.moments:
        base = instant_of(moment.base)
        if base is None:
            return None
        ticks = base[1] + moment.ticks - shift
        most, least = distance(known, base[0], name), distance(known, name, base[0])
        if most is None:
            return None
        after.append(ticks + most)
        if least is not None:
            before.append(ticks - least)
    return _Span(max(before), max(after)) if before else None


def _joined(spans: Sequence[_Span | None]) -> _Span | None:
    bounded = [span for span in spans if span is not None]
    if len(bounded) < len(spans):
        return None
    return _Span(min(span.least for span in bounded), max(span.most for span in bounded))
