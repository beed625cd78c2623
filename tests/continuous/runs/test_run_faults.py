"""Faults that meet the service of continuous queries: each is a clear error or alarm, and loses nothing."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quaestor.continuous.delivery.courier import Courier
from quaestor.continuous.delivery.dead_letters import DeadLetters
from quaestor.continuous.delivery.file import FileSink
from quaestor.continuous.executors.duckdb import DuckDbExecutor
from quaestor.continuous.installed import InstalledQuery, State
from quaestor.continuous.schedule.queue import QUARANTINE_AFTER
from quaestor.continuous.service import ContinuousService, ServiceParts
from quaestor.continuous.sql_engine import SqlEngine
from quaestor.observability.hooks import FailureSeen
from quaestor.observability.telemetry import Telemetry
from quaestor.tables.schema import Type
from tests.continuous.runs.world import World

pytestmark = pytest.mark.anyio


class Served(World):
    """World with the real compiler, a service, and a file as sink."""

    def __init__(self, folder: Path, results: Path) -> None:
        super().__init__(folder)
        self.file = results / "results.ndjson"
        self.failures: list[FailureSeen] = []
        telemetry = Telemetry()
        telemetry.hooks.failures.append(self.failures.append)
        self.service = ContinuousService(
            ServiceParts(
                catalogue=self.catalogue, installed=self.installed, engine=SqlEngine(self.catalogue, DuckDbExecutor()),
                courier=Courier(DeadLetters(self.catalogue.root), telemetry, attempts=1),
                sink_of=lambda address: FileSink(address, self.file), telemetry=telemetry, clock=self.clock,
            )
        )  # fmt: skip

    def stand(self, name: str, text: str) -> InstalledQuery:
        return self.install(name, text, sinks=("file:results.ndjson",))

    async def after(self, **delta: float) -> None:
        """Move the clock, and run what is due."""
        self.advance(**delta)
        await self.service.run_due()

    def delivered(self) -> list[int]:
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        return [json.loads(line)["row"]["id"] for line in lines]

    def reported(self, event: str) -> list[str]:
        return [str(failure.error) for failure in self.failures if failure.name == event]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """File system of one megabyte, in memory."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"needs the right to mount a file system: {mounted.stderr}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


async def test_a_full_disk_stops_runs_with_an_alarm_and_loses_nothing(disk: Path, tmp_path: Path) -> None:
    """The alarm names the remedy. No query is quarantined for it, and each result comes once after there is room."""
    served = Served(disk / "tables", tmp_path)
    served.table("orders", id=Type.BIGINT)
    served.stand("orders", "SELECT id FROM orders")
    served.add("orders", {"id": 1})
    await served.after(minutes=1)
    served.add("orders", {"id": 2})
    filler = disk / "filler"
    with pytest.raises(OSError, match="No space left"), filler.open("wb") as file:  # noqa: PT012
        while True:
            file.write(b"x" * 4096)
            file.flush()
    for _ in range(QUARANTINE_AFTER + 2):
        await served.after(hours=2)
    assert served.delivered() == [1]
    assert all("make room" in text for text in served.reported("continuous.run_failed"))
    assert len(served.reported("continuous.run_failed")) > QUARANTINE_AFTER
    assert served.installed.get("orders").state is State.ACTIVE
    filler.unlink()
    await served.after(hours=2)
    await served.after(minutes=1)
    assert served.delivered() == [1, 2]


async def test_a_dropped_column_stops_only_its_query_with_the_reason(tmp_path: Path) -> None:
    """The table was made anew without the column. After `resume` with the column the query goes on."""
    served = Served(tmp_path / "tables", tmp_path)
    served.table("orders", id=Type.BIGINT, price=Type.BIGINT)
    served.stand("cheap", "SELECT id FROM orders WHERE price < 10")
    served.add("orders", {"id": 1, "price": 5})
    await served.after(minutes=1)
    served.catalogue.drop("orders")
    served.table("orders", id=Type.BIGINT)
    served.stand("all_orders", "SELECT id FROM orders")
    served.add("orders", {"id": 2})
    for _ in range(QUARANTINE_AFTER + 2):
        await served.after(minutes=1)
    query = served.installed.get("cheap")
    assert query.state is State.QUARANTINED
    assert "price" in query.reason
    assert served.reported("continuous.quarantined") == [query.reason]
    assert served.delivered() == [1, 2]
    served.catalogue.drop("orders")
    served.table("orders", id=Type.BIGINT, price=Type.BIGINT)
    served.add("orders", {"id": 3, "price": 5})
    served.installed.resume("cheap")
    await served.after(minutes=1)
    await served.after(minutes=1)
    assert sorted(served.delivered()) == [1, 2, 3, 3]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT id AS _run FROM orders", "must not have a column '_run': give it another name"),
        ("SELECT id FROM orders WHERE price < 10", "price"),
        ("SELECT nothing FROM", "line 1"),
    ],
)
async def test_a_text_that_cannot_run_is_quarantined_with_its_reason(tmp_path: Path, text: str, reason: str) -> None:
    """Also if it was installed past the check of `install`."""
    served = Served(tmp_path / "tables", tmp_path)
    served.table("orders", id=Type.BIGINT)
    served.add("orders", {"id": 1})
    served.stand("bad", text)
    served.stand("good", "SELECT id FROM orders")
    for _ in range(QUARANTINE_AFTER + 1):
        await served.after(minutes=1)
    assert served.installed.get("bad").state is State.QUARANTINED
    assert reason in served.installed.get("bad").reason
    assert served.delivered() == [1]


async def test_a_column_of_another_type_stops_the_query_with_the_remedy(tmp_path: Path) -> None:
    """Results of two types never share a column."""
    served = Served(tmp_path / "tables", tmp_path)
    served.table("orders", id=Type.BIGINT)
    served.stand("orders", "SELECT id FROM orders")
    served.add("orders", {"id": 1})
    await served.after(minutes=1)
    served.catalogue.drop("orders")
    served.table("orders", id=Type.TEXT)
    served.add("orders", {"id": "two"})
    for _ in range(QUARANTINE_AFTER + 1):
        await served.after(minutes=1)
    reason: Any = served.installed.get("orders").reason
    assert "column 'id' was bigint, and would be text: give the new column another name" in reason
    assert served.delivered() == [1]
