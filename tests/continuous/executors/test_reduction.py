"""Reduced joins: a run on copies reads its new rows and their partners only, and its rows are those of the whole join."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from random import Random
from typing import Any, Self

import duckdb
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
from tests.continuous.checks import CATALOGUE, Runs, differences
from tests.continuous.random_queries import Queries

CHAINS = """SELECT m.id, r.id AS reply, a.id AS answer FROM msgs m, msgs r, msgs a
    WHERE m.to_id = 0 AND r.to_id = m.id AND a.to_id = r.id"""
_X, _Y, _Z, _V = ("m", "x"), ("r", "y"), ("m", "z"), ("v", "v")


def _id(alias: str) -> oracle.Column:
    return oracle.Column(alias, "id")


def _equal(first: str, second: str) -> oracle.Compare:
    return oracle.Compare(oracle.Column(first, "k"), "=", oracle.Column(second, "k"))


_NO_LATER = oracle.Not(
    oracle.Exists(
        oracle.Select(
            (_id("z"),), (_Z,), (),
            oracle.And((_equal("z", "y"), oracle.Compare(oracle.Column("z", "a"), ">", oracle.Column("x", "a")))),
        )
    )
)  # fmt: skip
JOINED = {
    "chain": oracle.Select(
        (_id("x"), _id("z")), (_X, _Y, _Z), (),
        oracle.And((_equal("x", "y"), _equal("y", "z"), oracle.Compare(_id("z"), "<>", "m0"))),
    ),
    "versions": oracle.Select(
        (_id("x"), _id("v")), (_X, _V), (),
        oracle.And((_equal("x", "v"), oracle.Now(oracle.Column("v", "a"), "<=", 0, 0))),
    ),
    "absent": oracle.Select((_id("x"),), (_X, _Y), (), oracle.And((_equal("x", "y"), _NO_LATER))),
}  # fmt: skip
"""Joins by equality: a chain with a condition on a partner, versions by another column than their key, and NOT EXISTS."""
ORDER = KnownOrder("msgs", "id", "msgs", "to_id")
OLD, NEW = 250_000, 250
ROW_GROUP = 122_880
"""Rows that DuckDB stores together."""
SPACING_US = 10_000


class EveryTable(KeptTables):
    """Copies of all tables of a run, also of tables in memory."""

    def fits(self, rows: Any) -> bool:
        return isinstance(rows, pa.Table)

    def use(self, cursor: duckdb.DuckDBPyConnection, rows: Any, joined: set[str]) -> str:
        name = f"t{len(self.counts)}"
        cursor.register("given", without_zones(rows))
        cursor.execute(f"CREATE TABLE {DATABASE}.{name} AS SELECT * FROM given")
        cursor.unregister("given")
        for number, column in enumerate(sorted(joined & set(rows.schema.names))):
            cursor.execute(f"CREATE INDEX i{number}_{name} ON {DATABASE}.{name} ({column})")
        self.counts[name] = rows.num_rows
        return name

    def release(self, cursor: duckdb.DuckDBPyConnection, names: Iterable[str]) -> None:
        pass


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
    assert [fault for seed in range(4) for fault in differences(reducing, seed) or ()] == []
    assert Steps.count > 5


@pytest.mark.parametrize("query", JOINED)
def test_reduced_joins_agree_with_the_oracle(
    reducing: DuckDbExecutor, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    """Also where a key has too many rows: then the other conditions of the table are tried, and then no reduction."""
    for most in (1, 1_000):
        monkeypatch.setattr(reduction, "_FEW_ROWS", most)
        assert [fault for seed in (2, 3) for fault in differences(reducing, seed, fixed=JOINED[query]) or ()] == []
    assert Steps.count > 10


def joined(seed: int, *, plain: bool) -> oracle.Select:
    """Return a random query over two tables whose rows must have the same k."""
    queries = Queries(Random(seed), plain=plain)
    while True:
        select = queries.select((), 1, None)
        if len(select.tables) == 2:
            (_, left), (_, right) = select.tables
            equal = _equal(left, right)
            where = equal if select.where is None else oracle.And((equal, select.where))
            return replace(select, where=where)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("query", ["plain", "any", *JOINED])
def test_many_reduced_joins_agree_with_the_oracle(
    reducing: DuckDbExecutor, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    """Random joins of two tables deliver each result of every instant once, and most of them are reduced; so do the others."""
    seeds = range(1_000, 1_100)
    for seed in seeds:
        monkeypatch.setattr(reduction, "_FEW_ROWS", (1, 2, 1_000)[seed % 3])
        fixed = JOINED.get(query) or joined(seed, plain=query == "plain")
        assert not differences(reducing, seed, plain=query == "plain", fixed=fixed)
    assert Steps.count > len(seeds)


def test_versions_are_reduced_by_their_keys_only(reducing: DuckDbExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version of value 1 ended before message 1 came. A mutant that leaves out its successor, of value 2, joins both."""
    compiled = compile_query("SELECT m.id FROM m, v WHERE v.k = m.k", CATALOGUE)
    versions = (("first", 1, 1), ("first", 2, 3), ("second", 3, 2))
    tables: dict[str, list[dict[str, Any]]] = {
        "v": [{"id": record, "k": value, "ts": instant, "deleted": False} for record, value, instant in versions],
        "m": [{"id": f"message {value}", "k": value, "ts": 5} for value in (1, 3)],
    }
    runs = Runs(reducing, compiled, tables)
    assert runs.rows(compiled.incremental, 4, 6) == [("message 3",)]
    assert Steps.count > 0
    monkeypatch.setattr(reduction._Source, "joins_on", lambda *_: True)
    assert sorted(runs.rows(compiled.incremental, 4, 6)) == [("message 1",), ("message 3",)]


