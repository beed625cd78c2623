"""Reduction of joins in DuckDB: a run fetches its new rows first, then only the rows of other tables that join with them (I7).

Without it the engine may join two old tables before the few new rows. Each step is a temporary table, so the order is fixed.
Few keys are looked up in the index of a copy; many keys are one pass over their column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import duckdb
from sqlglot import exp

from quaestor.continuous.executors.binding import Window, conjuncts, timestamp_literal, windows
from quaestor.continuous.executors.kept import DATABASE
from quaestor.continuous.reach import is_versions
from quaestor.tables.schema import TS

MANY_ROWS: Final = 100_000
"""Rows of the largest copy of a query from which its joins are reduced: smaller joins cost less than the steps."""
MOST_KEYS: Final = 10_000
"""Keys that DuckDB looks up in an index one by one, if they are few beside the rows of the table."""
_LARGEST_PART: Final = 8
"""A reduced table holds at most this part of its copy; otherwise a whole pass is cheaper."""
_FEW_ROWS: Final = 1_000
_SIMPLE: Final = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)


@dataclass(frozen=True, slots=True)
class _Source:
    """Use of a copy in a SELECT.

    table: its place in the query.
    key: columns whose versions must stay together; None: the table has no versions.
    """

    table: exp.Table
    key: frozenset[str] | None

    def joins_on(self, name: str) -> bool:
        """Whether rows with other values of a column may be left out."""
        return self.key is None or name in self.key


class Reduction:
    """Temporary tables of one query. The rows of the query stay the same.

    counts: rows of each copy, by the name of the copy.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, counts: Mapping[str, int]) -> None:
        self._connection = connection
        self._counts = counts
        self._tables: dict[str, str | None] = {}
        self._created: list[str] = []

    def apply(self, query: exp.Query) -> None:
        """Let a bound query read temporary tables in the place of copies, where its conditions allow it."""
        copies = [table.name for table in query.find_all(exp.Table) if table.db == DATABASE]
        if max((self._counts[name] for name in copies), default=0) < MANY_ROWS:
            return
        names = {column.name for column in query.find_all(exp.Column)}
        known: dict[int, dict[str, str]] = {}
        for select in list(query.find_all(exp.Select)):  # the queries around a subquery come first
            around = select.parent_select if isinstance(select.parent, exp.Exists) else None
            known[id(select)] = self._reduced(select, known.get(id(around), {}), names)

    def drop(self) -> None:
        """Drop the temporary tables."""
        for name in self._created:
            self._connection.execute(f'DROP TABLE IF EXISTS "{name}"')

    def _reduced(self, select: exp.Select, around: Mapping[str, str], names: set[str]) -> dict[str, str]:
        """Reduce the tables of a SELECT; return the temporary table of each alias, those of the queries around included."""
        sources = _sources(select)
        known = {alias: table for alias, table in around.items() if alias not in sources}
        conditions = list(conjuncts(select.args["where"].this)) if select.args.get("where") else []
        links = list(_links(conditions))
        for alias, window in windows(select).items():
            if alias in sources and window.after is not None and _is_joined(select, alias):
                source = sources.pop(alias)
                own = _bounds(source, alias, window) or _simple(conditions, alias)
                self._replace(known, alias, source, self._text(source, alias, names, own))
        reduced = True
        while reduced:
            reduced = False
            for column, partner in links:
                waiting = sources.get(column.table)
                if waiting is None or partner.table not in known or not waiting.joins_on(column.name):
                    continue
                del sources[column.table]
                own = [] if waiting.key is not None else _simple(conditions, column.table)
                keys = _keys(column, partner, known[partner.table])
                # DuckDB looks keys up in an index only if the table has no other condition. Each key may have too many rows then.
                texts = [self._text(waiting, column.table, names, tried, keys) for tried in ([], own)]
                reduced |= any(self._replace(known, column.table, waiting, text) for text in dict.fromkeys(texts))
        return known

    def _text(
        self, source: _Source, alias: str, names: set[str], conditions: Iterable[exp.Expr], keys: str = ""
    ) -> str:
        """Return SQL for the rows of a copy that fulfil conditions and have one of some keys."""
        described = self._connection.execute(f"SELECT * FROM {DATABASE}.{source.table.name} LIMIT 0").description
        columns = [exp.column(name, table=alias, quoted=True) for name, *_ in described or () if name in names | {TS}]
        where = " AND ".join(f"({condition.sql('duckdb')})" for condition in conditions)
        return (
            f"SELECT {', '.join(column.sql('duckdb') for column in columns)}"
            f" FROM {DATABASE}.{source.table.name} AS {exp.to_identifier(alias).sql('duckdb')} {keys}"
            f"{' WHERE ' if where else ''}{where}"
        )

    def _replace(self, known: dict[str, str], alias: str, source: _Source, text: str) -> bool:
        """Let a query read the rows of a text; return whether they are few enough."""
        if text not in self._tables:
            name, most = (
                f"reduced {len(self._tables)}",
                max(_FEW_ROWS, self._counts[source.table.name] // _LARGEST_PART),
            )
            self._created.append(name)
            made = self._connection.execute(f'CREATE TEMP TABLE "{name}" AS {text} LIMIT {most + 1}').fetchone()
            self._tables[text] = name if made is not None and made[0] <= most else None
        reduced = self._tables[text]
        if reduced is None:
            return False
        known[alias] = reduced
        table = exp.table_(reduced, quoted=True)
        given = source.table.alias
        source.table.replace(exp.alias_(table, given, table=True) if given else table)
        return True


def _sources(select: exp.Select) -> dict[str, _Source]:
    """Return the copies that a SELECT joins, by alias; none if it has other joins than products."""
    joins = select.args.get("joins") or []
    if any(join.args.get("on") or join.args.get("using") or join.side for join in joins):
        return {}
    sources = {}
    first = select.args.get("from_")
    for clause in (first, *joins) if first else ():
        node = clause.this
        key: frozenset[str] | None = None
        table = node
        if isinstance(node, exp.Subquery) and is_versions(node.this):
            (lead,) = node.this.find_all(exp.Window)
            key = frozenset(column.name for column in lead.args.get("partition_by") or ())
            table = node.find(exp.Table)
        if isinstance(table, exp.Table) and table.db == DATABASE:
            sources[node.alias_or_name] = _Source(table, key)
    return sources


def _links(conditions: Iterable[exp.Expr]) -> Iterator[tuple[exp.Column, exp.Column]]:
    """Yield the columns that must be equal, in both directions."""
    for condition in conditions:
        if isinstance(condition, exp.EQ):
            left, right = condition.this, condition.expression
            if isinstance(left, exp.Column) and isinstance(right, exp.Column) and left.table != right.table:
                yield left, right
                yield right, left


def _is_joined(select: exp.Select, alias: str) -> bool:
    """Whether an equality with another table, or in a subquery, has a column of the table."""
    return any(alias in (left.table, right.table) for left, right in _links(select.find_all(exp.EQ)))


def _bounds(source: _Source, alias: str, window: Window) -> list[exp.Expr]:
    """Return the bound of versions: those after an instant keep their successors. A plain table has none here."""
    if source.key is None or window.after is None:
        return []
    return [exp.GT(this=exp.column(TS, table=alias), expression=timestamp_literal(window.after))]


def _simple(conditions: Iterable[exp.Expr], alias: str) -> list[exp.Expr]:
    """Return the comparisons of a table's columns with constants."""
    return [
        condition
        for condition in conditions
        if isinstance(condition, _SIMPLE)
        and any(
            isinstance(column, exp.Column) and column.table == alias and _is_constant(value)
            for column, value in (
                (condition.this, condition.expression),
                (condition.expression, condition.this),
            )
        )
    ]


def _is_constant(node: exp.Expr) -> bool:
    return isinstance(node.this if isinstance(node, exp.Cast) else node, exp.Literal)


def _keys(column: exp.Column, partner: exp.Column, table: str) -> str:
    """Return SQL that joins a table with the different keys of a reduced one."""
    key = exp.column(partner.this.copy()).sql("duckdb")
    return (
        f'SEMI JOIN (SELECT DISTINCT {key} AS "key" FROM "{table}" WHERE {key} IS NOT NULL) AS "keys"'
        f' ON {column.sql("duckdb")} = "keys"."key"'
    )
