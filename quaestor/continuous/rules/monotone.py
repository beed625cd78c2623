"""Monotone query: its result at t is everything that the query returned at any instant up to t."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlglot import exp

from quaestor.continuous.rules.derivations import Derivation
from quaestor.continuous.sql.current_time import T
from quaestor.continuous.sql.model import Instant, Selection
from quaestor.continuous.sql.writing import NeverError, expression_of, holds_at, named, select, union

TAU: Final = "tau"
"""Name of the placeholder of the instant of the run before."""
INSTANT: Final = "_instant"
"""Column of a dry run: the instant at which a row enters the result."""


def placeholder(name: str) -> exp.Placeholder:
    """Return the placeholder of an instant, T or TAU."""
    return exp.Placeholder(this=name)


def monotone(derivations: Sequence[Derivation]) -> exp.Query:
    """Return the smallest monotone query: the union over derivations (R11)."""
    return union([select(named(item.columns), item.tables, item.by(placeholder(T))) for item in derivations])


def entries(derivations: Sequence[Derivation]) -> exp.Select:
    """Return the rows of the monotone query, each with the first instant at which the query returned it (R17)."""
    branches = [
        select(
            [*named(item.columns), exp.alias_(expression_of(item.instant), INSTANT)],
            item.tables,
            item.by(placeholder(T)),
        )
        for item in derivations
    ]
    names = [exp.column(name) for name, _ in derivations[0].columns]
    first = exp.alias_(exp.Min(this=exp.column(INSTANT)), INSTANT)
    return exp.Select().select(*names, first).from_(union(branches).subquery("derived")).group_by(*names)


def at_each_instant(selections: Sequence[Selection]) -> exp.Query:
    """Return the standard form as SQL: the result of the query as of the instant t."""
    queries = []
    for selection in selections:
        try:
            conditions = holds_at(selection.conjunction, Instant(placeholder(T)))
        except NeverError:
            continue
        queries.append(select(named(selection.columns), selection.conjunction.tables, conditions))
    return union(queries)
