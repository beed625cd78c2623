"""Upkeep of results: joined files change no page, key or delivery, and dead letters reach functions again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from quaestor.continuous.administration import Administration
from quaestor.continuous.delivery.batch import ResultBatch
from quaestor.continuous.delivery.courier import Courier, Replayed
from quaestor.continuous.delivery.dead_letters import DeadLetters
from quaestor.continuous.executors.duckdb import DuckDbExecutor
from quaestor.continuous.functions import FunctionSink, reachable_sink
from quaestor.continuous.runs import results
from quaestor.continuous.runs.pages import ResultPages
from quaestor.continuous.sql_engine import SqlEngine
from quaestor.observability.telemetry import Telemetry
from quaestor.settings.continuous import ContinuousSettings
from quaestor.tables import maintenance
from quaestor.tables.schema import Type
from tests.continuous.runs.test_run_faults import Served
from tests.continuous.runs.test_service import Served as ServedPlainly
from tests.continuous.runs.test_service import due_in

pytestmark = pytest.mark.anyio


def every_page(served: Served, limit: int) -> list[dict[str, Any]]:
    """Return the results of all pages of the administration, each page at most one run longer than the limit."""
    engine = SqlEngine(served.catalogue, DuckDbExecutor(threads=1))
    administration = Administration(ContinuousSettings(), served.catalogue, engine, clock=served.clock)
    rows, after, complete = [], 0, False
    while not complete:
        page = administration.results("orders", after=after, limit=limit)
        assert len(page["rows"]) < limit + 2
        rows += page["rows"]
        after, complete = page["next"], page["complete"]
    return rows


async def test_joined_files_change_no_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages, their order, keys and deliveries are those of the single files. New runs go on behind them."""
    monkeypatch.setattr(results, "MANY_FILES", 5)
    served = Served(tmp_path / "tables", tmp_path)
    served.table("orders", id=Type.BIGINT)
    served.stand("orders", "SELECT id FROM orders")
    for number in range(6):
        served.add("orders", {"id": 2 * number}, {"id": 2 * number + 1})
        await served.after(minutes=1)
    pages = ResultPages(served.catalogue, served.installed)
    runs = [head.run for head in pages.after("orders", 0, 100)]
    before = [pages.body("orders", run) for run in runs], every_page(served, 3)
    table = served.catalogue.open("results.orders")
    assert len(table.snapshot().files) == 6
    await served.after(minutes=11)
    assert len(table.snapshot().files) == 1
    pages = ResultPages(served.catalogue, served.installed)
    assert ([pages.body("orders", run) for run in runs], every_page(served, 3)) == before
    served.add("orders", {"id": 5}, {"id": 99})
    await served.after(minutes=1)
    assert served.delivered() == [*range(12), 99]
    assert [row["row"]["id"] for row in every_page(served, 3)] == [*range(12), 99]


async def test_few_files_are_not_joined(tmp_path: Path) -> None:
    served = Served(tmp_path / "tables", tmp_path)
    served.table("orders", id=Type.BIGINT)
    served.stand("orders", "SELECT id FROM orders")
    for number in range(3):
        served.add("orders", {"id": number})
        await served.after(minutes=11)
    assert len(served.catalogue.open("results.orders").snapshot().files) == 3


@pytest.mark.parametrize("again", [False, True])
async def test_a_query_that_is_dropped_during_the_joining_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """Its files vanish between the snapshot and the joining; the query may even be installed anew by then."""
    monkeypatch.setattr(results, "MANY_FILES", 2)
    served = Served(tmp_path / "tables", tmp_path)
    served.table("orders", id=Type.BIGINT)
    served.stand("orders", "SELECT id FROM orders")
    for number in range(3):
        served.add("orders", {"id": number})
        await served.after(minutes=1)
    compact, joined = maintenance.compact, []

    def dropped_first(*args: Any, **given: Any) -> bool:
        joined.append(served.installed.get("orders"))
        served.installed.drop("orders")
        if again:
            served.stand("orders", "SELECT id FROM orders")
        return compact(*args, **given)

    monkeypatch.setattr(maintenance, "compact", dropped_first)
    await served.after(minutes=11)
    assert len(joined) == 1
    assert served.reported("tables.maintenance_failed") == []
    monkeypatch.setattr(maintenance, "compact", compact)
    served.add("orders", {"id": 7})
    await served.after(minutes=1)
    assert served.reported("tables.maintenance_failed") == []


async def test_a_dead_letter_reaches_its_function_again(tmp_path: Path) -> None:
    """Another process asks; the process with the function sends the letter once, with its old key."""
    served, calls, works = ServedPlainly(tmp_path), [], False

    async def remind(batch: ResultBatch) -> None:
        calls.append(batch.key)
        if not works:
            raise ValueError("the database is away")

    served.reminders()
    served.sinks["function:due"] = FunctionSink("due", remind)
    served.install(sinks=("function:due",))
    served.add("reminders", due_in(1, seconds=30))
    await served.after(minutes=1)
    assert len(calls) == 2
    other = Courier(DeadLetters(served.letters._storage), Telemetry(), attempts=1)

    async def replay() -> Replayed:
        return await other.replay(lambda address: reachable_sink(address, ContinuousSettings()))

    assert await replay() == Replayed(delivered=0, failed=0, asked=1)
    await served.service.run_due()
    assert (len(calls), served.letters.count()) == (3, 1)
    await served.service.run_due()
    assert len(calls) == 3
    works = True
    assert await replay() == Replayed(delivered=0, failed=0, asked=1)
    await served.service.run_due()
    await served.service.run_due()
    assert (len(calls), len(set(calls)), served.letters.count()) == (4, 1, 0)
    assert await replay() == Replayed(delivered=0, failed=0)


async def test_an_asked_letter_waits_for_its_application(tmp_path: Path) -> None:
    """A process without the function leaves the letter to another one."""
    served = ServedPlainly(tmp_path)
    courier = Courier(served.letters, Telemetry(), attempts=1)

    async def refuse(_: ResultBatch) -> None:
        raise ValueError("no")

    batch = ResultBatch(query="due", run=1, instant=1, rows=[{"id": 1}])
    assert not await courier.deliver(FunctionSink("due", refuse), batch)
    assert (await courier.replay(lambda _: None)).asked == 1
    assert await courier.replay_asked(lambda _: None) == Replayed(delivered=0, failed=0)
    heard = asyncio.Queue[str]()

    async def hear(given: ResultBatch) -> None:
        heard.put_nowait(given.key)

    assert await courier.replay_asked(lambda _: FunctionSink("due", hear)) == Replayed(delivered=1, failed=0)
    assert heard.get_nowait() == batch.key
