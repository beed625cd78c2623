"""Formulas of conditions that involve current time: true or not true, without NOT, and their disjunctive normal form (R5)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Final

from sqlglot import exp

from quaestor.continuous.sql.model import (
    UNTIL,
    Conjunction,
    Instant,
    TableUse,
    column,
    distinct,
    earliest_of_each,
    latest_of_each,
)
from quaestor.continuous.sql.refusals import QueryRefusedError
from quaestor.tables.schema import TS

MOST_DISJUNCTS: Final = 64
"""Most conjunctions of one SELECT, absent parts included: their number can grow exponentially with the text."""


@dataclass(frozen=True, slots=True)
class Static:
    """Condition without current time: true where SQL's value is TRUE."""

    condition: exp.Expr


@dataclass(frozen=True, slots=True)
class Lower:
    """Bound c <= t."""

    instant: Instant


@dataclass(frozen=True, slots=True)
class Upper:
    """Bound t <= d."""

    instant: Instant


@dataclass(frozen=True, slots=True)
class Every:
    """Conjunction of formulas; without parts: true."""

    parts: tuple[Formula, ...]


@dataclass(frozen=True, slots=True)
class Some:
    """Disjunction of formulas; without parts: false."""

    parts: tuple[Formula, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """Combinations of rows of tables that fulfil a formula."""

    tables: tuple[TableUse, ...]
    formula: Formula


@dataclass(frozen=True, slots=True)
class Present:
    """Truth of: at least one of the blocks has a combination of rows."""

    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Absent:
    """Truth of: none of the blocks has a combination of rows."""

    blocks: tuple[Block, ...]


Formula = Static | Lower | Upper | Every | Some | Present | Absent


def every(parts: Iterable[Formula]) -> Formula:
    """Return the conjunction of formulas."""
    members = tuple(parts)
    return members[0] if len(members) == 1 else Every(members)


def some(parts: Iterable[Formula]) -> Formula:
    """Return the disjunction of formulas. Conditions without current time stay one condition."""
    members: list[Formula] = []
    for part in parts:
        members.extend(part.parts if isinstance(part, Some) else (part,))
    whole = [part.condition for part in members if isinstance(part, Static)]
    if len(whole) > 1:
        members = [part for part in members if not isinstance(part, Static)]
        members.insert(0, Static(exp.or_(*whole)))
    return members[0] if len(members) == 1 else Some(tuple(members))


def conjunctions(block: Block) -> tuple[Conjunction, ...]:
    """Return the conjunctions whose union is a block.

    Raises QueryRefusedError where there are more than MOST_DISJUNCTS.
    """
    own = _of_tables(block.tables)
    return tuple(_tidy(_joined((own, part))) for part in _bounded(_disjuncts(block.formula)))


def _of_tables(tables: tuple[TableUse, ...]) -> Conjunction:
    """Return R9's bounds: a row counts from its publication on; a version until the next version (R20)."""
    return Conjunction(
        tables,
        tuple(exp.not_(column(table.alias, table.deletions).is_(exp.true())) for table in tables if table.deletions),
        tuple(Instant(column(table.alias, TS)) for table in tables),
        tuple(Instant(column(table.alias, UNTIL), -1) for table in tables if table.key),
        (),
    )


_NOTHING: Final = Conjunction((), (), (), (), ())


def _disjuncts(formula: Formula) -> list[Conjunction]:
    match formula:
        case Static(condition):
            return [Conjunction((), (condition,), (), (), ())]
        case Lower(instant):
            return [Conjunction((), (), (instant,), (), ())]
        case Upper(instant):
            return [Conjunction((), (), (), (instant,), ())]
        case Some(parts):
            return _bounded([part for member in parts for part in _disjuncts(member)])
        case Present(blocks):
            return _bounded([part for block in blocks for part in conjunctions(block)])
        case Absent(blocks):
            absent = tuple(_bounded([part for block in blocks for part in conjunctions(block)]))
            return [Conjunction((), (), (), (), absent)]
        case Every(parts):
            disjuncts = [_NOTHING]
            for member in parts:
                disjuncts = [_joined(pair) for pair in product(disjuncts, _disjuncts(member))]
                _bounded(disjuncts)
            return disjuncts


def _bounded(disjuncts: list[Conjunction]) -> list[Conjunction]:
    size = sum(disjunct.size for disjunct in disjuncts)
    if size > MOST_DISJUNCTS:
        raise QueryRefusedError(
            0,
            0,
            f"the conditions on current time make {size} alternatives, more than {MOST_DISJUNCTS}",
            "write fewer ORs over current time, or several queries",
        )
    return disjuncts


def _joined(parts: Iterable[Conjunction]) -> Conjunction:
    members = tuple(parts)
    return Conjunction(
        tuple(table for part in members for table in part.tables),
        tuple(condition for part in members for condition in part.static),
        tuple(instant for part in members for instant in part.lowers),
        tuple(instant for part in members for instant in part.uppers),
        tuple(absent for part in members for absent in part.absent),
    )


def _tidy(conjunction: Conjunction) -> Conjunction:
    return Conjunction(
        conjunction.tables,
        distinct(
            part
            for condition in conjunction.static
            for part in (condition.flatten() if isinstance(condition, exp.And) else (condition,))
        ),
        latest_of_each(conjunction.lowers),
        earliest_of_each(conjunction.uppers),
        conjunction.absent,
    )
