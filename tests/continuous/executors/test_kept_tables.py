"""Copies of tables in DuckDB: a run over rows of any age reads new files only, and returns what a fresh engine returns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from quaestor.continuous.executors.duckdb import DuckDbExecutor
from quaestor.continuous.sql_engine import SqlEngine, SqlQuery
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.maintenance import maintain
from quaestor.tables.schema import Column, Schema, Type

REPLIED = "SELECT m.id FROM m, r WHERE r.to_id = m.id AND r.kind = 'new'"


@pytest.fixture
def executor() -> Iterator[DuckDbExecutor]:
    with DuckDbExecutor(threads=1) as engine:
        yield engine


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalogue:
    tables = Catalogue(tmp_path / "tables")
    tables.create("m", Schema((Column("id", Type.BIGINT), Column("kind", Type.TEXT))))
    tables.create("r", Schema((Column("id", Type.BIGINT), Column("to_id", Type.BIGINT), Column("kind", Type.TEXT))))
    return tables


def run(query: SqlQuery, catalogue: Catalogue, after: int) -> tuple[int, list[str], int]:
    """Return the closed instant, the rows of a run after an instant, and the number of rows that the run read."""
    closed = min(catalogue.open(name).close() for name in query.tables)
    evaluated = query.rows(after, closed, {name: catalogue.open(name).snapshot() for name in query.tables})
    return closed, sorted(map(repr, evaluated.rows.to_pylist())), evaluated.read.rows


def test_a_join_reads_new_files_only(executor: DuckDbExecutor, catalogue: Catalogue) -> None:
    """The second run needs old rows, finds them in the copy, and reads one new row; an old file may be gone."""
    messages, replies = catalogue.open("m"), catalogue.open("r")
    messages.append({"id": number, "kind": "x"} for number in range(100))
    (old,) = messages.snapshot().files
    query = SqlEngine(catalogue, executor).prepare(REPLIED)
    after, rows, read = run(query, catalogue, 1)
    assert (rows, read) == ([], 100)
    messages.table.storage.delete(old)
    replies.append([{"id": 1, "to_id": 7, "kind": "new"}])
    after, rows, read = run(query, catalogue, after)
    assert (rows, read) == (["{'id': 7}"], 1)
    assert run(query, catalogue, after)[1:] == ([], 0)


def test_a_table_beyond_the_limit_is_read_each_time(catalogue: Catalogue) -> None:
    """The memory has a bound: no copy of a larger table is kept."""
    catalogue.open("m").append({"id": number, "kind": "x"} for number in range(100))
    with DuckDbExecutor(threads=1, kept_bytes=10) as executor:
        query = SqlEngine(catalogue, executor).prepare(REPLIED)
        after, _, read = run(query, catalogue, 1)
        assert read == run(query, catalogue, after)[2] == 100


def test_copies_follow_the_table(executor: DuckDbExecutor, catalogue: Catalogue) -> None:
    """Runs on copies equal runs of a fresh engine: while tables grow, are compacted, and get new and wider columns."""
    messages, replies = catalogue.open("m"), catalogue.open("r")
    texts = (REPLIED, "SELECT m.id, r.id AS reply FROM m LEFT JOIN r ON r.to_id = m.id AND r.kind = m.kind")
    wider = Schema((Column("id", Type.DOUBLE), Column("note", Type.TEXT)))
    after = 1
    for step in range(8):
        messages.append({"id": step * 10 + number, "kind": "new"} for number in range(10))
        replies.append(
            {"id": number, "to_id": step * 7 + number, "kind": ("new", None)[number % 2]} for number in range(9)
        )
        if step == 4:
            messages.append([{"id": 0.5, "note": "half"}], additions=wider)
            texts += ("SELECT m.note FROM m, r WHERE r.to_id = m.id",)
        if step == 6:
            maintain(messages.table, file_bytes=10**6, keep_days=0, grace_s=0, now_ms=10**15)
        for text in texts:
            kept = SqlEngine(catalogue, executor).prepare(text)
            with DuckDbExecutor(threads=1, kept_bytes=0) as fresh:
                for form in (kept.compiled.incremental, kept.compiled.first_only):
                    compiled = replace(kept.compiled, incremental=form)
                    closed, rows, _ = run(SqlQuery(compiled, catalogue, executor), catalogue, after)
                    assert rows == run(SqlQuery(compiled, catalogue, fresh), catalogue, after)[1]
        after = closed - 1


def test_a_run_of_the_past_sees_no_later_rows(executor: DuckDbExecutor, catalogue: Catalogue) -> None:
    """The copy may be ahead of a run: the run's instant bounds its rows."""
    messages, replies = catalogue.open("m"), catalogue.open("r")
    messages.append([{"id": 1, "kind": "x"}])
    then = min(messages.close(), replies.close())
    replies.append([{"id": 1, "to_id": 1, "kind": "new"}])
    query = SqlEngine(catalogue, executor).prepare(REPLIED)
    assert run(query, catalogue, 1)[1] == ["{'id': 1}"]
    snapshots = {name: catalogue.open(name).snapshot() for name in query.tables}
    assert query.rows(1, then, snapshots).rows.num_rows == 0
