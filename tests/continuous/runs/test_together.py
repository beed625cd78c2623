"""Queries of equal shape run as one plan: each has the results, the instants and the failures that it has alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from quaestor.continuous.executors.duckdb import DuckDbExecutor
from quaestor.continuous.installed import InstalledQuery
from quaestor.continuous.runs.execution import Executions
from quaestor.continuous.runs.run import Run, close
from quaestor.continuous.sql_engine import SqlEngine, SqlQuery
from quaestor.tables.schema import Type
from tests.continuous.runs.world import NOON, World


class Many(World):
    """World with many queries of one shape, which run together."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.executor = DuckDbExecutor()
        self.plans = SqlEngine(self.catalogue, self.executor)
        self.begin()
        self.table("orders", id=Type.BIGINT, shop=Type.BIGINT, due=Type.TIMESTAMP)

    def begin(self) -> None:
        """Forget what a process knows."""
        self.executions = Executions(self.plans, self.catalogue)

    def stand(self, name: str, shop: int, **fields: Any) -> InstalledQuery:
        return self.install(name, f"SELECT id FROM orders WHERE shop = {shop} AND due <= now()", **fields)

    def order(self, number: int, shop: int, minutes: int) -> None:
        self.add("orders", {"id": number, "shop": shop, "due": NOON + timedelta(minutes=minutes)})

    def together(self, *names: str) -> dict[str, int]:
        """Run queries as one plan; return the numbers of their new results, without those of none."""
        groups = self.executions.groups([self.installed.get(name) for name in names])
        assert [len(group) for group in groups] == [len(names)]
        outcomes = self.executions.run_together(groups[0])
        for outcome in outcomes.values():
            if not isinstance(outcome, Run):
                raise outcome
        return {name: outcome.rows for name, outcome in outcomes.items() if isinstance(outcome, Run) and outcome.rows}

    def ids(self, name: str) -> list[int]:
        return [row["id"] for row in self.results(name)]


@pytest.fixture
def many(tmp_path: Path) -> Many:
    return Many(tmp_path)


def test_each_query_has_the_results_that_it_has_alone(many: Many, tmp_path: Path) -> None:
    """Random orders and runs; some queries run alone now and then, some begin later, and processes end in between."""
    random = Random(7)
    names = [f"shop_{shop}" for shop in range(6)]
    for shop, name in enumerate(names[:4]):
        many.stand(name, shop)
        many.stand(f"alone_{name}", shop)
    expected: dict[str, list[int]] = {}
    for minute in range(1, 40):
        if minute == 20:
            for shop, name in enumerate(names[4:], 4):
                many.stand(name, shop)
                many.stand(f"alone_{name}", shop)
        for _ in range(random.randrange(4)):
            many.order(random.randrange(30), random.randrange(6), minute + random.randrange(-5, 5))
        many.advance(minutes=1)
        present = names if minute >= 20 else names[:4]
        taking_part = [name for name in present if random.random() < 0.7]
        if len(taking_part) > 1:
            many.together(*taking_part)
        elif taking_part:
            many.executions.run(many.installed.get(taking_part[0]))
        if random.random() < 0.1:
            many.begin()
    many.advance(hours=1)
    many.together(*names)
    for name in names:
        alone = many.installed.get(f"alone_{name}")
        many.executions.run(alone)
        expected[name] = sorted(many.ids(f"alone_{name}"))
        assert sorted(many.ids(name)) == expected[name]
    assert sum(map(len, expected.values())) > 20


def test_a_quiet_query_costs_no_entry_and_loses_nothing(many: Many) -> None:
    """Its progress lies in the memory of the process. A process that ends runs the interval again, without a repetition."""
    for shop in range(3):
        many.stand(f"shop_{shop}", shop)
    names = "shop_0", "shop_1", "shop_2"
    many.advance(minutes=1)
    many.together(*names)
    entries = {name: many.catalogue.open(f"results.{name}").snapshot().number for name in names}
    many.order(1, 1, 2)
    for _ in range(5):
        many.advance(minutes=1)
        many.together(*names)
    after = {name: many.catalogue.open(f"results.{name}").snapshot().number for name in names}
    assert {name: after[name] - entries[name] for name in names} == {"shop_0": 0, "shop_1": 1, "shop_2": 0}
    many.begin()
    many.order(2, 2, 3)
    many.advance(minutes=1)
    assert many.together(*names) == {"shop_2": 1}
    assert [many.ids(name) for name in names] == [[], [1], [2]]


def test_a_query_that_another_process_has_run_is_left_to_it(many: Many) -> None:
    many.stand("shop_0", 0)
    many.stand("shop_1", 1)
    many.advance(minutes=1)
    many.together("shop_0", "shop_1")
    other = Executions(SqlEngine(many.catalogue, DuckDbExecutor()), many.catalogue)
    many.order(1, 0, 1)
    many.advance(minutes=1)
    assert other.run(many.installed.get("shop_0")).rows == 1
    assert many.together("shop_0", "shop_1") == {}
    many.order(2, 0, 1)
    many.advance(minutes=1)
    many.together("shop_0", "shop_1")
    many.together("shop_0", "shop_1")
    assert many.ids("shop_0") == [1, 2]


def test_a_query_that_is_installed_again_begins_anew(many: Many) -> None:
    """A table that was dropped and made again under the same name has no progress."""
    many.stand("shop_0", 0)
    many.stand("shop_1", 1)
    many.order(1, 0, 1)
    many.advance(minutes=2)
    assert many.together("shop_0", "shop_1") == {"shop_0": 1}
    many.installed.drop("shop_0")
    many.stand("shop_0", 0)
    many.advance(minutes=1)
    assert many.together("shop_0", "shop_1") == {"shop_0": 1}


def test_other_shapes_do_not_share(many: Many) -> None:
    """A plan of queries that differ in more than constants raises, and gives no query the rows of another."""
    texts = "SELECT id FROM orders WHERE id = 1", "SELECT id FROM orders WHERE shop = 1"
    plan = many.plans.together({text: many.plans.prepare(text) for text in texts})
    closed = close(many.catalogue, plan.tables)
    with pytest.raises(ValueError, match="one signature"):
        plan.rows(dict.fromkeys(texts, 0), closed.instant, closed.snapshots)


def test_ten_thousand_queries_are_one_plan(many: Many) -> None:
    """Each gets its own rows from one execution, which reads the table once."""
    for number in range(50):
        many.order(number, number * 200, 2)
    many.advance(minutes=5)
    first = many.plans.prepare("SELECT id FROM orders WHERE shop = 7 AND due <= now()")
    constant = first.compiled.constants[0]
    queries = {
        f"shop_{shop}": SqlQuery(
            replace(first.compiled, constants=(replace(constant, value=shop),)), many.catalogue, many.executor
        )
        for shop in range(10_000)
    }
    plan = many.plans.together(queries)
    closed = close(many.catalogue, plan.tables)
    evaluated = plan.rows(dict.fromkeys(queries, 0), closed.instant, closed.snapshots)
    ids = {name: rows.column("id").to_pylist() for name, rows in evaluated.rows.items() if rows.num_rows}
    assert ids == {f"shop_{number * 200}": [number] for number in range(50)}
    assert (len(evaluated.rows), evaluated.read.rows) == (10_000, 50)
