"""Folder with an installed continuous query that has results and a dead letter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quaestor.continuous.administration import Administration
from quaestor.continuous.delivery.batch import ResultBatch
from quaestor.continuous.delivery.dead_letters import DeadLetter, DeadLetters
from quaestor.continuous.hosting import administration_of
from quaestor.continuous.installed import InstalledQuery
from quaestor.continuous.runs.run import run
from quaestor.settings import Settings
from quaestor.tables.schema import Column, Schema, Type

HOSTILE = "<img src=x onerror=alert(1)>"
TEXT = "SELECT id FROM orders WHERE total > 100"


def settings(folder: Path) -> dict[str, Any]:
    """Settings of a site with this folder."""
    return {"continuous_folder": str(folder), "delivery_folder": str(folder / "delivered")}


def filled(folder: Path) -> Administration:
    """Install `large`, run it over two orders, and keep a batch of it as a dead letter."""
    (folder / "delivered").mkdir()
    administration = administration_of(Settings(**settings(folder)).continuous)
    catalogue = administration.catalogue
    orders = catalogue.create("orders", Schema((Column("id", Type.BIGINT), Column("total", Type.DOUBLE))))
    orders.append([{"id": 1, "total": 120.0}, {"id": 2, "total": 7.0}])
    administration.install(InstalledQuery(name="large", text=TEXT, every="1d", sinks=()), "beginning")
    query = administration.installed.get("large")
    run(query, administration.engine.prepare(query.text), catalogue)
    batch = ResultBatch(query="large", run=1, instant=1, rows=[{"id": 1}])
    DeadLetters(catalogue.root).put(
        DeadLetter(batch=batch, sink="file:large.ndjson", reason="disk", error=HOSTILE, attempts=8)
    )
    return administration


def delivered(folder: Path) -> str:
    """Text of the file that replay writes."""
    path = folder / "delivered" / "large.ndjson"
    return path.read_text() if path.exists() else ""
