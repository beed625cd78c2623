"""Subqueries for engines that let a subquery name the tables of the query around it only, not those further out.

Subquery S lies in subquery P, and names a table A around P. P then joins a copy of A: the used columns of the copy equal
those of A. S names the copy. The truth of EXISTS stays the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from sqlglot import exp


def one_level(expression: exp.Query) -> exp.Query:
    """Return the expression with subqueries that name tables one level out only."""
    copy = expression.copy()
    numbers = count(1)
    # Inner queries come first: a copy may name a table two levels out itself.
    for query in sorted(copy.find_all(exp.Select), key=_depth, reverse=True):
        around = _around(query)
        if around is None:
            continue
        near = _aliases(query).keys() | _aliases(around).keys()
        far: dict[str, list[exp.Column]] = {}
        for column in _own_columns(query):
            if column.table and column.table not in near:
                far.setdefault(column.table, []).append(column)
        for alias, columns in far.items():
            source = _source(around, alias)
            if source is not None:
                _join_copy(around, source, columns, f"{alias}_around{next(numbers)}")
    return copy


def _join_copy(query: exp.Select, source: exp.Expr, columns: list[exp.Column], alias: str) -> None:
    twin = source.copy()
    twin.set("alias", exp.TableAlias(this=exp.to_identifier(alias)))
    query.join(twin, join_type="cross", copy=False)
    names = {column.name: column.this for column in columns}
    outer = columns[0].table
    equal = [
        exp.NullSafeEQ(
            this=exp.Column(this=name.copy(), table=exp.to_identifier(alias)),
            expression=exp.Column(this=name.copy(), table=exp.to_identifier(outer)),
        )
        for name in names.values()
    ]
    for column in columns:
        column.set("table", exp.to_identifier(alias))
    query.where(*equal, copy=False)


def _own_columns(query: exp.Select) -> Iterator[exp.Column]:
    """Yield the columns of a query outside its subqueries."""
    for column in query.find_all(exp.Column):
        if column.find_ancestor(exp.Select) is query:
            yield column


def _depth(query: exp.Expr) -> int:
    depth, parent = 0, query.parent
    while parent is not None:
        depth, parent = depth + 1, parent.parent
    return depth


def _around(query: exp.Select) -> exp.Select | None:
    """Return the query whose condition holds a subquery; None: the query is no condition."""
    if query.find_ancestor(exp.Exists) is None:
        return None
    around = query.find_ancestor(exp.Select)
    return around if isinstance(around, exp.Select) else None


def _aliases(query: exp.Select) -> dict[str, exp.Expr]:
    """Return the tables and derived tables of a query by alias."""
    sources = [query.args["from_"].this] if query.args.get("from_") else []
    sources += [join.this for join in query.args.get("joins") or ()]
    return {source.alias_or_name: source for source in sources}


def _source(query: exp.Select, alias: str) -> exp.Expr | None:
    """Return the table of an alias in one of the queries around a query."""
    around = query.find_ancestor(exp.Select)
    while isinstance(around, exp.Select):
        if alias in (known := _aliases(around)):
            return known[alias]
        around = around.find_ancestor(exp.Select)
    return None
