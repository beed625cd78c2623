"""Worked examples of continuous queries: compiled texts, and the instant at which each row enters the result."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quaestor.continuous.compilation import CompiledQuery, at_instant, compile_query
from quaestor.continuous.executors.duckdb import DuckDbExecutor
from quaestor.continuous.rules.orders import KnownOrder
from quaestor.tables.schema import Column, Schema, Type
from tests.continuous.checks import Runs

GOLDEN = Path(__file__).parent / "golden"
EXAMPLES: dict[str, dict[str, Any]] = tomllib.loads((GOLDEN / "queries.toml").read_text())
CATALOGUE = {
    "msgs": Schema(
        (
            Column("id", Type.TEXT),
            Column("inreplyto", Type.TEXT),
            Column("sender", Type.TEXT),
            Column("subject", Type.TEXT),
            Column("date", Type.TIMESTAMP),
            Column("due", Type.TIMESTAMP),
        )
    ),
    "votes": Schema((Column("item", Type.TEXT), Column("voter", Type.TEXT), Column("points", Type.BIGINT))),
    "items": Schema((Column("id", Type.TEXT), Column("price", Type.BIGINT)), key=("id",)),
    "stocks": Schema((Column("id", Type.TEXT), Column("count", Type.BIGINT)), key=("id",)),
}
ROWS: dict[str, list[dict[str, Any]]] = {
    "msgs": [
        {"id": "m1", "ts": 0, "sender": "joe", "subject": "base", "date": 4, "due": 3},
        {"id": "m2", "ts": 2, "sender": "ann", "date": None, "due": 1},
        {"id": "m3", "ts": 3, "sender": "ann", "subject": "a base", "date": 3},
        {"id": "r1", "ts": 5, "inreplyto": "m1", "sender": "ann", "subject": "base", "date": 9},
        {"id": "r3", "ts": 20, "inreplyto": "m3", "sender": "joe", "date": 1, "due": 0},
    ],
    "votes": [
        {"item": "a", "voter": "joe", "points": 1, "ts": 1},
        {"item": "b", "voter": "joe", "points": 2, "ts": 2},
        {"item": "a", "voter": "ann", "points": 3, "ts": 3},
        {"item": "a", "voter": "ann", "points": 1, "ts": 4},
        {"item": "b", "voter": "ann", "points": 2, "ts": 7},
        {"item": "b", "voter": "bob", "points": 5, "ts": 9},
        {"item": "b", "voter": "cid", "points": None, "ts": 9},
    ],
    "items": [
        {"id": "i1", "price": 90, "ts": 1},
        {"id": "i1", "price": 120, "ts": 4},
        {"id": "i1", "price": 80, "ts": 9},
        {"id": "i2", "price": 150, "ts": 2},
        {"id": "i2", "price": 10, "ts": 5},
    ],
    "stocks": [
        {"id": "i1", "count": 0, "ts": 1},
        {"id": "i1", "count": 3, "ts": 6},
        {"id": "i2", "count": 0, "ts": 1},
        {"id": "i2", "count": 3, "ts": 5},
    ],
}
REPLIES = KnownOrder(earlier="msgs", earlier_column="id", later="msgs", later_column="inreplyto")


@pytest.fixture(scope="module")
def executor() -> Iterator[DuckDbExecutor]:
    with DuckDbExecutor(threads=1) as engine:
        yield engine


def texts(compiled: CompiledQuery) -> str:
    """Return the texts of a compiled query, as the golden files hold them."""
    parts = {"standard": compiled.standard, "monotone": compiled.monotone, "incremental": compiled.incremental}
    return "".join(f"-- {name}\n{query.sql('duckdb', pretty=True)}\n\n" for name, query in parts.items()) + (
        "".join(f"-- {line}\n" for line in compiled.explanation.splitlines())
    )


@pytest.mark.parametrize("name", EXAMPLES)
def test_compiled_texts_are_the_golden_texts(name: str) -> None:
    """Standard form, monotone query, incremental query and explanation stay as they were reviewed."""
    actual = texts(compile_query(EXAMPLES[name]["text"], CATALOGUE))
    file = GOLDEN / f"{name}.sql"
    if os.environ.get("WRITE_GOLDEN"):
        file.write_text(actual)
    assert file.read_text() == actual


@pytest.mark.parametrize("name", EXAMPLES)
def test_rows_enter_at_their_instants(executor: DuckDbExecutor, name: str) -> None:
    """Each row enters at the first instant at which the query returns it, and runs at every instant deliver it then."""
    runs = Runs(executor, compile_query(EXAMPLES[name]["text"], CATALOGUE), ROWS, CATALOGUE)
    expected = {tuple(None if value == "__null" else value for value in row) for row in EXAMPLES[name]["entries"]}
    assert set(runs.rows(runs.compiled.entries, None, 60)) == expected
    delivered = {(*row, t) for t in range(-1, 61) for row in runs.rows(runs.compiled.first_only, t - 1, t)}
    assert delivered == expected


def test_a_known_order_leaves_one_newest_member(executor: DuckDbExecutor) -> None:
    """With replies after their messages, only the instant of the last reply is compared with tau (I5)."""
    compiled = compile_query(EXAMPLES["w09"]["text"], CATALOGUE, orders=[REPLIES])
    text = compiled.incremental.sql("duckdb")
    assert text.count("$tau") == 1
    assert "$tau < m2.ts" in text
    assert "msgs.ts <= msgs.ts where msgs.id = msgs.inreplyto" in compiled.explanation


def test_an_ad_hoc_run_loses_rows_that_no_longer_match(executor: DuckDbExecutor) -> None:
    """The query as of instant 40 lacks m3, which got its reply later than 14 ticks after its publication."""
    runs = Runs(executor, compile_query(EXAMPLES["w07"]["text"], CATALOGUE), ROWS, CATALOGUE)
    assert sorted(runs.rows(at_instant(runs.compiled, 40), None, 40)) == [("m2",), ("r1",), ("r3",)]


def test_no_reply_is_explained(executor: DuckDbExecutor) -> None:
    """A NOT EXISTS without a bound on age returns every row, and the explanation names the remedy."""
    assert (
        "before any row could match its NOT EXISTS"
        in compile_query(EXAMPLES["no_reply"]["text"], CATALOGUE).explanation
    )
    assert "before any row" not in compile_query(EXAMPLES["w07"]["text"], CATALOGUE).explanation
