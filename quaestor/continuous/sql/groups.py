"""Grouped SELECT in standard form: HAVING thresholds, and the first k groups in an order by aggregates (R18)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from quaestor.continuous.sql.blocks import selections_of
from quaestor.continuous.sql.current_time import involves_time
from quaestor.continuous.sql.model import Conjunction
from quaestor.continuous.sql.refusals import refusal
from quaestor.tables.schema import Schema, Type

STATE: Final = "_state"
"""Alias of the groups with their aggregates as of an instant."""
_SETS: Final = frozenset({"ROLLUP", "CUBE"})
_AGGREGATES: Final = (exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Aggregate of a group.

    kind: node of sqlglot.
    value: name of its argument in the rows of the group; None: COUNT(*).
    different: whether equal values count once.
    whole: whether the result is a BIGINT on every engine.
    """

    kind: type[exp.AggFunc]
    value: str | None
    different: bool
    whole: bool

    def of(self, value: exp.Expr | None) -> exp.Expr:
        """Return the aggregate of an argument, in the type that the engine gives it."""
        if value is None:
            return exp.Count(this=exp.Star())
        return self.kind(this=exp.Distinct(expressions=[value]) if self.different else value)

    def typed(self, value: exp.Expr) -> exp.Expr:
        """Return a value of the aggregate in the type that all engines give it."""
        return exp.cast(value, "BIGINT") if self.whole else value


@dataclass(frozen=True, slots=True)
class Grouped:
    """Groups of the combinations of rows of a conjunction.

    values: keys, then arguments of aggregates, by name, as expressions over the rows.
    keys: names of the keys.
    aggregates: by name.
    columns: of the result, as expressions over keys and aggregates.
    having: condition on keys and aggregates.
    order: of the groups; only with a limit. Ties are in the order of the keys.
    limit: most groups at each instant; None: all.
    """

    conjunction: Conjunction
    values: tuple[tuple[str, exp.Expr], ...]
    keys: tuple[str, ...]
    aggregates: tuple[tuple[str, Aggregate], ...]
    columns: tuple[tuple[str, exp.Expr], ...]
    having: exp.Expr | None
    order: tuple[exp.Ordered, ...]
    limit: int | None

    @property
    def shows_aggregates(self) -> bool:
        """Whether the result holds an aggregate, so that one group gives several results over time."""
        names = {name for name, _ in self.aggregates}
        return any(part.name in names for _, value in self.columns for part in value.find_all(exp.Column))


def grouped_of(query: exp.Query, catalogue: Mapping[str, Schema]) -> Grouped | None:
    """Return the standard form of a query with GROUP BY; None: it has none.

    Raises QueryRefusedError.
    """
    if not isinstance(query, exp.Select) or query.args.get("group") is None:
        return None
    return _Reader(query, catalogue).grouped()


