"""Bounds between instants that comparisons set, and the distances that follow from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sqlglot import exp

from quaestor.continuous.sql.intervals import ticks_of


class Least(NamedTuple):
    """Condition `earlier <= later + ticks` on instants by their names."""

    earlier: str
    later: str
    ticks: int


def distance(known: Sequence[Least], start: str, end: str) -> int | None:
    """Return the least known k with `start <= end + k`; None: there is none. Conditions add up along a path."""
    distances = {start: 0}
    for _ in known:
        for earlier, later, ticks in known:
            if earlier in distances:
                distances[later] = min(distances.get(later, distances[earlier] + ticks), distances[earlier] + ticks)
    return distances.get(end)


def leasts(condition: exp.Expr) -> Iterator[Least]:
    """Yield the bounds that a comparison of two instants sets."""
    if not isinstance(condition, exp.LT | exp.LTE | exp.GT | exp.GTE | exp.EQ):
        return
    left, right = instant_of(condition.this), instant_of(condition.expression)
    if left is None or right is None:
        return
    if isinstance(condition, exp.GT | exp.GTE):
        left, right = right, left
    strict = isinstance(condition, exp.LT | exp.GT)
    yield Least(left[0], right[0], right[1] - left[1] - strict)
    if isinstance(condition, exp.EQ):
        yield Least(right[0], left[0], left[1] - right[1])


def instant_of(node: exp.Expr) -> tuple[str, int] | None:
    """Return the name of a column or placeholder, and the ticks that are added to it; None: the instant has another form."""
    match node:
        case exp.Paren():
            return instant_of(node.this)
        case exp.Placeholder():
            return node.name, 0
        case exp.Column():
            return node.sql(), 0
        case exp.Add() | exp.Sub():
            inner, ticks = instant_of(node.this), ticks_of(node.expression)
            if inner is None or ticks is None:
                return None
            return inner[0], inner[1] + (ticks if isinstance(node, exp.Add) else -ticks)
    return None
