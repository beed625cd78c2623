"""Comparison of a compiled query's runs with the oracle over every instant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pyarrow as pa

from quaestor.continuous.compilation import CompiledQuery, compile_query
from quaestor.continuous.executors.executor import Executor
from quaestor.continuous.sql.refusals import QueryRefusedError
from quaestor.tables.instants import instant_of
from quaestor.tables.schema import Column, Schema, Type
from tests.continuous import oracle
from tests.continuous.random_queries import INSTANTS, Queries, histories, schedule

_COLUMNS = (Column("id", Type.TEXT), Column("k", Type.BIGINT), Column("a", Type.TIMESTAMP), Column("b", Type.TIMESTAMP))
CATALOGUE = {
    "m": Schema(_COLUMNS),
    "r": Schema(_COLUMNS),
    "v": Schema((*_COLUMNS, Column("deleted", Type.BOOL)), key=("id",)),
}
_ARROW = {
    Type.TEXT: pa.string(),
    Type.BIGINT: pa.int64(),
    Type.TIMESTAMP: pa.timestamp("us", "UTC"),
    Type.BOOL: pa.bool_(),
}
MOST_TEXT = 2500
"""Longest text that is executed: engines plan a longer one for seconds."""
MOST_TEXT_OF_GROUPS = 6000
Rows = Sequence[Mapping[str, Any]]


def arrow(rows: Rows, schema: Schema) -> pa.Table:
    """Return rows, whose instants are ticks, as a table."""
    fields = [pa.field(column.name, _ARROW[column.type]) for column in schema.columns]
    fields.append(pa.field("ts", pa.timestamp("us", "UTC")))
    return pa.Table.from_pylist([dict(row) for row in rows], schema=pa.schema(fields))


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return the rows of a table, with instants as ticks."""
    return [tuple(ticks(value) for value in row.values()) for row in table.to_pylist()]


def ticks(value: Any) -> Any:
    """Return a timestamp as ticks, another value as it is."""
    if not hasattr(value, "tzinfo"):
        return value
    return instant_of(value.replace(tzinfo=None))


class Runs:
    """Runs of a compiled query over a history."""

    def __init__(
        self,
        executor: Executor,
        compiled: CompiledQuery,
        tables: Mapping[str, Rows],
        catalogue: Mapping[str, Schema] = CATALOGUE,
    ) -> None:
        self.executor = executor
        self.compiled = compiled
        self.tables = tables
        self.catalogue = catalogue

    def rows(self, expression: Any, tau: int | None, t: int, *, whole: bool = False) -> list[tuple[Any, ...]]:
        """Return rows of an expression. whole: the snapshot holds rows later than t too."""
        snapshots = {
            name: arrow([row for row in self.tables[name] if whole or row["ts"] <= t], self.catalogue[name])
            for name in self.compiled.tables
        }
        return rows_of(self.executor.rows(expression, tau, t, snapshots))


def differences(
    executor: Executor, seed: int, *, plain: bool = False, grouped: bool = False, fixed: oracle.Query | None = None
) -> list[str] | None:
    """Return the differences between a random query's runs and the oracle; None: the query was refused, or is long.

    fixed: a query instead of a random one.
    """
    random = Random(seed)
    queries = Queries(random, plain=plain)
    query = fixed or (queries.grouped() if grouped else queries.query())
    tables, instants = histories(random, most=7 if grouped else 4), schedule(random)
    if grouped:
        instants = [*sorted(random.sample(range(9), 3)), INSTANTS[-1]]
    try:
        compiled = compile_query(query.sql(), CATALOGUE)
    except QueryRefusedError as error:
        if "never true" in error.reason:
            return [query.sql()] if oracle.first_instants(query, tables, INSTANTS) else None
        return None if "alternatives" in error.reason else [f"{error}: {query.sql()}"]
    if len(compiled.first_only.sql()) > (MOST_TEXT_OF_GROUPS if grouped else MOST_TEXT):
        return None
    first = oracle.first_instants(query, tables, INSTANTS)
    runs = Runs(executor, compiled, tables)
    faults: list[str] = []

    def check(name: str, actual: Any, expected: Any) -> None:
        if actual != expected:
            faults.append(f"{name}: {actual} instead of {expected}")

    delivered: set[tuple[Any, ...]] = set()
    exact: list[tuple[Any, ...]] = []
    combinations: list[tuple[Any, ...]] = []
    tau: int | None = None
    for t in instants:
        whole = random.random() < 0.5
        expected = {row for row, instant in first.items() if instant <= t}
        new = runs.rows(compiled.incremental, tau, t, whole=whole)
        combinations += new
        check(f"incremental within ({tau}, {t}]", set(new) <= expected, True)
        again = {row for row in new if tau is not None and first.get(row, tau + 1) <= tau}
        if compiled.repeats_within is not None:
            late = {row for row in again if first[row] + compiled.repeats_within <= tau}
            check(f"rows that came again too late in ({tau}, {t}]", late, set())
        delivered |= set(new)
        check(f"delivered up to {t}", delivered, expected)
        exact += runs.rows(compiled.first_only, tau, t, whole=whole)
        check(f"exact up to {t}", sorted(map(repr, exact)), sorted(map(repr, expected)))
        check(f"monotone at {t}", set(runs.rows(compiled.monotone, None, t, whole=whole)), expected)
        world = oracle.World(tables, frozenset({"v"}), t)
        check(
            f"standard at {t}", set(runs.rows(compiled.standard, None, t, whole=whole)), set(query.results(world, {}))
        )
        tau = t
    entered = {row[:-1]: row[-1] for row in runs.rows(compiled.entries, None, instants[-1])}
    check("instants of entering", entered, first)
    if plain or not compiled.may_repeat:
        check("rows delivered twice", len(combinations), len(set(combinations)))
    if faults:
        faults.append(
            f"seed {seed}: {query.sql()}\nincremental: {compiled.incremental.sql('duckdb')}\n{instants} {tables}"
        )
    return faults