class _Reader:
    """Reader of one grouped SELECT."""

    def __init__(self, query: exp.Select, catalogue: Mapping[str, Schema]) -> None:
        self._query = query
        self._catalogue = catalogue
        group = query.args["group"]
        sets = group.find(exp.Rollup, exp.Cube, exp.GroupingSets)
        named = [key for key in group.expressions if not (isinstance(key, exp.Anonymous) and key.name.upper() in _SETS)]
        if sets is not None or not named or named != group.expressions:
            raise refusal(group, "GROUP BY holds something else than expressions", "name the columns of the groups")
        self._keys = list(group.expressions)
        self._aggregates: dict[str, exp.AggFunc] = {}

    def grouped(self) -> Grouped:
        query = self._query
        columns = tuple((item.alias_or_name, self._over_groups(item.unalias())) for item in query.expressions)
        having = query.args.get("having")
        condition = self._over_groups(having.this) if having is not None else None
        limit = self._limit()
        order = tuple(self._ordered(dict(columns))) if limit is not None else ()
        keys = tuple(f"g{number}" for number in range(len(self._keys)))
        aggregates = tuple(self._described(number, node) for number, node in enumerate(self._aggregates.values()))
        arguments = [(item.value, argument) for (_, item), argument in zip(aggregates, self._arguments(), strict=True)]
        wanted = [
            *zip(keys, self._keys, strict=True),
            *((name, argument) for name, argument in arguments if name is not None and argument is not None),
        ]
        rows = query.copy()
        for clause in ("group", "having", "order", "limit", "distinct"):
            rows.set(clause, None)
        rows.set("expressions", [exp.alias_(value.copy(), name) for name, value in wanted])
        selections = selections_of(rows, self._catalogue)
        if len(selections) != 1:
            raise refusal(
                query,
                f"the rows of the groups are in {len(selections)} alternatives, which could count a row twice",
                "leave OR over current time, CASE over current time and outer joins out of a query with GROUP BY",
            )
        return Grouped(
            selections[0].conjunction, selections[0].columns, keys, aggregates, columns, condition, order, limit
        )

    def _over_groups(self, expression: exp.Expr) -> exp.Expr:
        """Return an expression over keys and aggregates."""
        if involves_time(expression):
            raise refusal(expression, "current time stands beside aggregates", "compare current time in WHERE")
        if expression.find(exp.Query) is not None:
            raise refusal(expression, "a subquery stands beside aggregates", "write it in WHERE")
        replaced = expression.copy().transform(self._replaced)
        for column in replaced.find_all(exp.Column):
            if column.table != STATE:
                raise refusal(column, f"{column.sql()} is neither grouped nor aggregated", "add the column to GROUP BY")
        return replaced

    def _replaced(self, node: exp.Expr) -> exp.Expr:
        for number, key in enumerate(self._keys):
            if node == key:
                return exp.column(f"g{number}", table=STATE)
        if isinstance(node, exp.Window | exp.Filter | exp.WithinGroup):
            raise refusal(
                node, f"{node.key.upper()} is not accepted here", "write a plain aggregate, or CASE inside it"
            )
        if isinstance(node, exp.AggFunc):
            if not isinstance(node, _AGGREGATES) or node.expressions:
                raise refusal(node, f"{node.key.upper()} is not accepted here", "write COUNT, SUM, AVG, MIN or MAX")
            names = list(self._aggregates)
            text = node.sql()
            if text not in self._aggregates:
                self._aggregates[text] = node
                names.append(text)
            return exp.column(f"a{names.index(text)}", table=STATE)
        return node

    def _arguments(self) -> Iterator[exp.Expr | None]:
        for node in self._aggregates.values():
            inner = node.this
            if isinstance(inner, exp.Distinct):
                if len(inner.expressions) != 1:
                    raise refusal(node, "DISTINCT has several arguments", "write one argument")
                inner = inner.expressions[0]
            yield None if isinstance(inner, exp.Star) else inner

    def _described(self, number: int, node: exp.AggFunc) -> tuple[str, Aggregate]:
        different = isinstance(node.this, exp.Distinct)
        if different and isinstance(node, exp.Sum | exp.Avg):
            raise refusal(node, f"{node.key.upper()} of DISTINCT values is not accepted", "leave DISTINCT out")
        value = None if isinstance(node.this, exp.Star) else f"v{number}"
        whole = isinstance(node, exp.Count) or (isinstance(node, exp.Sum) and self._is_whole(node.this))
        return f"a{number}", Aggregate(type(node), value, different and isinstance(node, exp.Count), whole)

    def _is_whole(self, argument: exp.Expr) -> bool:
        """Whether an argument is a column of whole numbers."""
        return isinstance(argument, exp.Column) and any(
            table.alias_or_name == argument.table and self._catalogue[table.name].type_of(argument.name) is Type.BIGINT
            for table in self._query.find_all(exp.Table)
        )

    def _limit(self) -> int | None:
        for clause in ("offset", "fetch"):
            node = self._query.args.get(clause)
            if node is not None:
                raise refusal(node, f"{clause.upper()} is not accepted", "write ORDER BY and LIMIT")
        node = self._query.args.get("limit")
        if node is None:
            return None
        if self._query.args.get("order") is None:
            raise refusal(node, "LIMIT has no ORDER BY, so any groups would do", "write ORDER BY before LIMIT")
        value = node.expression
        if not isinstance(value, exp.Literal) or value.is_string or not value.name.isdigit():
            raise refusal(node, "LIMIT is no whole number", "write a number")
        return int(value.name)

    def _ordered(self, columns: Mapping[str, exp.Expr]) -> Iterator[exp.Ordered]:
        for item in self._query.args["order"].expressions:
            inner = item.this
            named = isinstance(inner, exp.Column) and not inner.table and inner.name in columns
            ordered = item.copy()
            ordered.set("this", columns[inner.name].copy() if named else self._over_groups(inner))
            yield ordered
