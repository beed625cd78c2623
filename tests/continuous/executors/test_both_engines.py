"""DuckDB and Spark on the same plans: equal rows for random queries, and for tables in files of every form."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from quaestor.continuous.compilation import compile_query
from quaestor.continuous.executors.choice import ExecutorBySize, executor_of
from quaestor.continuous.executors.duckdb import DuckDbExecutor
from quaestor.continuous.executors.executor import ExecutionError, Executor
from quaestor.continuous.executors.spark import SparkExecutor
from quaestor.continuous.executors.stored import StoredRows
from quaestor.errors import ConfigurationError
from quaestor.settings.continuous import ContinuousSettings
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.maintenance import maintain
from quaestor.tables.schema import Column, Schema, Type
from tests.continuous.checks import differences
from tests.continuous.spark_engine import spark_engine


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkExecutor]:
    with spark_engine() as engine:
        yield engine


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalogue:
    return Catalogue(tmp_path / "tables")


def stored(catalogue: Catalogue, text: str) -> tuple[Any, int, dict[str, StoredRows]]:
    """Return a compiled query, the present instant, and the rows of its tables."""
    compiled = compile_query(text, catalogue.schemas())
    instant = min(catalogue.open(name).close() for name in compiled.tables)
    rows = {}
    for name in compiled.tables:
        table = catalogue.open(name)
        rows[name] = StoredRows(table, table.snapshot(), (-1, instant), table.schema().names)
    return compiled, instant, rows


def sorted_rows(executor: Executor, expression: Any, tau: int | None, t: int, rows: Any) -> list[str]:
    return sorted(map(repr, executor.rows(expression, tau, t, rows).to_pylist()))


@pytest.mark.parametrize("seed", [6, 26])
def test_spark_agrees_with_the_oracle(spark: SparkExecutor, seed: int) -> None:
    """Runs on Spark deliver each result of every instant once."""
    assert differences(spark, seed) == []


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("plain", [True, False])
def test_spark_agrees_with_the_oracle_on_many_queries(spark: SparkExecutor, plain: bool) -> None:
    """The same promise, and DuckDB's, on a batch of queries in one session."""
    with DuckDbExecutor(threads=1) as duckdb:
        for seed in range(150):
            assert not differences(duckdb, seed, plain=plain)
            assert not differences(spark, seed, plain=plain)


def _one_file_each(catalogue: Catalogue) -> None:
    """Each entry has one file."""


def _compacted(catalogue: Catalogue) -> None:
    for name in catalogue.names():
        maintain(catalogue.open(name).table, file_bytes=10**6, keep_days=0, grace_s=0, now_ms=10**15)


@pytest.mark.parametrize("form", [_one_file_each, _compacted])
def test_engines_read_files_of_every_form(
    spark: SparkExecutor, catalogue: Catalogue, form: Callable[[Catalogue], None]
) -> None:
    """Files with one instant, with steps, before and after a column was added and widened, and compacted files."""
    table = catalogue.create("m", Schema((Column("id", Type.BIGINT), Column("size", Type.BIGINT))))
    catalogue.create("none", Schema((Column("id", Type.BIGINT),)))
    table.append([{"id": 1, "size": 5}, {"id": 2, "size": None}])
    first = table.append([{"id": 3, "size": 7}, {"id": 4, "size": 8}, {"id": 5, "size": 9}], steps=[0, 3, 7])
    wider = Schema((Column("id", Type.BIGINT), Column("size", Type.DOUBLE), Column("Due at", Type.TIMESTAMP)))
    table.append([{"id": number, "size": 0.5} for number in range(6, 9)], additions=wider)
    for number in range(9, 14):
        table.append([{"id": number, "size": 1}])
    form(catalogue)
    text = """SELECT m.id, m.size, m.ts AS published, m."Due at" AS due FROM m LEFT JOIN none ON none.id = m.id
        WHERE NOT EXISTS (SELECT 1 FROM m AS o WHERE o.id = m.id + 1 AND o.ts < m.ts)"""
    compiled, now, rows = stored(catalogue, text)
    with DuckDbExecutor() as duckdb:
        for tau in (None, first - 4):
            for expression in (compiled.incremental, compiled.entries):
                expected = sorted_rows(duckdb, expression, tau, now, rows)
                assert sorted_rows(spark, expression, tau, now, rows) == expected
            if tau is None:
                assert len(expected) == 13


