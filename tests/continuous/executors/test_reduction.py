"""Reduced joins: a run on copies reads its new rows and their partners only, and its rows are those of the whole join."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sqlglot import exp

from quaestor.continuous.compilation import compile_query
from quaestor.continuous.executors import duckdb as duckdb_executor
from quaestor.continuous.executors import reduction
from quaestor.continuous.executors.binding import bound, conjuncts
from quaestor.continuous.executors.duckdb import DuckDbExecutor
from quaestor.continuous.executors.join_order import newest_first
from quaestor.continuous.executors.kept import DATABASE, KeptTables
from quaestor.continuous.executors.zones import without_zones
from quaestor.continuous.rules.orders import KnownOrder
from quaestor.continuous.sql_engine import SqlQuery
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.schema import Column, Schema, Type
from tests.continuous import oracle
from tests.continuous.checks import differences
from tests.continuous.random_queries import Queries

CHAINS = """SELECT m.id, r.id AS reply, a.id AS answer FROM msgs m, msgs r, msgs a
    WHERE m.to_id = -1 AND r.to_id = m.id AND a.to_id = r.id"""
ORDER = KnownOrder("msgs", "id", "msgs", "to_id")
OLD, NEW = 250_000, 250
SPACING_US = 10_000


class EveryTable(KeptTables):
    """Copies of all tables of a run, also of tables in memory."""

    def fits(self, rows: Any) -> bool:
        return isinstance(rows, pa.Table)

    def name_of(self, rows: Any, joined: set[str]) -> str:
        name = f"t{len(self.counts)}"
        self._connection.register("given", without_zones(rows))
        self._connection.execute(f"CREATE TABLE {DATABASE}.{name} AS SELECT * FROM given")
        self._connection.unregister("given")
        for number, column in enumerate(sorted(joined & set(rows.schema.names))):
            self._connection.execute(f"CREATE INDEX i{number}_{name} ON {DATABASE}.{name} ({column})")
        self.counts[name] = rows.num_rows
        return name


class Steps(reduction.Reduction):
    """Reduction that counts its temporary tables."""

    count = 0

    def drop(self) -> None:
        Steps.count += len(self._created)
        super().drop()


@pytest.fixture
def reducing(monkeypatch: pytest.MonkeyPatch) -> Iterator[DuckDbExecutor]:
    """Give an executor that reduces the joins of tables of any size."""
    monkeypatch.setattr(duckdb_executor, "KeptTables", EveryTable)
    monkeypatch.setattr(duckdb_executor, "Reduction", Steps)
    monkeypatch.setattr(reduction, "MANY_ROWS", 0)
    monkeypatch.setattr(Steps, "count", 0)
    with DuckDbExecutor(threads=1) as engine:
        yield engine


def test_reduced_runs_agree_with_the_oracle(reducing: DuckDbExecutor) -> None:
    """Random queries deliver each result of every instant once: joins, NOT EXISTS, versions and outer joins."""
    assert [fault for seed in range(6) for fault in differences(reducing, seed) or ()] == []
    assert Steps.count > 10


def joined(seed: int, *, plain: bool) -> oracle.Select:
    """Return a random query over two tables whose rows must have the same k."""
    queries = Queries(Random(seed), plain=plain)
    while True:
        select = queries.select((), 1, None)
        if len(select.tables) == 2:
            (_, left), (_, right) = select.tables
            equal = oracle.Compare(oracle.Column(left, "k"), "=", oracle.Column(right, "k"))
            where = equal if select.where is None else oracle.And((equal, select.where))
            return replace(select, where=where)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("plain", [True, False])
def test_many_reduced_joins_agree_with_the_oracle(reducing: DuckDbExecutor, plain: bool) -> None:
    """Random joins of two tables deliver each result of every instant once, and most of them are reduced."""
    seeds = range(1_000, 1_100)
    for seed in seeds:
        assert not differences(reducing, seed, plain=plain, fixed=joined(seed, plain=plain))
    assert Steps.count > len(seeds)


def test_alternatives_do_not_reduce(reducing: DuckDbExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant that also reduces by equalities within an OR differs within 60 random queries."""

    def every(where: exp.Expr) -> list[exp.Expr]:
        return [*conjuncts(where), *where.find_all(exp.EQ)]

    monkeypatch.setattr(reduction, "conjuncts", every)
    assert any(differences(reducing, seed) for seed in range(60))


