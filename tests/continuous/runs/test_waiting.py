"""Queries whose table does not exist yet, and queries that ran too seldom: a clear state or alarm each."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from quaestor.continuous.installed import State
from quaestor.continuous.schedule.queue import QUARANTINE_AFTER
from quaestor.tables.retention import retain
from quaestor.tables.schema import Column, Schema, Type
from tests.continuous.runs.test_run_faults import Served

pytestmark = pytest.mark.anyio


async def test_a_query_waits_for_its_table(tmp_path: Path) -> None:
    """A waiting query is never quarantined, and alarms once. Its first run has every result since the installation."""
    served = Served(tmp_path / "tables", tmp_path)
    served.table("shops", id=Type.BIGINT)
    served.stand("orders", "SELECT id FROM orders")
    for _ in range(QUARANTINE_AFTER + 2):
        await served.after(minutes=1)
    query = served.installed.get("orders")
    assert (query.state, "the table 'orders' is unknown" in query.reason) == (State.WAITING, True)
    assert len(served.reported("continuous.waiting")) == 1
    assert served.reported("continuous.run_failed") == []
    served.table("orders", id=Type.BIGINT)
    served.add("orders", {"id": 1})
    await served.after(minutes=1)
    assert served.delivered() == [1]
    assert (served.installed.get("orders").state, served.installed.get("orders").reason) == (State.ACTIVE, "")


async def test_a_waiting_query_can_be_paused(tmp_path: Path) -> None:
    """The state that an operator chose stays."""
    served = Served(tmp_path / "tables", tmp_path)
    served.stand("orders", "SELECT id FROM orders")
    await served.after(minutes=1)
    served.installed.pause("orders")
    served.table("orders", id=Type.BIGINT)
    served.add("orders", {"id": 1})
    await served.after(minutes=1)
    assert (served.installed.get("orders").state, served.delivered()) == (State.PAUSED, [])
    assert served.installed.go_on("orders").state is State.PAUSED
    served.installed.resume("orders")
    await served.after(minutes=1)
    assert served.delivered() == [1]


async def test_a_query_that_was_paused_too_long_reports_the_versions_it_missed(tmp_path: Path) -> None:
    """The alarm names the table and the interval, once. A query that ran in time has none."""
    served = Served(tmp_path / "tables", tmp_path)
    served.catalogue.create("stock", Schema((Column("id", Type.BIGINT), Column("count", Type.BIGINT)), key=("id",)))
    for name in ("paused", "running"):
        served.stand(name, "SELECT id, count FROM stock WHERE count < 5")
    served.add("stock", {"id": 1, "count": 9})
    await served.after(minutes=1)
    served.installed.pause("paused")
    served.add("stock", {"id": 1, "count": 3})
    await served.after(minutes=1)
    served.add("stock", {"id": 1, "count": 8})
    await served.after(minutes=1)
    await served.after(days=3)
    before = int((served.now - timedelta(days=1)).timestamp() * 1_000_000)
    assert retain(served.catalogue.open("stock"), before=before) == 2
    served.installed.resume("paused")
    await served.after(minutes=1)
    await served.after(minutes=1)
    (alarm,) = served.reported("continuous.versions_missed")
    assert "paused misses versions of stock: those superseded between 2026-11-28T12:01" in alarm
    assert "and 2026-11-30T12:03" in alarm
    assert served.delivered() == [1]
