"""Standard form of a continuous query: a union of conjunctions, with bounds of the current time taken out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from sqlglot import exp

UNTIL: Final = "_until"
"""Column of tables of versions: the instant of the next version, or the end of time."""


@dataclass(frozen=True, slots=True)
class Instant:
    """Instant that a row decides: a timestamp, and ticks to add.

    base: expression without current time.
    ticks: microseconds.
    """

    base: exp.Expr
    ticks: int = 0

    def later(self, ticks: int) -> Instant:
        """Return the instant some ticks later."""
        return replace(self, ticks=self.ticks + ticks)

    @property
    def name(self) -> str:
        """Text of the base: instants of equal name differ by their ticks only."""
        return self.base.sql()


@dataclass(frozen=True, slots=True)
class TableUse:
    """Use of a table in a query.

    alias: unique in the whole query.
    key: columns that identify a record, for tables of versions.
    deletions: column that marks deleted versions; empty: there is none.
    """

    name: str
    alias: str
    key: tuple[str, ...] = ()
    deletions: str = ""


@dataclass(frozen=True, slots=True)
class Conjunction:
    """Combinations of rows that fulfil every condition at an instant s.

    static: conditions without current time.
    lowers: instants c with c <= s, those of publication included.
    uppers: instants d with s <= d.
    absent: conjunctions without any combination of rows at s.
    """

    tables: tuple[TableUse, ...]
    static: tuple[exp.Expr, ...]
    lowers: tuple[Instant, ...]
    uppers: tuple[Instant, ...]
    absent: tuple[Conjunction, ...]

    def renamed(self, suffix: str) -> Conjunction:
        """Return a copy whose own tables, and tables of its parts, have other aliases."""
        return _renamed(self, {table.alias: f"{table.alias}{suffix}" for table in self.all_tables()})

    @property
    def size(self) -> int:
        """Number of conjunctions, absent parts included."""
        return 1 + sum(part.size for part in self.absent)

    def all_tables(self) -> Iterator[TableUse]:
        """Yield the tables, those of absent parts included."""
        yield from self.tables
        for part in self.absent:
            yield from part.all_tables()


@dataclass(frozen=True, slots=True)
class Selection:
    """Conjunction and the columns of a result.

    columns: expressions by name, in order.
    arm: number of the SELECT that the conjunction belongs to.
    """

    columns: tuple[tuple[str, exp.Expr], ...]
    conjunction: Conjunction
    arm: int


def column(alias: str, name: str) -> exp.Column:
    """Return a column of a table use."""
    return exp.column(name, table=alias)


def latest_of_each(instants: Iterable[Instant]) -> tuple[Instant, ...]:
    """Return the latest instant of each base: it implies the others as a lower bound."""
    return _each(instants, lambda known, other: max(known, other, key=_ticks))


def earliest_of_each(instants: Iterable[Instant]) -> tuple[Instant, ...]:
    """Return the earliest instant of each base: it implies the others as an upper bound."""
    return _each(instants, lambda known, other: min(known, other, key=_ticks))


def _each(instants: Iterable[Instant], choice: Callable[[Instant, Instant], Instant]) -> tuple[Instant, ...]:
    """Return the chosen instant of each base, in the order of the bases."""
    best: dict[str, Instant] = {}
    for instant in instants:
        best[instant.name] = choice(best.setdefault(instant.name, instant), instant)
    return tuple(best.values())


def _ticks(instant: Instant) -> int:
    return instant.ticks


def distinct(conditions: Iterable[exp.Expr]) -> tuple[exp.Expr, ...]:
    """Return conditions without repetitions, in order."""
    return tuple({condition.sql(): condition for condition in conditions}.values())


def with_aliases(expression: exp.Expr, names: Mapping[str, str]) -> exp.Expr:
    """Return an expression whose tables have other aliases. names: new alias by the old one."""
    return expression.transform(
        lambda node: (
            exp.column(node.this.copy(), table=names[node.table])
            if isinstance(node, exp.Column) and node.table in names
            else node
        )
    )


def _renamed(conjunction: Conjunction, names: dict[str, str]) -> Conjunction:
    def condition(expression: exp.Expr) -> exp.Expr:
        return with_aliases(expression, names)

    def bounds(instants: tuple[Instant, ...]) -> tuple[Instant, ...]:
        return tuple(Instant(condition(instant.base), instant.ticks) for instant in instants)

    return Conjunction(
        tuple(replace(table, alias=names[table.alias]) for table in conjunction.tables),
        tuple(condition(expression) for expression in conjunction.static),
        bounds(conjunction.lowers),
        bounds(conjunction.uppers),
        tuple(_renamed(part, names) for part in conjunction.absent),
    )
