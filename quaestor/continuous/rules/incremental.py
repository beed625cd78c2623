"""Incremental query: the results that became true in (tau, t], once for each combination of rows (I1 to I5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from sqlglot import exp

from quaestor.continuous.rules.derivations import Derivation
from quaestor.continuous.rules.monotone import TAU, placeholder
from quaestor.continuous.sql.current_time import T
from quaestor.continuous.sql.model import Instant
from quaestor.continuous.sql.refusals import QueryRefusedError
from quaestor.continuous.sql.writing import at_most, at_most_each, named, select, union

MOST_CONDITIONS: Final = 5_000
"""Most conditions of an incremental query, about 150 kB of text: the engine plans all of it."""


def incremental(derivations: Sequence[Derivation]) -> exp.Query:
    """Return the incremental query: between the difference of two monotone results and the newer of them.

    Raises QueryRefusedError where it would have more than MOST_CONDITIONS: each alternative excludes the results of the others.
    """
    size = sum(_size(item, derivations) for item in derivations)
    if size > MOST_CONDITIONS:
        raise QueryRefusedError(
            0,
            0,
            f"{len(derivations)} alternatives, each without the results of the others, have {size:,} conditions, more than "
            f"{MOST_CONDITIONS:,}",
            "write fewer ORs and bounds on current time, or several queries",
        )
    return union([query for item in derivations for query in _branches(item, derivations)])


def first_only(derivations: Sequence[Derivation]) -> exp.Query:
    """Return the exact difference: rows of the incremental query without any derivation up to tau (I3).

    The rows of the run are few, so each is looked up among the older derivations of equal rows.
    """
    names = [name for name, _ in derivations[0].columns]
    delta = incremental(derivations).subquery("delta")
    older = [
        exp.not_(
            exp.Exists(
                this=select(
                    [exp.Literal.number(1)],
                    item.tables,
                    (
                        *item.by(placeholder(TAU)),
                        *(
                            exp.NullSafeEQ(this=value.copy(), expression=exp.column(name, table="delta"))
                            for name, (_, value) in zip(names, item.columns, strict=True)
                        ),
                    ),
                )
            )
        )
        for item in derivations
    ]
    return exp.Select().select(*(exp.column(name, table="delta") for name in names)).from_(delta).where(*older)


def _size(item: Derivation, derivations: Sequence[Derivation]) -> int:
    """Return the number of conditions of a derivation's branches."""
    each = sum(len(other.conditions) + len(other.moments) for other in (item, *_others(item, derivations)))
    return each * (1 if _is_of_one_table(item) else len(item.moments))


def _branches(item: Derivation, derivations: Sequence[Derivation]) -> Iterator[exp.Select]:
    """I4: one branch for each moment that may be the latest; moments of one table stay together."""
    known = tuple(_known_before(item, derivations))
    if _is_of_one_table(item):
        window = (*_up_to(item.moments, T), _after_tau(item.moments))
        yield select(named(item.columns), item.tables, (*item.conditions, *window, *known))
        return
    moments = item.moments[::-1]
    for number, newest in enumerate(moments):
        window = (
            _after_tau((newest,)),
            *_up_to((newest,), T),
            *_up_to(moments[:number], TAU),
            *_up_to(moments[number + 1 :], T),
        )
        yield select(named(item.columns), item.tables, (*item.conditions, *window, *known))


def _known_before(item: Derivation, derivations: Sequence[Derivation]) -> Iterator[exp.Expr]:
    """I2: combinations that another alternative of the same SELECT made results up to tau."""
    for other in _others(item, derivations):
        before = exp.and_(*(condition.copy() for condition in other.by(placeholder(TAU))))
        yield exp.not_(exp.paren(before).is_(exp.true()))


def _others(item: Derivation, derivations: Sequence[Derivation]) -> Iterator[Derivation]:
    """Iterate over the other derivations of the same SELECT whose tables are all among those of this one."""
    aliases = {table.alias for table in item.tables}
    for other in derivations:
        is_apart = other is item or other.arm != item.arm or not other.plain
        if not is_apart and {table.alias for table in other.tables} <= aliases:
            yield other


def _is_of_one_table(item: Derivation) -> bool:
    return len({_tables_of(moment) for moment in item.moments}) == 1


def _up_to(moments: Iterable[Instant], name: str) -> tuple[exp.Expr, ...]:
    return at_most_each((moment, Instant(placeholder(name))) for moment in moments)


def _after_tau(moments: Iterable[Instant]) -> exp.Expr:
    """I1: at least one moment is later than tau."""
    after = [at_most(Instant(placeholder(TAU), 1), moment) for moment in moments]
    return exp.or_(*(condition for condition in after if condition is not None))


def _tables_of(moment: Instant) -> frozenset[str]:
    return frozenset(column.table for column in moment.base.find_all(exp.Column))