class Profiled:
    """Connection that counts the rows that the operators of its queries read from tables.

    read: number of rows.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.read = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, text: str, *args: Any) -> Any:
        if text.startswith("CREATE TEMP TABLE"):
            self._profile(text.partition(" AS ")[2])
        return self._connection.execute(text, *args)

    def sql(self, text: str) -> Any:
        self._profile(text)
        return self._connection.sql(text)

    def _profile(self, text: str) -> None:
        ((_, profile),) = self._connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}").fetchall()
        self.read += json.loads(profile)["query"]["total_rows_scanned"]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Catalogue:
    """Make many old messages and few new ones, half of them replies, in two files."""
    catalogue = Catalogue(tmp_path_factory.mktemp("history"), clock=lambda: 946_684_800_000)
    table = catalogue.create("msgs", Schema((Column("id", Type.BIGINT), Column("to_id", Type.BIGINT))))
    random = np.random.default_rng(Random(3).randrange(2**32))
    numbers = np.arange(OLD + NEW)
    parents = np.where(random.random(OLD + NEW) < 0.5, numbers - random.integers(1, 5_000, OLD + NEW), -1)
    for part in (slice(0, OLD), slice(OLD, OLD + NEW)):
        rows = pa.table({"id": numbers[part], "to_id": np.maximum(parents[part], -1)})
        table.append(rows, steps=[SPACING_US * step for step in range(rows.num_rows)])
    return catalogue


@pytest.mark.parametrize(("text", "orders"), [(CHAINS, [ORDER]), (CHAINS, [])])
def test_a_run_reads_as_many_rows_as_are_new(
    history: Catalogue, monkeypatch: pytest.MonkeyPatch, text: str, orders: list[KnownOrder]
) -> None:
    """By DuckDB's own profile. Without the reduction the same run reads the history, and returns the same rows."""
    compiled = compile_query(text, history.schemas(), orders=orders)
    table = history.open("msgs")
    upto = table.close()
    (_, new) = sorted(table.snapshot().files.values(), key=lambda file: file.first)
    read, rows = [], []
    with DuckDbExecutor(threads=1) as executor:
        profiled = executor._connection = Profiled(executor._connection)  # type: ignore[assignment]
        query = SqlQuery(compiled, history, executor)
        for many in (10_000, 10**9):
            monkeypatch.setattr(reduction, "MANY_ROWS", many)
            profiled.read = 0
            evaluated = query.rows(new.first - 1, upto, {"msgs": table.snapshot()})
            rows.append(sorted(map(repr, evaluated.rows.to_pylist())))
            read.append(profiled.read)
    assert rows[0] == rows[1]
    assert len(rows[0]) > 20
    assert read[0] < OLD // 8 < OLD < read[1]


def test_joins_begin_with_new_rows_on_spark() -> None:
    """FROM names the table with new rows first, then each table that joins with an earlier one."""
    schema = Schema((Column("id", Type.BIGINT), Column("to_id", Type.BIGINT)))
    for orders, expected in (([ORDER], ["arm"]), ([], ["arm", "rma", "mra"])):
        query = bound(compile_query(CHAINS, {"msgs": schema}, orders=orders).incremental, 10**15, 2 * 10**15)
        newest_first(query)
        parts = query.sql("spark").split("FROM ")[1:]
        assert [
            "".join(part.partition("AS ")[2][0] for part in piece.split("msgs ")[1:]) for piece in parts
        ] == expected
