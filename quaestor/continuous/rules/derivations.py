"""Derivations: for each combination of rows, the instants at which a conjunction may become true (R13 to R17).

For fixed rows a conjunction becomes true at the latest of its lower bounds, or when the last row of an absent part
dies. Each of these instants is a candidate. A combination is a result from the first candidate at which every condition holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

from sqlglot import exp

from quaestor.continuous.rules.orders import KnownOrder, ordered_pairs, with_orders
from quaestor.continuous.sql.model import Conjunction, Instant, Selection, TableUse, distinct
from quaestor.continuous.sql.refusals import QueryRefusedError
from quaestor.continuous.sql.writing import NeverError, absent_at, at_most_each, expression_of

MOST_DERIVATIONS: Final = 128
"""Most derivations of a query, each with its tests of absent rows: the engine plans the text of all."""


@dataclass(frozen=True, slots=True)
class Derivation:
    """Combinations of rows, each of which is a result from one instant on.

    columns: expressions of the result by name.
    conditions: conditions without current time, those on absent rows included.
    moments: the combination is a result from the latest of these instants on.
    arm: number of the SELECT.
    plain: whether the conditions have no subquery and no further tables.
    """

    columns: tuple[tuple[str, exp.Expr], ...]
    tables: tuple[TableUse, ...]
    conditions: tuple[exp.Expr, ...]
    moments: tuple[Instant, ...]
    arm: int
    plain: bool

    @property
    def instant(self) -> Instant:
        """Instant from which on the combination is a result. No moment is NULL in a combination that counts."""
        return latest(self.moments)

    def by(self, end: exp.Expr) -> tuple[exp.Expr, ...]:
        """Return the conditions of combinations that became results at an instant or before."""
        return (*self.conditions, *at_most_each((moment, Instant(end)) for moment in self.moments))


def latest(instants: Sequence[Instant]) -> Instant:
    """Return the latest of instants that are not NULL."""
    if len(instants) == 1:
        return instants[0]
    first, *others = (expression_of(instant) for instant in instants)
    return Instant(exp.Greatest(this=first, expressions=others, ignore_nulls=True))


def derivations(selections: Iterable[Selection], orders: Sequence[KnownOrder] = ()) -> tuple[Derivation, ...]:
    """Return the derivations of a query in standard form.

    Raises QueryRefusedError where there are more than MOST_DERIVATIONS.
    """
    members: list[Derivation] = []
    size = 0
    for selection in selections:
        ordered = replace(selection, conjunction=with_orders(selection.conjunction, orders))
        for member in _of_selection(ordered, orders):
            members.append(member)
            size += selection.conjunction.size
            if size > MOST_DERIVATIONS:
                raise QueryRefusedError(
                    0,
                    0,
                    f"rows can enter the result in more than {MOST_DERIVATIONS} alternatives",
                    "write fewer ORs and bounds on current time, or several queries",
                )
    return tuple(members)


def _of_selection(selection: Selection, orders: Sequence[KnownOrder]) -> Iterator[Derivation]:
    part = selection.conjunction
    try:
        yield _at_lower_bounds(selection, orders)
    except NeverError:
        return
    for candidate in _deaths(part.absent, _suffixes()):
        try:
            yield _at_candidate(selection, candidate)
        except NeverError:
            continue


def _at_lower_bounds(selection: Selection, orders: Sequence[KnownOrder]) -> Derivation:
    """R13, R15: every lower bound is at most every upper bound; absent parts are tested at the latest lower bound."""
    part = selection.conjunction
    moments = _undominated(part, orders)
    pairs = at_most_each(_pairs(part))
    absent = absent_at(part.absent, latest(moments))
    return Derivation(
        selection.columns,
        part.tables,
        distinct((*part.static, *pairs, *absent)),
        moments,
        selection.arm,
        not part.absent,
    )


def _pairs(part: Conjunction) -> Iterator[tuple[Instant, Instant]]:
    return ((lower, upper) for lower in part.lowers for upper in part.uppers)


def _undominated(part: Conjunction, orders: Sequence[KnownOrder]) -> tuple[Instant, ...]:
    """R14, I5: drop lower bounds that never exceed another bound, because an upper bound or a known order lies between."""
    known = ordered_pairs(part, orders)
    kept = list(part.lowers)
    for lower in part.lowers:
        others = [other for other in kept if other is not lower]
        below = any(
            upper.name == other.name and upper.ticks <= other.ticks for upper in part.uppers for other in others
        ) or any((lower.name, other.name) in known and lower.ticks <= other.ticks for other in others)
        if below:
            kept = others
    return tuple(kept)


@dataclass(frozen=True, slots=True)
class Candidate:
    """Instant at which rows of other tables may make a conjunction true."""

    tables: tuple[TableUse, ...]
    conditions: tuple[exp.Expr, ...]
    instant: Instant


def changes(part: Conjunction) -> Iterator[tuple[dict[str, str], Candidate]]:
    """Yield the instants at which a combination of rows of a part may begin or cease to be alive.

    Each is the instant of a copy of the part; the names lead from the aliases of the part to those of the copy.
    """
    for kind in (_births, _deaths):
        suffix = next(_suffixes())
        names = {table.alias: f"{table.alias}{suffix}" for table in part.all_tables()}
        for candidate in kind((part,), _suffixes()):
            yield names, candidate


def _at_candidate(selection: Selection, candidate: Candidate) -> Derivation:
    """R16: the whole conjunction is tested at the instant of a candidate."""
    part, instant = selection.conjunction, candidate.instant
    conditions = (
        *part.static,
        *candidate.conditions,
        *at_most_each((lower, instant) for lower in part.lowers),
        *at_most_each((instant, upper) for upper in part.uppers),
        *absent_at(part.absent, instant),
    )
    return Derivation(
        selection.columns,
        (*part.tables, *candidate.tables),
        distinct(conditions),
        (instant,),
        selection.arm,
        False,
    )


def _suffixes() -> Iterator[str]:
    return (f"_then{number}" for number in count(1))


def _deaths(parts: Iterable[Conjunction], suffixes: Iterator[str]) -> Iterator[Candidate]:
    """Yield the instants at which a combination of rows of an absent part may stop being alive."""
    for part in parts:
        copy = part.renamed(next(suffixes))
        for upper in copy.uppers:
            try:
                alive = (
                    *at_most_each((lower, upper) for lower in copy.lowers),
                    *at_most_each((upper, other) for other in copy.uppers if other is not upper),
                )
            except NeverError:
                continue
            yield Candidate(copy.tables, distinct((*copy.static, *alive)), upper.later(1))
        for birth in _births(copy.absent, suffixes):
            yield Candidate((*copy.tables, *birth.tables), distinct((*copy.static, *birth.conditions)), birth.instant)


def _births(parts: Iterable[Conjunction], suffixes: Iterator[str]) -> Iterator[Candidate]:
    """Yield the instants at which a combination of rows of a part may begin to be alive."""
    for part in parts:
        copy = part.renamed(next(suffixes))
        present = tuple(exp.not_(lower.base.copy().is_(exp.null())) for lower in copy.lowers if len(copy.lowers) > 1)
        yield Candidate(copy.tables, distinct((*copy.static, *present)), latest(copy.lowers))
        for death in _deaths(copy.absent, suffixes):
            yield Candidate((*copy.tables, *death.tables), distinct((*copy.static, *death.conditions)), death.instant)
