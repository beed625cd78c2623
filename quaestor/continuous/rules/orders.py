"""Known orders between rows of tables, such as: a reply comes after its message (I5)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlglot import exp

from quaestor.continuous.sql.model import Conjunction, column
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
    equal = {condition.sql() for condition in part.static if isinstance(condition, exp.EQ)}
    pairs = {}
    for order in orders:
        for first in part.tables:
            for second in part.tables:
                if (first.name, second.name) != (order.earlier, order.later) or first is second:
                    continue
                left, right = column(first.alias, order.earlier_column), column(second.alias, order.later_column)
                if {f"{left.sql()} = {right.sql()}", f"{right.sql()} = {left.sql()}"} & equal:
                    pairs[column(first.alias, TS).sql(), column(second.alias, TS).sql()] = order
    return pairs
