"""Columns and texts that change while queries run: a compilation counts only for its text and its columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from quaestor.continuous.engine import OutdatedCompilationError
from quaestor.continuous.executors.duckdb import DuckDbExecutor
from quaestor.continuous.installed import InstalledQuery
from quaestor.continuous.runs.execution import Executions
from quaestor.continuous.sql_engine import SqlEngine
from quaestor.tables.schema import Column, Schema, Type
from tests.continuous.runs.plain_engine import PlainEngine, PlainQuery
from tests.continuous.runs.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.table("orders", id=Type.BIGINT, n=Type.BIGINT)
    return made


def executions(world: World) -> Executions:
    return Executions(SqlEngine(world.catalogue, DuckDbExecutor()), world.catalogue)


def values(world: World, name: str = "due") -> list[dict[str, Any]]:
    rows = world.results(name)
    return [{column: value for column, value in row.items() if not column.startswith("_")} for row in rows]


def widened(world: World, row: dict[str, Any]) -> None:
    columns = Schema((Column("id", Type.BIGINT), Column("n", Type.DOUBLE)))
    world.catalogue.open("orders").append([row], additions=columns)


def test_a_widened_column_is_compiled_again(world: World) -> None:
    """A sum that was a BIGINT has its fraction in the first run after the column became a DOUBLE."""
    query = world.install(text="SELECT id, SUM(n) AS total FROM orders GROUP BY id")
    runs = executions(world)
    world.add("orders", {"id": 1, "n": 2})
    assert runs.run(query).rows == 1
    world.advance(minutes=1)
    widened(world, {"id": 2, "n": 0.4})
    assert runs.run(query).rows == 1
    assert values(world) == [{"id": 1, "total": 2.0}, {"id": 2, "total": 0.4}]


def test_a_shared_plan_with_a_widened_column_is_compiled_again(world: World) -> None:
    """The plan fails as a whole, so the service runs each query alone. Both then have the new type."""
    text = "SELECT id, SUM(n) AS total FROM orders GROUP BY id"
    queries = [world.install(name, text) for name in ("q1", "q2")]
    runs = executions(world)
    world.add("orders", {"id": 1, "n": 2})
    assert [len(group) for group in runs.groups(queries)] == [2]
    runs.run_together(queries)
    world.advance(minutes=1)
    widened(world, {"id": 2, "n": 0.4})
    with pytest.raises(OutdatedCompilationError):
        runs.run_together(queries)
    assert [runs.run(query).rows for query in queries] == [1, 1]
    assert [values(world, query.name)[-1] for query in queries] == [{"id": 2, "total": 0.4}] * 2


def test_an_added_column_repeats_no_row(world: World) -> None:
    """A row that was published without the column equals the row whose column is NULL, in that run and in later ones."""
    world.table("marks", id=Type.BIGINT)
    query = world.install(text="SELECT o.* FROM orders o JOIN marks m ON m.id = o.id")
    runs = executions(world)
    world.add("orders", {"id": 1, "n": 1}, {"id": 2, "n": 2})
    world.add("marks", {"id": 1})
    assert runs.run(query).rows == 1
    world.advance(minutes=1)
    added = Schema((Column("id", Type.BIGINT), Column("n", Type.BIGINT), Column("x", Type.BIGINT)))
    world.catalogue.open("orders").append([{"id": 3, "n": 3, "x": 5}], additions=added)
    world.add("marks", {"id": 1})
    assert runs.run(query).rows == 0
    world.advance(minutes=1)
    world.add("marks", {"id": 1}, {"id": 3})
    assert runs.run(query).rows == 1
    world.advance(minutes=1)
    world.add("marks", {"id": 1}, {"id": 3})
    assert runs.run(query).rows == 0
    assert values(world) == [{"id": 1, "n": 1, "x": None}, {"id": 3, "n": 3, "x": 5}]


class SlowEngine(PlainEngine):
    """Engine during whose compilation of a text the text of the query changes."""

    def __init__(self, world: World) -> None:
        super().__init__(world.catalogue)
        self.meanwhile: Any = lambda: None

    def prepare(self, text: str) -> PlainQuery:
        prepared = super().prepare(text)
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        return prepared


def test_a_text_that_changes_during_its_compilation_is_compiled_again(world: World) -> None:
    """The compilation of the old text ends after the change. The next run executes the new text."""
    engine = SlowEngine(world)
    runs = Executions(engine, world.catalogue)
    changed: list[InstalledQuery] = []

    def change() -> None:
        changed.append(world.installed.change_text("due", "SELECT 2 AS n FROM orders WHERE $after < $upto", start=0))
        runs.forget("due")

    engine.meanwhile = change
    world.add("orders", {"id": 1, "n": 1})
    runs.run(world.install(text="SELECT 1 AS n FROM orders WHERE $after < $upto"))
    runs.run(changed[0])
    assert values(world) == [{"n": 2}]
