"""Spark as the engine of channels delivers what DuckDB delivers; the worked examples run on both, too (conftest.py)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from quaestor.channels.datasets import Dataset
from quaestor.channels.hosting import executors_of
from quaestor.continuous.executors.choice import ExecutorBySize
from quaestor.continuous.executors.duckdb import DuckDbExecutor
from quaestor.continuous.executors.executor import Executor
from quaestor.continuous.executors.spark import SparkExecutor
from quaestor.settings.continuous import ContinuousSettings
from quaestor.tables.schema import Column, Schema, Type
from tests.channels.world import World

pytestmark = pytest.mark.slow

NOTES = Schema(
    (
        Column("k", Type.BIGINT), Column("g", Type.BIGINT), Column("s", Type.TEXT), Column("x", Type.DOUBLE),
        Column("f", Type.BOOL), Column("m", Type.DECIMAL), Column("at", Type.TIMESTAMP), Column("j", Type.JSON),
        Column("b", Type.BYTES), Column("p", Type.POINT),
    ),
    ("k",),
)  # fmt: skip
ONE = {
    "k": 1, "g": 1, "s": "ä\n\"", "x": 0.1, "f": True, "m": Decimal("1.50"), "at": datetime(2026, 1, 1, 2, 3, 4, 5, UTC),
    "day": "2026-01-01", "j": {"a": [1, None]}, "b": b"\x00\x01", "p": [1.5, -2],
}  # fmt: skip
NOTHING = {"k": 2, "g": 1, **dict.fromkeys(("s", "x", "f", "m", "at", "j", "b", "p"))}
FURTHER = [{**ONE, "k": number, "g": number % 3, "x": number / 7, "p": [number, 0]} for number in range(3, 12)]
BODIES = {
    "all types": "SELECT * FROM Notes n WHERE is_new(n) AND n.g = area",
    "a record": "SELECT n AS note FROM Notes n WHERE is_new(n) AND n.g = area",
    "arithmetic": "SELECT n.k, n.x * 3 AS x, n.k / 2 AS half, n.g % 2 AS r FROM Notes n WHERE n.g = area",
    "groups": "SELECT n.g, count(*) AS n, sum(n.k) AS s, avg(n.x) AS a, max(n.at) AS at FROM Notes n WHERE n.g = area GROUP BY g",
    "an aggregate": "SELECT count(*) AS n, min(n.s) AS s FROM Notes n WHERE n.g = area AND is_new(n)",
    "pairs": "SELECT n.k, m.k AS other FROM Notes n, Notes m WHERE is_new(n) AND n.g = area AND near(n.p, m.p, 2)",
    "both arms": "SELECT n.k FROM Notes n WHERE n.g = area AND is_new(n) UNION ALL SELECT 0 AS k FROM Notes n WHERE n.g = area",
    "texts": "SELECT upper(n.s) AS u, concat(n.s, n.k) AS c, n.j ->> '$.a' AS j FROM Notes n WHERE n.g = area",
    "times": "SELECT date_trunc('day', n.at) AS d, n.at + INTERVAL 2 HOUR AS l FROM Notes n WHERE n.g = area AND n.at > now()",
    "exists": "SELECT n.k FROM Notes n WHERE n.g = area AND NOT EXISTS (SELECT 1 FROM Notes m WHERE m.g = n.g AND m.k > n.k)",
    "rows": "SELECT n.k, row_number() OVER (ORDER BY n.k) AS r FROM Notes n WHERE n.g = area",
}  # fmt: skip


def delivered(folder: Path, executor: Executor, body: str) -> list[str]:
    """Return what three runs deliver, with writes between them."""
    world = World(folder)
    world.executor = executor  # type: ignore[assignment]
    world.restart()
    notes = Dataset.create(world.catalogue, "Notes", NOTES, partitions=2)
    world.create(body, "area")
    members = {world.subscribe(area, broker=broker): (area, broker) for area, broker in ((1, "a"), (1, "b"), (2, "a"))}
    world.now = 1_000_000
    for records in ([ONE, NOTHING], FURTHER, [{**ONE, "s": "changed"}]):
        world.now += 10
        assert notes.upsert(records).accepted == len(records)
        world.now += 10
        world.run()
    return sorted(json.dumps([members[member], record], sort_keys=True) for member, record in world.delivered())


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_both_engines_deliver_the_same(tmp_path: Path, spark: SparkExecutor, body: str) -> None:
    results = [
        delivered(tmp_path / name, executor, body)
        for name, executor in (("duckdb", DuckDbExecutor(threads=1)), ("spark", spark))
    ]
    assert len(results[0]) > 2
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("choice", "kind"), [("duckdb", DuckDbExecutor), ("spark", SparkExecutor), ("1GB", ExecutorBySize)]
)
def test_the_setting_chooses_the_engine_of_each_channel(choice: str, kind: type) -> None:
    made = executors_of(ContinuousSettings(continuous_executor=choice, continuous_spark_master="local[1]"))
    first, second = made("a"), made("b")
    assert type(first) is kind
    assert first is not second
    for executor in (first, second):
        executor.close()
