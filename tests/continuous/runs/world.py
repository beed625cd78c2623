"""Catalogue with a hand-driven clock, and the tables of the tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from quaestor.continuous.installed import HASH, ROW, RUN, InstalledQueries, InstalledQuery
from quaestor.continuous.runs.run import Run, run
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.schema import Column, Schema, Type
from tests.continuous.runs.plain_engine import REMINDERS, PlainEngine

NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)


class World:
    """Tables below one folder.

    now: moves only when a test moves it.
    """

    def __init__(self, folder: Path) -> None:
        self.now = NOON
        self.catalogue = Catalogue(folder, clock=self.clock)
        self.installed = InstalledQueries(self.catalogue, clock=self.clock)
        self.engine = PlainEngine(self.catalogue)

    def clock(self) -> int:
        return int(self.now.timestamp() * 1000)

    def advance(self, **delta: float) -> None:
        self.now += timedelta(**delta)

    def table(self, name: str, **columns: Type) -> None:
        self.catalogue.create(name, Schema(tuple(Column(column, kind) for column, kind in columns.items())))

    def reminders(self) -> None:
        self.table("reminders", id=Type.BIGINT, note=Type.TEXT, due_at=Type.TIMESTAMP)

    def add(self, table: str, *rows: dict[str, Any]) -> None:
        self.catalogue.open(table).append(rows)

    def install(self, name: str = "due", text: str = REMINDERS, **fields: Any) -> InstalledQuery:
        return self.installed.install(InstalledQuery(**{"name": name, "text": text, "every": "1m", **fields}))

    def run(self, name: str = "due") -> Run:
        query = self.installed.get(name)
        return run(query, self.engine.prepare(query.text), self.catalogue)

    def results(self, name: str = "due") -> list[dict[str, Any]]:
        """Return the present results in their order, without the instant of publication."""
        table = self.catalogue.open(self.installed.get(name).results)
        snapshot = table.snapshot()
        rows = table.scan(snapshot, 0, snapshot.instant).drop_columns(["ts", HASH]).to_pylist()
        return sorted(rows, key=lambda row: (row[RUN], row[ROW]))
