"""Continuous queries over tables that collections fill."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from quaestor.continuous.compilation import compile_query
from quaestor.continuous.executors.duckdb import DuckDbExecutor
from quaestor.continuous.sql_engine import SqlEngine
from quaestor.tables.inference import DELETED
from quaestor.tables.schema import Column, Schema, Type
from tests.continuous.runs.world import World

ITEMS = Schema((Column("_id", Type.BIGINT), Column(DELETED, Type.BOOL), Column("n", Type.BIGINT)), ("_id",))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize(
    "condition", ["n IS NULL", "n IS DISTINCT FROM 1", "NOT EXISTS (SELECT 1 FROM items i WHERE i.n = 1)"]
)
def test_a_deletion_is_no_version(condition: str, world: World) -> None:
    """A deleted record is no result, although the columns of its last row are NULL."""
    items = world.catalogue.create("items", ITEMS)
    items.append([{"_id": 1, DELETED: False, "n": 1}, {"_id": 2, DELETED: False, "n": 1}])
    world.advance(minutes=1)
    items.append([{"_id": 1, DELETED: True}])
    world.engine = SqlEngine(world.catalogue, DuckDbExecutor())  # type: ignore[assignment]
    world.install("odd", f"SELECT _id FROM items WHERE {condition}")
    world.now += timedelta(minutes=1)
    world.run("odd")
    assert world.results("odd") == []


def test_the_mark_of_deletions_is_read(world: World) -> None:
    """The compiled query names the column."""
    assert DELETED in compile_query("SELECT _id FROM items", {"items": ITEMS}).incremental.sql("duckdb")