def test_alternatives_do_not_reduce(reducing: DuckDbExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant that also reduces by equalities within an OR differs within 20 random histories, and the rule in none of 3."""
    either = oracle.Or((_equal("x", "y"), oracle.Compare(oracle.Column("y", "k"), "=", 1)))
    query = oracle.Select((_id("x"), _id("y")), (_X, _Y), (), either)
    assert not any(differences(reducing, seed, fixed=query) for seed in range(3))

    def every(where: exp.Expr) -> list[exp.Expr]:
        return [*conjuncts(where), *where.find_all(exp.EQ)]

    monkeypatch.setattr(reduction, "conjuncts", every)
    assert any(differences(reducing, seed, fixed=query) for seed in range(20))


class Profiled:
    """Connection that counts the rows that the operators of its queries read from tables.

    read: number of rows that each statement read, in order.
    looked_up: those of the statements that look for partners by key.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.read: list[int] = []
        self.looked_up: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def cursor(self) -> Self:
        cursor = type(self)(self._connection.cursor())
        cursor.read, cursor.looked_up = self.read, self.looked_up
        return cursor

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def execute(self, text: str, *args: Any) -> Any:
        if text.startswith("CREATE TEMP TABLE"):
            self._profile(text.partition(" AS ")[2])
        return self._connection.execute(text, *args)

    def sql(self, text: str) -> Any:
        self._profile(text)
        return self._connection.sql(text)

    def _profile(self, text: str) -> None:
        ((_, profile),) = self._connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}").fetchall()
        self.read.append(json.loads(profile)["query"]["total_rows_scanned"])
        if "SEMI JOIN" in text:
            self.looked_up.append(self.read[-1])


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Catalogue:
    """Make many old messages and few new ones, half of them replies, in two files."""
    catalogue = Catalogue(tmp_path_factory.mktemp("history"), clock=lambda: 946_684_800_000)
    table = catalogue.create("msgs", Schema((Column("id", Type.BIGINT), Column("to_id", Type.BIGINT))))
    random = np.random.default_rng(Random(3).randrange(2**32))
    numbers = np.arange(1, OLD + NEW + 1)
    parents = np.where(random.random(OLD + NEW) < 0.5, numbers - random.integers(1, 5_000, OLD + NEW), 0)
    for part in (slice(0, OLD), slice(OLD, OLD + NEW)):
        rows = pa.table({"id": numbers[part], "to_id": np.maximum(parents[part], 0)})
        table.append(rows, steps=[SPACING_US * step for step in range(rows.num_rows)])
    return catalogue


@pytest.mark.parametrize(("text", "orders"), [(CHAINS, [ORDER]), (CHAINS, [])])
def test_a_run_reads_as_many_rows_as_are_new(
    history: Catalogue, monkeypatch: pytest.MonkeyPatch, text: str, orders: list[KnownOrder]
) -> None:
    """By DuckDB's own profile. Without the reduction the same run reads the history, and returns the same rows.

    A look at partners reads a few rows for each new row, or the row group of the new rows, which is read whole.
    """
    compiled = compile_query(text, history.schemas(), orders=orders)
    table = history.open("msgs")
    upto = table.close()
    (_, new) = sorted(table.snapshot().files.values(), key=lambda file: file.first)
    rows = []
    with DuckDbExecutor(threads=1) as executor:
        profiled = executor._connection = Profiled(executor._connection)  # type: ignore[assignment]
        query = SqlQuery(compiled, history, executor)
        for many in (10**9, 10_000):
            monkeypatch.setattr(reduction, "MANY_ROWS", many)
            profiled.read.clear()
            evaluated = query.rows(new.first - 1, upto, {"msgs": table.snapshot()})
            rows.append(sorted(map(repr, evaluated.rows.to_pylist())))
            if many > OLD:
                assert (sum(profiled.read) > OLD, profiled.looked_up) == (True, [])
    assert rows[0] == rows[1]
    assert len(rows[0]) > 20
    assert len(profiled.looked_up) == (2 if orders else 6)
    assert max(profiled.looked_up) < OLD % ROW_GROUP + 4 * NEW
    assert sum(profiled.read) < 4 * (OLD % ROW_GROUP) + 30 * NEW


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
