"""Random queries of the whole grammar, random histories and random schedules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.continuous import oracle

INSTANTS = range(-2, 26)
"""Instants that a schedule may use; nothing happens after the last."""
OPERATORS = ("<", "<=", ">", ">=", "=", "<>")
Names = tuple[str, ...]


def histories(random: Random, *, most: int = 4) -> dict[str, list[dict[str, Any]]]:
    """Return rows of the tables m and r, and versions of the table v. Many instants are equal, many values are NULL."""

    def instant() -> int | None:
        return random.choice([None, *range(-1, 9)])

    tables: dict[str, list[dict[str, Any]]] = {"m": [], "r": [], "v": []}
    for name in ("m", "r"):
        for number in range(random.randrange(most + 1)):
            tables[name].append(
                {
                    "id": f"{name}{number}",
                    "k": random.choice([0, 0, 1, None]),
                    "a": instant(),
                    "b": instant(),
                    "ts": random.randrange(8),
                }
            )
    for number in range(random.randrange(3)):
        for ts in sorted(random.sample(range(9), random.randrange(1, 4))):
            tables["v"].append(
                {
                    "id": f"v{number}",
                    "k": random.choice([0, 0, 1, None]),
                    "a": instant(),
                    "b": instant(),
                    "deleted": random.choice([None, False, False, True]),
                    "ts": ts,
                }
            )
    return tables


def schedule(random: Random) -> list[int]:
    """Return the instants of runs; the last is the last of all."""
    return [*sorted(random.sample(INSTANTS[:-1], random.randrange(5))), INSTANTS[-1]]


@dataclass
class Queries:
    """Generator of queries.

    random: source of randomness.
    plain: whether queries have no subqueries, outer joins or set operations, and select the id of each table.
    """

    random: Random
    plain: bool = False
    _count: int = field(default=0)

    def query(self) -> oracle.Query:
        """Return a query for the outermost level."""
        if not self.plain and self.random.random() < 0.12:
            kind = self.random.choice(["UNION", "INTERSECT", "EXCEPT"])
            width = self.random.randrange(1, 3)
            return oracle.SetOperation(kind, self.select((), 1, width), self.select((), 1, width))
        return self.select((), 2, None)

    def grouped(self) -> oracle.Grouped:
        """Return a query with GROUP BY, and HAVING or the first groups of an order."""
        random = self.random
        tables = tuple((self._table(), self._alias()) for _ in range(random.choice([1, 1, 1, 2])))
        names = tuple(alias for _, alias in tables)
        kinds = ("COUNT(*)", "COUNT", "COUNT(DISTINCT)", "SUM", "AVG", "MIN", "MAX")
        aggregates = []
        for _ in range(random.choice([1, 1, 2])):
            kind = random.choice(kinds)
            column = oracle.Column(
                random.choice(names), random.choice(["id", "k"]) if kind == "COUNT(DISTINCT)" else "k"
            )
            aggregates.append(oracle.Aggregate(kind, column))
        keys = tuple(
            oracle.Column(random.choice(names), name) for name in random.choice([["k"], ["k"], ["id"], ["id", "k"]])
        )
        parts = tuple((number, random.choice(OPERATORS), random.randrange(4)) for number in range(len(aggregates)))
        first = random.random() < 0.35
        having = None if first and random.random() < 0.7 else oracle.Threshold(parts, random.random() < 0.5)
        return oracle.Grouped(
            keys,
            tuple(aggregates),
            tables,
            self._condition_of_groups(names),
            having,
            random.random() < 0.3,
            tuple((number, random.random() < 0.6) for number in range(len(aggregates))) if first else (),
            random.randrange(1, 3) if first else None,
        )

    def _condition_of_groups(self, names: Names) -> oracle.Condition | None:
        match self.random.randrange(5):
            case 0:
                return None
            case 1:
                return oracle.Not(oracle.Exists(self.select(names, 1, 1)))
            case 2:
                return oracle.And((self._leaf(names), self._leaf(names)))
            case _:
                return self._leaf(names)

    def select(self, outer: Names, depth: int, width: int | None) -> oracle.Select:
        """Return a SELECT. outer: aliases of the SELECTs around it; depth: of its conditions."""
        number = self.random.choice([1, 1, 1, 2]) if not outer else 1
        tables = tuple((self._table(), self._alias()) for _ in range(number))
        names = outer + tuple(alias for _, alias in tables)
        own = [alias for _, alias in tables]
        joins = []
        if not self.plain and self.random.random() < 0.2:
            alias = self._alias()
            names += (alias,)
            own.append(alias)
            kind = self.random.choice(["LEFT", "LEFT", "RIGHT", "FULL", "INNER"])
            # An outer reference in ON is allowed for inner joins only in some engines, so ON names the own tables.
            joins.append(oracle.Join(kind, self._table(), alias, self.condition(tuple(own), 1, subqueries=False)))
        where = self.condition(names, depth) if self.random.random() < 0.95 else None
        if self.plain and self.random.random() < 0.6:
            where = oracle.Or((self.condition(names, 1), self.condition(names, 1)))
        if outer and where is not None and self.random.random() < 0.7:
            equal = oracle.Compare(oracle.Column(own[0], "k"), "=", oracle.Column(self.random.choice(outer), "k"))
            where = oracle.And((equal, where))
        return oracle.Select(self._columns(own, width), tables, tuple(joins), where)

    def condition(self, names: Names, depth: int, *, subqueries: bool = True) -> oracle.Condition:
        """Return a condition on the columns of some tables."""
        deeper = depth - 1
        if depth <= 0 or self.random.random() < 0.15:
            return self._leaf(names)

        def part() -> oracle.Condition:
            return self.condition(names, deeper, subqueries=subqueries)

        choices: list[Callable[[], oracle.Condition]] = [
            lambda: self._leaf(names),
            lambda: oracle.And((part(), part())),
            lambda: oracle.And((self._leaf(names), part())),
            lambda: oracle.Or((part(), part())),
            lambda: oracle.Not(part()),
            lambda: oracle.Case(part(), self._leaf(names), self._leaf(names) if self.random.random() < 0.7 else None),
            lambda: oracle.Coalesce(part(), self._leaf(names)),
            lambda: oracle.Is(part(), self.random.choice([True, False, None]), self.random.random() < 0.5),
        ]
        if subqueries and not self.plain:
            choices += [
                lambda: oracle.Exists(self.select(names, deeper, 1)),
                lambda: oracle.Not(oracle.Exists(self.select(names, deeper, 1))),
                lambda: oracle.And((self._leaf(names), oracle.Not(oracle.Exists(self.select(names, deeper, 1))))),
                lambda: self._quantified(names, deeper),
            ]
        return self.random.choice(choices)()

    def _quantified(self, names: Names, depth: int) -> oracle.Condition:
        select = self.select(names, depth, 1)
        own = select.tables[0][1]
        select = oracle.Select((oracle.Column(own, "k"),), select.tables, select.joins, select.where)
        form = self.random.choice(["in", "any", "all"])
        operator = "=" if form == "in" else self.random.choice(OPERATORS)
        whole = oracle.Quantified(oracle.Column(self.random.choice(names), "k"), operator, form, select)
        return oracle.Not(whole) if self.random.random() < 0.4 else whole

    def _leaf(self, names: Names) -> oracle.Condition:
        random = self.random
        column = oracle.Column(
            random.choice(names), random.choice(["a", "b", "ts", "a"]), random.choice([0, 0, 1, 3, -2])
        )
        match random.randrange(8):
            case 0:
                return oracle.Compare(
                    oracle.Column(random.choice(names), "k"), random.choice(OPERATORS), random.choice([0, 1])
                )
            case 1:
                other = oracle.Column(random.choice(names), random.choice(["a", "b", "ts"]))
                return oracle.Compare(column, random.choice(OPERATORS), other)
            case 2:
                return oracle.IsNull(oracle.Column(random.choice(names), random.choice(["k", "a"])))
            case 3:
                return oracle.NowBetween(column, oracle.Column(random.choice(names), random.choice(["a", "b"]), 3))
            case _:
                return oracle.Now(
                    column, random.choice(OPERATORS), random.choice([0, 0, 1, -1, 4]), random.randrange(9)
                )

    def _columns(self, own: list[str], width: int | None) -> tuple[oracle.Column, ...]:
        if self.plain:
            return tuple(oracle.Column(alias, "id") for alias in own)
        if width is None:
            width = self.random.choice([1, 1, 2])
        names = ("id", "id") if width > 1 else ("id", "id", "id", "k")
        return tuple(
            oracle.Column(self.random.choice(own), self.random.choice(names[number::2])) for number in range(width)
        )

    def _table(self) -> str:
        return self.random.choice(["m", "r", "m", "r"] if self.plain else ["m", "r", "m", "r", "v"])

    def _alias(self) -> str:
        self._count += 1
        return f"x{self._count}"
