"""Names with capitals: SQL ignores their case, and results have the spelling of the schema."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from quaestor.continuous.compilation import compile_query
from quaestor.continuous.executors.duckdb import DuckDbExecutor
from quaestor.continuous.sql.refusals import QueryRefusedError
from quaestor.continuous.sql_engine import SqlEngine
from quaestor.tables.schema import Column, Schema, Type
from tests.continuous.runs.world import NOON, World

ORDER = {"id": 1, "createdAt": NOON, "firstName": "Ada", "group": "g", "two words": "w"}


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    columns = (
        Column("id", Type.BIGINT), Column("createdAt", Type.TIMESTAMP), Column("firstName", Type.TEXT),
        Column("group", Type.TEXT), Column("two words", Type.TEXT),
    )  # fmt: skip
    made.catalogue.create("shopOrders", Schema(columns))
    made.catalogue.create("Users", Schema((Column("userId", Type.BIGINT), Column("Name", Type.TEXT)), ("userId",)))
    made.add("shopOrders", ORDER)
    made.engine = SqlEngine(made.catalogue, DuckDbExecutor())  # type: ignore[assignment]
    return made


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("SELECT createdAt FROM shopOrders", {"createdAt": NOON}),
        ("SELECT CREATEDAT FROM SHOPORDERS", {"createdAt": NOON}),
        ("SELECT * FROM shopOrders", ORDER),
        ("SELECT o.* FROM shopOrders O WHERE O.createdat <= now()", ORDER),
        ('SELECT "firstName" FROM shopOrders', {"firstName": "Ada"}),
        ("SELECT part.firstName FROM (SELECT * FROM shopOrders) part", {"firstName": "Ada"}),
        ("SELECT id, Name FROM shopOrders LEFT JOIN users ON userId = id", {"id": 1, "Name": None}),
        (
            "SELECT firstName FROM shopOrders WHERE NOT EXISTS (SELECT 1 FROM Users WHERE USERID = id)",
            {"firstName": "Ada"},
        ),
        ("SELECT firstName, COUNT(*) AS n FROM shopOrders GROUP BY firstName", {"firstName": "Ada", "n": 1}),
        ("SELECT firstName FROM shopOrders GROUP BY firstName ORDER BY FIRSTNAME LIMIT 2", {"firstName": "Ada"}),
    ],
)
def test_every_spelling_of_a_name_is_the_column(world: World, text: str, row: dict[str, Any]) -> None:
    """The first run returns the row, and so does a run that reads columns and joins by them later."""
    world.install(text=text)
    assert world.run().rows == 1
    (result,) = world.results()
    assert {name: value for name, value in result.items() if not name.startswith("_")} == row
    world.advance(minutes=1)
    world.add("shopOrders", {**ORDER, "id": 2, "createdAt": NOON + timedelta(seconds=1), "firstName": "Bob"})
    assert world.run().rows == 1


def test_a_missing_row_has_the_type_of_its_column() -> None:
    """NULL of a text column is no timestamp: a comparison of both would fail."""
    catalogue = {
        "o": Schema((Column("id", Type.BIGINT),)),
        "u": Schema((Column("id", Type.BIGINT), Column("firstName", Type.TEXT))),
    }
    compiled = compile_query("SELECT o.id, u.firstName FROM o LEFT JOIN u ON u.id = o.id", catalogue)
    assert "CAST(NULL AS TEXT) AS firstName" in compiled.standard.sql("duckdb")


def test_a_query_that_no_engine_accepts_is_not_prepared(world: World) -> None:
    """The administration prepares a text before it installs it, so `install` refuses wrong types."""
    with pytest.raises(QueryRefusedError, match=r"the engine refuses the query: .*\+\(BIGINT, VARCHAR\)"):
        world.engine.prepare("SELECT id + firstName AS x FROM shopOrders")