def test_files_outside_the_run_are_not_read(spark: SparkExecutor, catalogue: Catalogue) -> None:
    """A run of Spark reads the files of its own instants only: an older file is gone, and the run does not notice."""
    table = catalogue.create("m", Schema((Column("id", Type.BIGINT),)))
    tau = table.append([{"id": 1}])
    (old,) = table.snapshot().files
    table.append([{"id": 2}])
    compiled, now, rows = stored(catalogue, "SELECT id FROM m")
    expected = [repr({"id": 2})]
    assert sorted_rows(spark, compiled.incremental, tau, now, rows) == expected
    table.table.storage.delete(old)
    assert sorted_rows(spark, compiled.incremental, tau, now, rows) == expected
    with pytest.raises(ExecutionError) as failure:
        sorted_rows(spark, compiled.incremental, None, now, rows)
    assert failure.value.retryable


def test_intervals_keep_their_ticks_on_spark(spark: SparkExecutor, catalogue: Catalogue) -> None:
    """Weeks, days and microseconds after an instant are exact, and so is the day of an instant."""
    table = catalogue.create("m", Schema((Column("id", Type.BIGINT), Column("at", Type.TIMESTAMP))))
    table.append(
        {"id": number, "at": datetime(2026, 3, day, 23, 59, 59, 999_990 + tick, UTC)}
        for number, (day, tick) in enumerate((day, tick) for day in (1, 28, 29, 31) for tick in (0, 9))
    )
    text = """SELECT id, at + INTERVAL 2 WEEK AS later, at - INTERVAL 1 MICROSECOND AS before, greatest(at, ts) AS newest
        FROM m WHERE at + INTERVAL 3 DAY + INTERVAL 1 MICROSECOND < now() AND date_trunc('day', at) <= now()"""
    compiled, now, rows = stored(catalogue, text)
    with DuckDbExecutor() as duckdb:
        assert sorted_rows(spark, compiled.monotone, None, now, rows) == sorted_rows(
            duckdb, compiled.monotone, None, now, rows
        )


def test_a_subquery_may_name_tables_two_levels_out(spark: SparkExecutor, catalogue: Catalogue) -> None:
    """Spark does not allow such subqueries, so they are rewritten."""
    for name in "vrm":
        catalogue.create(name, Schema((Column("id", Type.BIGINT), Column("k", Type.BIGINT)))).append(
            {"id": number, "k": number % 3 or None} for number in range(9)
        )
    text = """SELECT m.id FROM m WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.k = m.k AND NOT EXISTS (
        SELECT 1 FROM v WHERE v.k = m.k AND v.id < r.id + 1
        AND NOT EXISTS (SELECT 1 FROM r AS o WHERE o.id = m.id + v.id + r.id)))"""
    compiled, now, rows = stored(catalogue, text)
    with DuckDbExecutor() as duckdb:
        expected = sorted_rows(duckdb, compiled.first_only, 1, now, rows)
        assert 0 < len(expected) < 9
        assert sorted_rows(spark, compiled.first_only, 1, now, rows) == expected


def test_a_failure_on_spark_is_one_of_the_query(spark: SparkExecutor, catalogue: Catalogue) -> None:
    """A value that does not fit is an error of the query, which recurs."""
    table = catalogue.create("m", Schema((Column("id", Type.TEXT),)))
    table.append([{"id": "x"}])
    compiled, now, rows = stored(catalogue, "SELECT CAST(id AS BIGINT) AS number FROM m")
    with pytest.raises(ExecutionError) as failure:
        spark.rows(compiled.incremental, None, now, rows)
    assert not failure.value.retryable


class Counting(DuckDbExecutor):
    """DuckDB that counts its queries."""

    calls = 0

    def rows(self, *args: Any, **given: Any) -> Any:
        self.calls += 1
        return super().rows(*args, **given)


def test_the_size_of_the_tables_chooses_the_engine(catalogue: Catalogue) -> None:
    """A query whose tables grow beyond the limit moves to the large engine."""
    table = catalogue.create("m", Schema((Column("id", Type.BIGINT),)))
    small, large = Counting(), Counting()
    with ExecutorBySize(small, large, 2_000) as executor:
        for count in (1, 10_000):
            table.append({"id": number} for number in range(count))
            compiled, now, rows = stored(catalogue, "SELECT id FROM m")
            executor.rows(compiled.incremental, None, now, rows)
    assert (small.calls, large.calls) == (1, 1)


def test_the_setting_names_an_engine_or_a_size() -> None:
    """An unknown engine is an error of the configuration; sizes have a unit."""
    for choice in ("duckdb", "spark", "10GB", "0.5 TB"):
        ContinuousSettings(continuous_executor=choice)
        executor_of(choice, "local[1]").close()
    with pytest.raises(ConfigurationError, match="duckdb, spark, or a size like '10GB'"):
        ContinuousSettings(continuous_executor="flink")
