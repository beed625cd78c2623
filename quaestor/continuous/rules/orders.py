"""Known orders between rows of tables, such as: a reply comes after its message (I5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from quaestor.continuous.sql.model import Conjunction, TableUse, column, distinct
from quaestor.tables.schema import TS


@dataclass(frozen=True, slots=True)
class KnownOrder:
    """Promise about two rows: if their columns are equal, the first row was published before the second, or with it.

    earlier: name of the table of the first row.
    earlier_column: its column.
    later: name of the table of the second row.
    later_column: its column.
    """

    earlier: str
    earlier_column: str
    later: str
    later_column: str

    def __str__(self) -> str:
        return (
            f"{self.earlier}.ts <= {self.later}.ts where {self.earlier}.{self.earlier_column} ="
            f" {self.later}.{self.later_column}"
        )


def ordered_pairs(part: Conjunction, orders: Iterable[KnownOrder]) -> dict[tuple[str, str], KnownOrder]:
    """Return the pairs (earlier, later) of instants of publication whose order is known, by their names."""
    return {
        (column(first, TS).sql(), column(second, TS).sql()): order
        for first, second, order in _pairs(part.tables, part.static, orders)
    }


def with_orders(
    part: Conjunction, orders: Sequence[KnownOrder], around: tuple[TableUse, ...] = (), known: tuple[exp.Expr, ...] = ()
) -> Conjunction:
    """Return a conjunction with its known orders as conditions, those of absent parts included (I6).

    around: tables of the conjunctions around it.
    known: conditions of these conjunctions.

    Such a condition is true while the order holds, and bounds the instants that a run reads of the tables.
    """
    if not orders:
        return part
    own = {table.alias for table in part.tables}
    tables, conditions = (*around, *part.tables), (*known, *part.static)
    bounds = tuple(
        exp.LTE(this=column(first, TS), expression=column(second, TS))
        for first, second, _ in _pairs(tables, conditions, orders)
        if own & {first, second}
    )
    return replace(
        part,
        static=distinct((*part.static, *bounds)),
        absent=tuple(with_orders(absent, orders, tables, conditions) for absent in part.absent),
    )


def bounded_by_orders(part: Conjunction, orders: Sequence[KnownOrder]) -> Conjunction:
    """Return a conjunction with its known orders as conditions, without the lower bounds that follow from them (I5, I6)."""
    known = ordered_pairs(part, orders)
    kept = list(part.lowers)
    for lower in part.lowers:
        others = [other for other in kept if other is not lower]
        if any((lower.name, other.name) in known and lower.ticks <= other.ticks for other in others):
            kept = others
    return replace(with_orders(part, orders), lowers=tuple(kept))


def used_orders(part: Conjunction, orders: Iterable[KnownOrder]) -> set[KnownOrder]:
    """Return the orders that `with_orders` makes conditions of."""
    return _used(part, tuple(orders), (), ())


def _used(
    part: Conjunction,
    orders: tuple[KnownOrder, ...],
    around: tuple[TableUse, ...],
    known: tuple[exp.Expr, ...],
) -> set[KnownOrder]:
    tables, conditions = (*around, *part.tables), (*known, *part.static)
    used = {order for _, _, order in _pairs(tables, conditions, orders)}
    return used.union(*(_used(absent, orders, tables, conditions) for absent in part.absent))


def _pairs(
    tables: Sequence[TableUse], conditions: Iterable[exp.Expr], orders: Iterable[KnownOrder]
) -> Iterator[tuple[str, str, KnownOrder]]:
    """Yield the aliases of two tables, and the order that the conditions give their rows."""
    equal = {condition.sql() for condition in conditions if isinstance(condition, exp.EQ)}
    for order in orders:
        for first in tables:
            for second in tables:
                if (first.name, second.name) != (order.earlier, order.later) or first is second:
                    continue
                left, right = column(first.alias, order.earlier_column), column(second.alias, order.later_column)
                if {f"{left.sql()} = {right.sql()}", f"{right.sql()} = {left.sql()}"} & equal:
                    yield first.alias, second.alias, order
