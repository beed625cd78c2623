"""Queries at the same time in DuckDB: a slow query holds up no other, and ends after its time limit."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest
from sqlglot import exp, parse_one

from quaestor.continuous.executors import time_limit
from quaestor.continuous.executors.duckdb import DuckDbExecutor
from quaestor.continuous.executors.executor import ExecutionError
from quaestor.continuous.executors.stored import StoredRows
from quaestor.continuous.sql_engine import SqlEngine
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.schema import Column, Schema, Type

MANY = pa.table({"id": range(100_000), "ts": pa.array([1] * 100_000, pa.timestamp("us", "UTC"))})
FEW = MANY.slice(0, 1)
ENDLESS = "SELECT COUNT(*) AS n FROM t AS a, t AS b, t AS c WHERE a.id * b.id % 7 = c.id % 11"
REPLIED = "SELECT m.id FROM m, r WHERE r.to_id = m.id"
LIMIT_S = 7.0


class Begun(StoredRows):
    """Rows in memory that report when the executor reads them."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows
        self.after = 0
        self.begun = Event()

    def arrow(self) -> Any:
        self.begun.set()
        return self.rows


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> Event:
    """Return the event that lets the time limit pass."""
    limit_passed = Event()

    class Clock(Event):
        def wait(self, timeout: float | None = None) -> bool:
            while timeout == LIMIT_S and not self.is_set() and not limit_passed.wait(0.01):
                pass
            return super().wait(0.01)

    monkeypatch.setattr(time_limit, "Event", Clock)
    return limit_passed


@pytest.fixture
def executor() -> Iterator[DuckDbExecutor]:
    with DuckDbExecutor(threads=2, limit_s=LIMIT_S) as engine:
        yield engine


def query(text: str) -> exp.Query:
    tree = parse_one(text, read="duckdb")
    assert isinstance(tree, exp.Query)
    return tree


def test_a_slow_query_delays_no_other(executor: DuckDbExecutor, passed: Event) -> None:
    """A query that would take days runs beside a short one. Only its time limit ends it; the engine stays usable."""
    slow = Begun(MANY)
    with ThreadPoolExecutor(2) as threads:
        endless = threads.submit(executor.rows, query(ENDLESS), None, 2, {"t": slow})
        try:
            assert slow.begun.wait(60)
            short = threads.submit(executor.rows, query("SELECT id FROM t"), None, 2, {"t": FEW})
            assert short.result(60).to_pylist() == [{"id": 0}]
            assert not endless.done()
        finally:
            passed.set()
        with pytest.raises(ExecutionError, match="longer than 7 s: simplify it, or raise continuous_limit_s") as raised:
            endless.result(60)
    assert not raised.value.retryable
    passed.clear()
    assert executor.rows(query("SELECT id FROM t"), None, 2, {"t": FEW}).num_rows == 1


def test_times_are_in_utc_on_every_cursor(executor: DuckDbExecutor) -> None:
    rows = executor.rows(
        query("SELECT ts FROM t WHERE ts = TIMESTAMPTZ '1970-01-01 00:00:00.000001'"), None, 2, {"t": FEW}
    )
    assert (rows.num_rows, str(rows.schema.field("ts").type)) == (1, "timestamp[us, tz=UTC]")


def test_queries_share_copies_at_the_same_time(tmp_path: Path) -> None:
    """Runs in many threads on growing tables, whose copies get further columns meanwhile, return what one thread returns."""
    tables = Catalogue(tmp_path / "tables")
    messages = tables.create("m", Schema((Column("id", Type.BIGINT), Column("note", Type.TEXT))))
    replies = tables.create("r", Schema((Column("to_id", Type.BIGINT), Column("kind", Type.TEXT))))
    texts = (REPLIED, "SELECT m.note FROM m, r WHERE r.to_id = m.id", "SELECT r.kind FROM m, r WHERE r.to_id = m.id")

    def run(engine: SqlEngine, text: str, upto: int) -> list[str]:
        prepared = engine.prepare(text)
        snapshots = {name: tables.open(name).snapshot() for name in prepared.tables}
        return sorted(map(str, prepared.rows(1, upto, snapshots).rows.to_pylist()))

    with DuckDbExecutor(threads=2) as executor, ThreadPoolExecutor(8) as threads:
        runs = []
        for step in range(12):
            messages.append({"id": step * 5 + number, "note": f"note {number}"} for number in range(5))
            replies.append([{"to_id": step * 5 + 1, "kind": "new"}, {"to_id": step, "kind": "old"}])
            upto = min(messages.close(), replies.close())
            runs += [(text, upto, threads.submit(run, SqlEngine(tables, executor), text, upto)) for text in texts]
        with DuckDbExecutor(threads=1, kept_bytes=0) as fresh:
            for text, upto, rows in runs:
                assert rows.result(120) == run(SqlEngine(tables, fresh), text, upto)
        assert len(executor._kept.counts) == 2
